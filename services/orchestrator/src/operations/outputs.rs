//! The output of attempts: appended by byte offset, stored up to a limit, read in chunks. Two limits: that of an attempt, and
//! the account's quota. Output beyond them is only counted, so that no runner waits and no task fails because of them.

use std::sync::Arc;

use ensemble_store_kit::{Conn, Db, Quota, Reserved, StoreError};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;

use super::topics::output;
use super::{LeaseReports, RunningReport};
use crate::config::Limits;
use crate::domain::LeaseCall;
use crate::error::Error;
use crate::store::outputs::{self, OutputState};
use crate::store::runs;

/// The result of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Where the next piece starts.
    pub(crate) next_offset: u64,
    /// Some output was not stored.
    pub(crate) truncated: bool,
}

/// An attempt whose output is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// `None` before the first attempt.
    pub(crate) lease: Option<LeaseId>,
    pub(crate) number: u32,
    /// Bytes that are stored.
    pub(crate) stored: u64,
    /// The output will not grow any more.
    pub(crate) is_over: bool,
}

/// Pieces that are read at once.
const PIECES: i64 = 64;
/// Bytes of output that a reader gets at once. A reader that takes nothing costs about twice as much.
const STEP: i32 = 32 << 10;

/// What a piece counts for the account's quota in addition to its length: about as much as its row and its index entry take.
const PIECE_BYTES: i64 = 128;

/// Appends a piece of output. `offset` counts the bytes since the start of the attempt.
pub(crate) async fn append(
    db: &Db,
    limits: &Limits,
    quota: &Quota,
    reports: &LeaseReports,
    call: LeaseCall,
    offset: u64,
    data: Arc<str>,
) -> Result<Appended, Error> {
    if let Some(appended) = append_to_running(db, limits, quota, call.clone(), offset, data.clone()).await? {
        return Ok(appended);
    }
    reports.running(call.clone(), RunningReport::default()).await?;
    append_to_running(db, limits, quota, call, offset, data).await?.ok_or(Error::LeaseLost)
}

/// `None` when the attempt has not started or has ended.
async fn append_to_running(
    db: &Db,
    limits: &Limits,
    quota: &Quota,
    call: LeaseCall,
    offset: u64,
    data: Arc<str>,
) -> Result<Option<Appended>, Error> {
    let (max_bytes, owner, quota) = (limits.max_output_bytes, call.owner, quota.clone());
    db.write("append output", move |tx| {
        let Some(state) = outputs::lock_running(tx, &call)? else { return Ok(None) };
        let gap = || Error::OutputGap { expected: bytes(state.length) };
        let start = i64::try_from(offset).unwrap_or(i64::MAX);
        if start > state.length {
            return Err(gap());
        }
        let known_bytes = usize::try_from(state.length - start).unwrap_or(usize::MAX);
        if known_bytes >= data.len() {
            return Ok(Some(appended(state)));
        }
        // A repeated piece has the same text. If the overlap ends inside a character, it is another text.
        let fresh = data.get(known_bytes..).ok_or_else(gap)?.as_bytes();
        let mut end = OutputEnd::of_attempt(state, max_bytes);
        let mut reserved = Reserved::default();
        if !state.truncated {
            let wanted = count(fresh).saturating_add(PIECE_BYTES);
            reserved = quota.reserve_up_to(owner, wanted, || runs::stored_bytes(tx, owner))?;
            end = end.or_quota(reserved.amount().saturating_sub(PIECE_BYTES), quota.limit());
        }
        let after = store(tx, (owner, call.lease), state, fresh, end)?;
        reserved.set(after.counted_bytes - state.counted_bytes);
        tx.hold(reserved);
        tx.notify(output(call.lease));
        Ok(Some(appended(after)))
    })
    .await
}

/// Where the stored output of an attempt ends.
#[derive(Clone, Copy, Debug)]
struct OutputEnd {
    /// Bytes that can still be stored.
    room: i64,
    /// The limit that is reached then.
    limit: i64,
    is_quota: bool,
}

impl OutputEnd {
    fn of_attempt(state: OutputState, limit: i64) -> Self {
        Self { room: limit.saturating_sub(state.stored), limit, is_quota: false }
    }

    /// Earlier, if the account's quota leaves less room.
    fn or_quota(self, room: i64, limit: i64) -> Self {
        if room < self.room { Self { room, limit, is_quota: true } } else { self }
    }

    /// The line after the last byte that is stored.
    fn note(self) -> String {
        let limit = self.limit;
        if self.is_quota {
            format!("\n[output truncated: the runs of this account take all of their quota of {limit} bytes]\n")
        } else {
            format!("\n[output truncated after {limit} bytes]\n")
        }
    }
}

fn appended(state: OutputState) -> Appended {
    Appended { next_offset: bytes(state.length), truncated: state.truncated }
}

fn bytes(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

fn count(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}

/// Stores output up to its end, and a note where it was truncated.
fn store(
    tx: &mut Conn,
    (owner, lease): (UserId, LeaseId),
    state: OutputState,
    fresh: &[u8],
    end: OutputEnd,
) -> Result<OutputState, StoreError> {
    let mut after = OutputState { length: state.length + count(fresh), ..state };
    if !state.truncated {
        let room = usize::try_from(end.room.max(0)).unwrap_or(usize::MAX);
        let mut kept = fresh.get(..whole_characters(fresh, room)).unwrap_or(fresh).to_vec();
        if kept.len() < fresh.len() {
            after.truncated = true;
            kept.extend_from_slice(end.note().as_bytes());
        }
        after.stored += count(&kept);
        after.counted_bytes += count(&kept) + PIECE_BYTES;
        outputs::insert_chunk(tx, owner, lease, state.stored, &kept)?;
    }
    outputs::save_state(tx, lease, after)?;
    Ok(after)
}

/// At most `room` bytes, without splitting a UTF-8 character.
fn whole_characters(bytes: &[u8], room: usize) -> usize {
    let mut end = room.min(bytes.len());
    while end > 0 && end < bytes.len() && bytes.get(end).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
        end -= 1;
    }
    end
}

/// The attempt with this number, or the latest one.
///
/// # Errors
/// The account has no such task, or the task has no such attempt.
pub(crate) async fn attempt(
    db: &Db,
    owner: UserId,
    run: RunId,
    task: TaskId,
    number: Option<u32>,
) -> Result<Attempt, Error> {
    db.read("find an attempt", move |c| {
        let (status, latest) = outputs::task(c, owner, run, task)?.ok_or(Error::NotFound)?;
        // An attempt that ended at the provider's limit is not counted: it has the number of the next one.
        let uncounted = latest + i32::from(number.is_none() && status == TaskStatus::Queued);
        let mut wanted = number.map_or(uncounted, |number| i32::try_from(number).unwrap_or(i32::MAX));
        let mut lease = outputs::attempt(c, owner, task, wanted)?;
        if lease.is_none() && number.is_none() && wanted != latest {
            wanted = latest;
            lease = outputs::attempt(c, owner, task, wanted)?;
        }
        // Before the first attempt there is a task without output, unless the request names an attempt.
        let (lease, stored, number, has_ended) = match (lease, number) {
            (Some((lease, stored, has_ended)), _) => (Some(lease), stored, wanted, has_ended),
            (None, None) => (None, 0, 0, false),
            (None, Some(_)) => return Err(Error::NotFound),
        };
        let is_over = status.is_terminal() || (lease.is_some() && number < latest) || has_ended;
        let number = u32::try_from(number).unwrap_or(0);
        Ok(Attempt { lease, number, stored: bytes(stored), is_over })
    })
    .await
}

/// Output of an attempt from this byte on, at most [`STEP`] of it, or nothing at the end of the output.
pub(crate) async fn read(db: &Db, owner: UserId, lease: LeaseId, from: u64) -> Result<Vec<u8>, StoreError> {
    db.read("read output", move |c| {
        let from = i64::try_from(from).unwrap_or(i64::MAX - i64::from(STEP));
        let mut text = Vec::new();
        for (start, data) in outputs::pieces(c, owner, lease, from, (PIECES, STEP))? {
            // What follows a piece that was cut does not join it.
            if start != from.saturating_add(count(&text)) {
                break;
            }
            text.extend_from_slice(&data);
        }
        text.truncate(usize::try_from(STEP).unwrap_or(usize::MAX));
        Ok(text)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_split() {
        assert_eq!(whole_characters("aä".as_bytes(), 2), 1);
        assert_eq!(whole_characters("aä".as_bytes(), 3), 3);
        assert_eq!(whole_characters("aä".as_bytes(), 9), 3);
        assert_eq!(whole_characters("ä".as_bytes(), 1), 0);
    }
}
