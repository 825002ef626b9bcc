//! Appending messages. `domain/message.rs` gives them their numbers. Calls that wait at the same time are committed together, whatever their sessions and senders.
//!
//! A batch is one transaction. It locks the sessions in the order of their ids, decides permissions and numbers from the
//! locked rows, inserts all messages and advances the sessions. The locks are held until the commit, so commits have the
//! order of `seq`, and a reader never sees a smaller `seq` later.
//!
//! A `localId` is rarely used twice, so a batch relies on the unique index first. When the index refuses it, the batch runs
//! again and looks up what its local ids were used for.
//!
//! Messages count for the quota of the session's owner, also those of guests. A call whose messages are all stored already is
//! answered when the quota is used up, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::{BatchConfig, Batcher, Conn, Db, Quota, Reserved, StoreError};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::shares::ShareLevel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::session_topic;
use crate::domain::access::{Access, Actor, Refusal};
use crate::domain::message::{Drafts, Numbered, Numbering};
use crate::error::Error;
use crate::metrics::{AppendMetrics, Queued};
use crate::store;
use crate::store::sessions::{Growth, SessionRow};

/// How much may be queued, and how much is committed together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendLimits {
    /// Queued calls; further ones are refused with 503.
    pub(crate) queue: usize,
    /// Their size together.
    pub(crate) queue_bytes: usize,
    /// Messages in one transaction, unless a single call has more.
    pub(crate) batch_messages: usize,
    /// How long a call waits for its commit.
    pub(crate) timeout: Duration,
}

/// Appends the drafts of all calls through one queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Appender {
    batcher: Batcher<Call, Appended, Error>,
    /// One permit for each [`UNIT`] of queued bytes.
    room: Arc<Semaphore>,
    metrics: AppendMetrics,
}

/// The messages for the drafts of a call, in their order.
pub(crate) struct Appended {
    pub(crate) messages: Vec<Message>,
    /// At least one of them is new.
    pub(crate) created: bool,
}

struct Call {
    session: SessionId,
    sender: Actor,
    drafts: Drafts,
    queued_at: Instant,
    // Held until the call is answered or dropped from the queue, so that a caller that gives up frees no room early.
    _room: OwnedSemaphorePermit,
    _queued: Queued,
}

/// Whether a batch looks up its local ids before it inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalIds {
    AssumeNew,
    LookUp,
}

const UNIT: usize = 1024;
const OPERATION: &str = "append messages";

impl Appender {
    /// Starts the thread that commits.
    pub(crate) fn start(db: &Db, limits: AppendLimits, quota: Quota, metrics: AppendMetrics) -> std::io::Result<Self> {
        let config = BatchConfig {
            name: "append",
            queue: limits.queue,
            max_batch: limits.batch_messages,
            timeout: limits.timeout,
        };
        let batch_metrics = metrics.clone();
        let batcher = Batcher::start(db, config, move |db, mut calls| {
            calls.iter().for_each(|call: &Call| batch_metrics.observe_wait(call.queued_at.elapsed()));
            let mut outcomes = Vec::with_capacity(calls.len());
            while !calls.is_empty() {
                let rest = calls.split_off(fitting(&calls, limits.batch_messages));
                batch_metrics.observe_batch(calls.len(), calls.iter().map(|call| call.drafts.messages.len()).sum());
                outcomes.extend(append_batch(db, &quota, &calls));
                calls = rest;
            }
            outcomes
        })?;
        let room = Arc::new(Semaphore::new(limits.queue_bytes.div_ceil(UNIT)));
        Ok(Self { batcher, room, metrics })
    }

    /// Appends all of the drafts or none. Returns after the commit.
    pub(crate) async fn append(&self, session: SessionId, sender: Actor, drafts: Drafts) -> Result<Appended, Error> {
        let size = u32::try_from(drafts.bytes().div_ceil(UNIT)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(size) else {
            self.metrics.count_unavailable();
            return Err(Error::Overloaded);
        };
        let queued = self.metrics.track_queued();
        let call = Call { session, sender, drafts, queued_at: Instant::now(), _room: room, _queued: queued };
        let appended = self.batcher.submit(call).await;
        if let Err(Error::Store(StoreError::Unavailable { .. })) = appended {
            self.metrics.count_unavailable();
        }
        appended
    }
}

/// How many of the calls are committed together: at least one, and no more messages than `limit` otherwise.
fn fitting(calls: &[Call], limit: usize) -> usize {
    let mut messages = 0;
    let fits = calls.iter().take_while(|call| {
        messages += call.drafts.messages.len();
        messages <= limit
    });
    fits.count().max(1)
}

fn append_batch(db: &Db, quota: &Quota, calls: &[Call]) -> Vec<Result<Appended, Error>> {
    let mut outcomes = append_in_transaction(db, quota, calls, LocalIds::AssumeNew);
    if let Err(StoreError::Duplicate { .. }) = outcomes {
        outcomes = append_in_transaction(db, quota, calls, LocalIds::LookUp);
    }
    match outcomes {
        Ok(outcomes) => outcomes,
        // A row that cannot be read must not fail the other calls of the batch.
        Err(StoreError::Broken { .. }) if calls.len() > 1 => {
            calls.chunks(1).flat_map(|call| append_batch(db, quota, call)).collect()
        }
        Err(error) => calls.iter().map(|_| Err(error.clone().into())).collect(),
    }
}

fn append_in_transaction(
    db: &Db,
    quota: &Quota,
    calls: &[Call],
    local_ids: LocalIds,
) -> Result<Vec<Result<Appended, Error>>, StoreError> {
    let outcomes = db.write_blocking(OPERATION, |tx| append_all(tx, quota, calls, local_ids))?;
    let appended = |Numbered { messages, created, .. }| {
        let messages = messages.into_iter().map(Arc::unwrap_or_clone).collect();
        Appended { messages, created }
    };
    Ok(outcomes.into_iter().map(|outcome| outcome.map(appended)).collect())
}

/// What became of each call.
type Outcomes = Vec<Result<Numbered, Error>>;

fn append_all(tx: &mut Conn, quota: &Quota, calls: &[Call], local_ids: LocalIds) -> Result<Outcomes, StoreError> {
    let ids: BTreeSet<SessionId> = calls.iter().map(|call| call.session).collect();
    let (locked, now) = store::sessions::lock_all(tx, ids)?;
    let Some(now) = now else { return Ok(calls.iter().map(|_| Err(Refusal::NotFound.into())).collect()) };
    let sessions: HashMap<SessionId, SessionRow> = locked.into_iter().map(|row| (row.id, row)).collect();
    // Shares are read under the locks: a revoke is either visible here or waits for this commit.
    let levels = store::shares::levels(tx, &guests(calls, &sessions))?;
    let mut numbering = Numbering::new(now, sessions.values().map(|row| (row.id, row.last_seq)).collect());
    if local_ids == LocalIds::LookUp {
        add_stored(tx, calls, &mut numbering)?;
    }
    let mut outcomes = Vec::with_capacity(calls.len());
    for call in calls {
        let Some(row) = sessions.get(&call.session) else {
            outcomes.push(Err(Refusal::NotFound.into()));
            continue;
        };
        let level = levels.get(&(call.session, call.sender.user)).copied();
        match number(tx, quota, call, (row, level), &mut numbering) {
            Err(Error::Store(error)) => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    let added = numbering.into_added();
    if !added.is_empty() {
        let mut grown: BTreeMap<SessionId, Growth> = BTreeMap::new();
        for (session, message) in &added {
            let growth = grown.entry(*session).or_default();
            growth.last_seq = growth.last_seq.max(message.seq);
            growth.content_bytes += i64::try_from(message.content.len()).unwrap_or(i64::MAX);
        }
        store::messages::insert(tx, &added)?;
        store::sessions::advance(tx, &grown, now)?;
        grown.into_keys().for_each(|session| tx.notify(session_topic(session)));
    }
    Ok(outcomes)
}

/// Numbers the drafts of one call, if the sender may append and they fit into the owner's quota.
fn number(
    tx: &mut Conn,
    quota: &Quota,
    call: &Call,
    (row, level): (&SessionRow, Option<ShareLevel>),
    numbering: &mut Numbering,
) -> Result<Numbered, Error> {
    let access = Access::of(row.ownership(), &call.sender, level)?;
    let can_edit = access.edit()?;
    call.drafts.check_epochs(row.hosted, row.key_epoch)?;
    let mut reserved = reserve(tx, quota, call, row.owner_id, numbering)?;
    let numbered = numbering.number(can_edit, call.session, &call.sender, &call.drafts.messages);
    reserved.set(numbered.counted_bytes);
    tx.hold(reserved);
    Ok(numbered)
}

/// Reserves what the messages of a call take. Fails when the new ones do not fit into what the owner's quota leaves.
fn reserve(
    tx: &mut Conn,
    quota: &Quota,
    call: &Call,
    owner: UserId,
    numbering: &mut Numbering,
) -> Result<Reserved, Error> {
    let load = || store::sessions::message_bytes(tx, owner);
    if let Ok(reserved) = quota.reserve(owner, call.drafts.counted_bytes(), load)? {
        return Ok(reserved);
    }
    // Some of the messages may be stored already, and those take nothing.
    add_stored(tx, std::slice::from_ref(call), numbering)?;
    let new = numbering.counted_bytes(call.session, &call.sender, &call.drafts.messages);
    Ok(quota.reserve(owner, new, || store::sessions::message_bytes(tx, owner))??)
}

/// The senders who need a share, since they do not own the session.
fn guests(calls: &[Call], sessions: &HashMap<SessionId, SessionRow>) -> Vec<(SessionId, UserId)> {
    let is_guest = |call: &&Call| sessions.get(&call.session).is_some_and(|row| row.owner_id != call.sender.user);
    calls.iter().filter(is_guest).map(|call| (call.session, call.sender.user)).collect()
}

/// Adds the messages for which these senders used the calls' local ids before.
fn add_stored(tx: &mut Conn, calls: &[Call], numbering: &mut Numbering) -> Result<(), StoreError> {
    let mut local_ids: BTreeMap<(SessionId, &Actor), Vec<&str>> = BTreeMap::new();
    for call in calls {
        let of_call = call.drafts.messages.iter().map(|draft| draft.local_id.as_str());
        local_ids.entry((call.session, &call.sender)).or_default().extend(of_call);
    }
    for ((session, sender), local_ids) in local_ids {
        for message in store::messages::find_by_local_ids(tx, session, sender, &local_ids)? {
            numbering.add_stored(session, message);
        }
    }
    Ok(())
}
