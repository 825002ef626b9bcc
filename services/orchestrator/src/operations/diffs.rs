//! The diff of a task's last attempt: sent in parts by the runner before it reports the end, read by the owner. Two limits:
//! that of a diff, and the account's quota. What is beyond them is dropped, so that no runner waits and no task fails.

use std::sync::Arc;

use ensemble_store_kit::{Conn, Db, Quota, StoreError};
use ensemble_types::ids::{RunId, TaskId, UserId};

use super::{LeaseReports, RunningReport};
use crate::domain::LeaseCall;
use crate::error::Error;
use crate::store::diffs::{self, DiffEnd};
use crate::store::{leases, runs};

/// What is stored of a diff.
const MOST_BYTES: i64 = 8 << 20;
/// What a part counts in addition to its text: about as much as its row and its index entry take.
const PART_BYTES: i64 = 128;

/// Stores a part of the diff of a running attempt. A part of an older attempt is replaced with the first part of a newer one.
/// Returns whether the stored diff is not complete.
pub(crate) async fn put(
    db: &Db,
    quota: &Quota,
    reports: &LeaseReports,
    call: LeaseCall,
    path: String,
    data: Arc<str>,
) -> Result<bool, Error> {
    let (first, part) = (call.clone(), (path.clone(), data.clone()));
    if let Some(truncated) = put_running(db, quota, first, part).await? {
        return Ok(truncated);
    }
    reports.running(call.clone(), RunningReport::default()).await?;
    put_running(db, quota, call, (path, data)).await?.ok_or(Error::LeaseLost)
}

/// `None` when the attempt has not started or has ended.
async fn put_running(
    db: &Db,
    quota: &Quota,
    call: LeaseCall,
    (path, data): (String, Arc<str>),
) -> Result<Option<bool>, Error> {
    let quota = quota.clone();
    db.write("store a part of a diff", move |tx| {
        let Some(run) = leases::run_of(tx, call.lease)? else { return Ok(None) };
        // The run is locked before the lease, as everywhere.
        let Some(run) = runs::lock(tx, run)? else { return Ok(None) };
        let Some(lease) = leases::lock_running(tx, &call)? else { return Ok(None) };
        let (owner, task) = (run.owner, lease.task);
        let mut end = diffs::end(tx, owner, task)?.unwrap_or_default();
        let before = end.stored_bytes;
        if end.fence != call.attempt() {
            diffs::clear(tx, owner, task)?;
            end = DiffEnd { fence: call.attempt(), ..DiffEnd::default() };
        }
        let replaced = diffs::part_length(tx, owner, task, &path)?.map_or(0, |length| length + PART_BYTES);
        let wanted = i64::try_from(data.len()).unwrap_or(i64::MAX).saturating_add(PART_BYTES);
        let more = wanted - replaced - (before - end.stored_bytes);
        let mut reserved = quota.reserve_up_to(owner, more.max(0), || runs::stored_bytes(tx, owner))?;
        let fits = end.stored_bytes - replaced + wanted <= MOST_BYTES && (more <= 0 || reserved.amount() >= more);
        if fits {
            diffs::put_part(tx, owner, task, &path, &data)?;
            end.stored_bytes += wanted - replaced;
        } else {
            end.truncated = true;
        }
        diffs::set_end(tx, owner, task, end)?;
        diffs::count(tx, run.id, end.stored_bytes - before)?;
        reserved.set(end.stored_bytes - before);
        tx.hold(reserved);
        Ok::<_, Error>(Some(end.truncated))
    })
    .await
}

/// Whether the account has this task.
pub(crate) async fn find(db: &Db, owner: UserId, run: RunId, task: TaskId) -> Result<(), Error> {
    let found = db.read("find a task", move |c: &mut Conn| diffs::has_task(c, owner, run, task)).await?;
    if found { Ok(()) } else { Err(Error::NotFound) }
}

/// The piece of a diff after this one, with its own path and position.
pub(crate) async fn next(
    db: &Db,
    owner: UserId,
    task: TaskId,
    after: Option<(String, i32)>,
) -> Result<Option<(String, i32, String)>, StoreError> {
    db.read("read a diff", move |c| diffs::next_piece(c, owner, task, after.as_ref())).await
}
