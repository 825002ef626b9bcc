//! Appending messages. `domain/message.rs` gives them their numbers. Calls that wait at the same time are committed together, whatever their sessions and senders.
//!
//! A batch is one transaction. It locks the sessions in the order of their ids, decides permissions and numbers from the
//! locked rows, inserts all messages and advances the sessions. The locks are held until the commit, so commits have the
//! order of `seq`, and a reader never sees a smaller `seq` later.
//!
//! A `localId` is rarely used twice, so a batch relies on the unique index first. When the index refuses it, the batch runs
//! again and looks up what its local ids were used for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::{BatchConfig, Batcher, Conn, Db, StoreError};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::session_topic;
use crate::domain::access::{Access, Refusal};
use crate::domain::message::{Drafts, Numbered, Numbering};
use crate::error::Error;
use crate::metrics::{AppendMetrics, Queued};
use crate::store;
use crate::store::sessions::SessionRow;

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
    sender: UserId,
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
    pub(crate) fn start(db: &Db, limits: AppendLimits, metrics: AppendMetrics) -> std::io::Result<Self> {
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
                outcomes.extend(append_batch(db, &calls));
                calls = rest;
            }
            outcomes
        })?;
        let room = Arc::new(Semaphore::new(limits.queue_bytes.div_ceil(UNIT)));
        Ok(Self { batcher, room, metrics })
    }

    /// Appends all of the drafts or none. Returns after the commit.
    pub(crate) async fn append(&self, session: SessionId, sender: UserId, drafts: Drafts) -> Result<Appended, Error> {
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

fn append_batch(db: &Db, calls: &[Call]) -> Vec<Result<Appended, Error>> {
    let mut outcomes = append_in_transaction(db, calls, LocalIds::AssumeNew);
    if let Err(StoreError::Duplicate { .. }) = outcomes {
        outcomes = append_in_transaction(db, calls, LocalIds::LookUp);
    }
    match outcomes {
        Ok(outcomes) => outcomes.into_iter().map(|outcome| outcome.map_err(Error::from)).collect(),
        // A row that cannot be read must not fail the other calls of the batch.
        Err(StoreError::Broken { .. }) if calls.len() > 1 => {
            calls.chunks(1).flat_map(|call| append_batch(db, call)).collect()
        }
        Err(error) => calls.iter().map(|_| Err(error.clone().into())).collect(),
    }
}

fn append_in_transaction(
    db: &Db,
    calls: &[Call],
    local_ids: LocalIds,
) -> Result<Vec<Result<Appended, Refusal>>, StoreError> {
    let outcomes = db.write_blocking(OPERATION, |tx| append_all(tx, calls, local_ids))?;
    let appended = |Numbered { messages, created }| {
        let messages = messages.into_iter().map(Arc::unwrap_or_clone).collect();
        Appended { messages, created }
    };
    Ok(outcomes.into_iter().map(|outcome| outcome.map(appended)).collect())
}

fn append_all(
    tx: &mut Conn,
    calls: &[Call],
    local_ids: LocalIds,
) -> Result<Vec<Result<Numbered, Refusal>>, StoreError> {
    let ids: BTreeSet<SessionId> = calls.iter().map(|call| call.session).collect();
    let locked = store::sessions::lock_all(tx, ids)?;
    let sessions: HashMap<SessionId, SessionRow> = locked.into_iter().map(|row| (row.id, row)).collect();
    // Shares and the time are read under the locks: a revoke is either visible here or waits for this commit.
    let levels = store::shares::levels(tx, &guests(calls, &sessions))?;
    let now = tx.now()?;
    let mut numbering = Numbering::new(now, sessions.values().map(|row| (row.id, row.last_seq)).collect());
    if local_ids == LocalIds::LookUp {
        add_stored(tx, calls, &mut numbering)?;
    }
    let mut outcomes = Vec::with_capacity(calls.len());
    for Call { session, sender, drafts, .. } in calls {
        let level = levels.get(&(*session, *sender)).copied();
        let access = match sessions.get(session) {
            Some(row) => Access::of(row.owner_id, *sender, level),
            None => Err(Refusal::NotFound),
        };
        let numbered =
            access.and_then(|access| Ok(numbering.number(access.edit()?, *session, *sender, &drafts.messages)));
        outcomes.push(numbered);
    }
    let added = numbering.into_added();
    if !added.is_empty() {
        let grown: BTreeSet<SessionId> = added.iter().map(|(session, _)| *session).collect();
        store::messages::insert(tx, &added)?;
        store::sessions::advance(tx, &grown, now)?;
        grown.into_iter().for_each(|session| tx.notify(session_topic(session)));
    }
    Ok(outcomes)
}

/// The senders who need a share, since they do not own the session.
fn guests(calls: &[Call], sessions: &HashMap<SessionId, SessionRow>) -> Vec<(SessionId, UserId)> {
    let is_guest = |call: &&Call| sessions.get(&call.session).is_some_and(|row| row.owner_id != call.sender);
    calls.iter().filter(is_guest).map(|call| (call.session, call.sender)).collect()
}

/// Adds the messages for which these senders used the calls' local ids before.
fn add_stored(tx: &mut Conn, calls: &[Call], numbering: &mut Numbering) -> Result<(), StoreError> {
    let mut local_ids: BTreeMap<(SessionId, UserId), Vec<&str>> = BTreeMap::new();
    for call in calls {
        let of_call = call.drafts.messages.iter().map(|draft| draft.local_id.as_str());
        local_ids.entry((call.session, call.sender)).or_default().extend(of_call);
    }
    for ((session, sender), local_ids) in local_ids {
        for message in store::messages::find_by_local_ids(tx, session, sender, &local_ids)? {
            numbering.add_stored(session, message);
        }
    }
    Ok(())
}
