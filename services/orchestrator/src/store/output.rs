//! The output of attempts: appended by byte offset, kept up to a cap, read in pieces.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Bool, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};

use super::calls::LeaseCall;
use super::held::task_status;
use super::sql::{Sql, sql, two_sqls, values};
use super::{Store, output};
use crate::error::Error;

/// What became of a piece of output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Where the next piece begins.
    pub(crate) next_offset: u64,
    /// Not everything was kept.
    pub(crate) truncated: bool,
}

/// An attempt whose output is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Nothing before the first attempt.
    pub(crate) lease: Option<LeaseId>,
    pub(crate) number: u32,
    /// Bytes that are kept.
    pub(crate) stored: u64,
    /// Nothing will be added any more.
    pub(crate) over: bool,
}

/// Pieces of output read at once; each is at most 1 MiB.
const PIECES: i64 = 4;

struct Place {
    length: i64,
    stored: i64,
    cut: bool,
}

impl Store {
    /// Appends a piece of output that begins at `offset` bytes since the attempt's start.
    pub(crate) async fn append(&self, call: LeaseCall, offset: u64, data: Arc<str>) -> Result<Appended, Error> {
        if let Some(appended) = self.append_to_running(call.clone(), offset, data.clone()).await? {
            return Ok(appended);
        }
        self.begin(call.clone()).await?;
        self.append_to_running(call, offset, data).await?.ok_or(Error::LeaseLost)
    }

    /// Nothing when the attempt is not known to run.
    async fn append_to_running(&self, call: LeaseCall, offset: u64, data: Arc<str>) -> Result<Option<Appended>, Error> {
        let cap = self.terms.output_cap;
        self.db
            .write("append output", move |tx| {
                let Some(place) = running(tx, &call)? else { return Ok(None) };
                let offset = i64::try_from(offset).unwrap_or(i64::MAX);
                if offset > place.length {
                    return Err(Error::Gap { expected: u64::try_from(place.length).unwrap_or(0) });
                }
                let known = usize::try_from(place.length - offset).unwrap_or(usize::MAX);
                if known >= data.len() {
                    return Ok(Some(place.appended()));
                }
                // What overlaps is the same text again; one that would end within a character is another one.
                let Some(fresh) = data.get(known..).map(str::as_bytes) else {
                    return Err(Error::Gap { expected: u64::try_from(place.length).unwrap_or(0) });
                };
                let after = store(tx, &call, &place, fresh, cap)?;
                tx.notify(output(call.lease));
                Ok(Some(after.appended()))
            })
            .await
    }

    /// The attempt with this number, or the latest. Nothing when there is no such task or attempt.
    pub(crate) async fn attempt(
        &self,
        owner: UserId,
        run: RunId,
        task: TaskId,
        number: Option<u32>,
    ) -> Result<Attempt, Error> {
        self.db
            .read("find an attempt", move |c| {
                let wanted = number.map(|number| i32::try_from(number).unwrap_or(i32::MAX));
                type Types = (Text, Integer, Nullable<Uid>, Nullable<Integer>, Nullable<BigInt>, Nullable<Moment>);
                type Row =
                    (String, i32, Option<LeaseId>, Option<i32>, Option<i64>, Option<ensemble_types::time::Timestamp>);
                let query: Sql<Types> = two_sqls(
                    "SELECT t.status, t.attempt, l.id, l.attempt, l.output_stored, l.ended_at FROM tasks t LEFT JOIN leases l \
                     ON l.task_id = t.id AND l.attempt = COALESCE({}::integer, t.attempt) \
                     WHERE t.id = {} AND t.run_id = {} AND t.owner_id = {}",
                    "SELECT t.status, t.attempt, l.id, l.attempt, l.output_stored, l.ended_at FROM tasks t LEFT JOIN leases l \
                     ON l.task_id = t.id AND l.attempt = COALESCE({}, t.attempt) \
                     WHERE t.id = {} AND t.run_id = {} AND t.owner_id = {}",
                    values![wanted, task, run, owner],
                );
                let row: Option<Row> = on!(c, |c| query.get_result(c).optional())?;
                let (status, latest, lease, attempt, stored, _) = row.ok_or(Error::NotFound)?;
                if lease.is_none() && number.is_some() {
                    return Err(Error::NotFound);
                }
                let over = task_status(&status, c.operation())?.is_terminal()
                    || attempt.is_some_and(|attempt| attempt < latest);
                Ok(Attempt {
                    lease,
                    number: u32::try_from(attempt.unwrap_or(0)).unwrap_or(0),
                    stored: stored.and_then(|stored| u64::try_from(stored).ok()).unwrap_or(0),
                    over,
                })
            })
            .await
    }

    /// A part of an attempt's output from this byte on; empty when there is no more.
    pub(crate) async fn read_output(&self, lease: LeaseId, from: u64) -> Result<Vec<u8>, StoreError> {
        self.db
            .read("read output", move |c| {
                let from = i64::try_from(from).unwrap_or(i64::MAX);
                let query: Sql<(BigInt, Binary)> = sql(
                    "SELECT start_at, data FROM output_chunks WHERE lease_id = {} AND start_at >= COALESCE(( \
                     SELECT MAX(start_at) FROM output_chunks WHERE lease_id = {} AND start_at <= {}), 0) \
                     ORDER BY start_at LIMIT {}",
                    values![lease, lease, from, PIECES],
                );
                let pieces: Vec<(i64, Vec<u8>)> = on!(c, |c| query.load(c))?;
                let mut bytes = Vec::new();
                for (start, data) in pieces {
                    let skip = usize::try_from(from.saturating_sub(start).max(0)).unwrap_or(usize::MAX);
                    bytes.extend_from_slice(data.get(skip..).unwrap_or(&[]));
                }
                Ok(bytes)
            })
            .await
    }
}

impl Place {
    fn appended(&self) -> Appended {
        Appended { next_offset: u64::try_from(self.length).unwrap_or(0), truncated: self.cut }
    }
}

/// Locks the lease of an attempt that is known to run. Nothing else of the run is touched.
fn running(tx: &mut Conn, call: &LeaseCall) -> Result<Option<Place>, StoreError> {
    macro_rules! query {
        ($lock:literal) => {
            concat!(
                "SELECT output_length, output_stored, output_cut FROM leases WHERE id = {} AND owner_id = {} \
                 AND machine_id = {} AND attempt = {} AND ended_at IS NULL AND timeout_at IS NOT NULL",
                $lock
            )
        };
    }
    let query: Sql<(BigInt, BigInt, Bool)> =
        two_sqls(query!(" FOR UPDATE"), query!(""), values![call.lease, call.owner, call.machine.as_str(), call.fence]);
    let found: Option<(i64, i64, bool)> = on!(tx, |c| query.get_result(c).optional())?;
    Ok(found.map(|(length, stored, cut)| Place { length, stored, cut }))
}

/// Keeps what the cap leaves room for, and marks the place where it was cut.
fn store(tx: &mut Conn, call: &LeaseCall, place: &Place, fresh: &[u8], cap: i64) -> Result<Place, StoreError> {
    let count = |bytes: &[u8]| i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let mut after = Place { length: place.length + count(fresh), stored: place.stored, cut: place.cut };
    if !place.cut {
        let room = usize::try_from(cap.saturating_sub(place.stored).max(0)).unwrap_or(usize::MAX);
        let mut kept = fresh.get(..whole_characters(fresh, room)).unwrap_or(fresh).to_vec();
        if kept.len() < fresh.len() {
            after.cut = true;
            kept.extend_from_slice(format!("\n[output truncated after {cap} bytes]\n").as_bytes());
        }
        after.stored += count(&kept);
        let chunk: Sql<()> = sql(
            "INSERT INTO output_chunks (lease_id, start_at, data) VALUES ({}, {}, {})",
            values![call.lease, place.stored, kept],
        );
        on!(tx, |c| chunk.execute(c))?;
    }
    let update: Sql<()> = sql(
        "UPDATE leases SET output_length = {}, output_stored = {}, output_cut = {} WHERE id = {}",
        values![after.length, after.stored, after.cut, call.lease],
    );
    on!(tx, |c| update.execute(c))?;
    Ok(after)
}

/// At most `room` bytes, without cutting a character of UTF-8 in two.
fn whole_characters(bytes: &[u8], room: usize) -> usize {
    let mut end = room.min(bytes.len());
    while end > 0 && end < bytes.len() && bytes.get(end).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        assert_eq!(whole_characters("aä".as_bytes(), 2), 1);
        assert_eq!(whole_characters("aä".as_bytes(), 3), 3);
        assert_eq!(whole_characters("aä".as_bytes(), 9), 3);
        assert_eq!(whole_characters("ä".as_bytes(), 1), 0);
    }
}
