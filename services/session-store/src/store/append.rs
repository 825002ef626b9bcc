//! Appending messages, many at once: whatever is waiting is committed together, whoever sent it and to whichever session.
//!
//! One writer takes what has queued up while the last commit was on its way; when nothing has, a message goes at once, so
//! nobody waits for company. In the transaction the sessions are locked in the order of their ids; permission, `localId`
//! and `seq` are decided under those locks; the rows go in as one statement; the answers come after the commit. The locks
//! are held to the commit, so commits have the order of `seq`, and a reader never meets a smaller one later.

mod transaction;

use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::time::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::domain::access::Refusal;
use crate::domain::draft::Drafts;
use crate::error::Error;
use crate::metrics::AppendMetrics;

/// How much may wait, and how much goes into one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendLimits {
    /// Calls that wait; beyond it they are refused with 503.
    pub(crate) queue: usize,
    /// What they may weigh together.
    pub(crate) queue_bytes: usize,
    pub(crate) batch_rows: usize,
    pub(crate) batch_bytes: usize,
    /// A call that has waited so long is refused instead of tried.
    pub(crate) patience: Duration,
}

/// The way to the writer. Cheap to clone; the writer ends with the last of them.
#[derive(Clone)]
pub(crate) struct Appender {
    queue: mpsc::Sender<Waiting>,
    /// In units of [`UNIT`] bytes.
    room: Arc<Semaphore>,
    metrics: AppendMetrics,
}

/// What became of the drafts of a call, in their order.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) messages: Vec<Stored>,
}

/// What became of one draft.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    New {
        id: MessageId,
        seq: i64,
        created_at: Timestamp,
    },
    /// The sender used this `localId` before, and this is what it was used for.
    Before(Box<Message>),
}

/// One call.
struct Job {
    session: SessionId,
    sender: UserId,
    drafts: Arc<Drafts>,
}

struct Waiting {
    job: Job,
    since: Instant,
    /// The request that asked.
    span: Span,
    answer: oneshot::Sender<Result<Appended, Error>>,
    _room: OwnedSemaphorePermit,
}

type Outcome = Result<Appended, Refusal>;

const UNIT: usize = 1024;

impl Appender {
    /// Starts the writer on the present runtime.
    pub(crate) fn start(db: Db, limits: AppendLimits, metrics: AppendMetrics) -> Self {
        let (queue, waiting) = mpsc::channel(limits.queue);
        let room = Arc::new(Semaphore::new(limits.queue_bytes.div_ceil(UNIT)));
        tokio::spawn(write(db, waiting, limits, metrics.clone()));
        Self { queue, room, metrics }
    }

    /// Appends all of `drafts` or nothing. Answers after the commit.
    pub(crate) async fn append(
        &self,
        session: SessionId,
        sender: UserId,
        drafts: Arc<Drafts>,
    ) -> Result<Appended, Error> {
        let weight = u32::try_from(drafts.bytes().div_ceil(UNIT)).unwrap_or(u32::MAX);
        let overloaded = || {
            self.metrics.refused();
            Error::Overloaded
        };
        let room = Arc::clone(&self.room).try_acquire_many_owned(weight).map_err(|_| overloaded())?;
        let (answer, answered) = oneshot::channel();
        let (job, span) = (Job { session, sender, drafts }, Span::current());
        let waiting = Waiting { job, since: Instant::now(), span, answer, _room: room };
        let place = self.queue.try_reserve().map_err(|_| overloaded())?;
        self.metrics.queued();
        place.send(waiting);
        answered.await.unwrap_or(Err(Error::Overloaded))
    }
}

async fn write(db: Db, mut queue: mpsc::Receiver<Waiting>, limits: AppendLimits, metrics: AppendMetrics) {
    while let Some(first) = queue.recv().await {
        let (mut rows, mut bytes) = (first.job.drafts.messages.len(), first.job.drafts.bytes());
        let mut batch = vec![first];
        while rows < limits.batch_rows && bytes < limits.batch_bytes {
            let Ok(next) = queue.try_recv() else { break };
            rows += next.job.drafts.messages.len();
            bytes += next.job.drafts.bytes();
            batch.push(next);
        }
        metrics.batch(batch.len(), rows);
        batch.iter().for_each(|waiting| metrics.taken(waiting.since.elapsed()));
        let span = span_of(&batch);
        commit(&db, batch, limits.patience).instrument(span).await;
    }
}

/// What is committed together belongs to the trace of the first and points to those of the others.
fn span_of(batch: &[Waiting]) -> Span {
    let Some((first, others)) = batch.split_first() else { return Span::none() };
    let span = tracing::debug_span!(parent: &first.span, "append", batch = batch.len());
    for other in others {
        span.follows_from(&other.span);
    }
    span
}

async fn commit(db: &Db, batch: Vec<Waiting>, patience: Duration) {
    let mut jobs = Vec::with_capacity(batch.len());
    let mut answers = Vec::with_capacity(batch.len());
    for Waiting { job, since, answer, _room, .. } in batch {
        if since.elapsed() > patience {
            let _ = answer.send(Err(Error::Overloaded));
        } else if !answer.is_closed() {
            jobs.push(job);
            answers.push((answer, _room));
        }
    }
    let jobs = Arc::new(jobs);
    match commit_together(db, &jobs).await {
        Ok(outcomes) => {
            for ((answer, _room), outcome) in answers.into_iter().zip(outcomes) {
                let _ = answer.send(outcome.map_err(Error::from));
            }
        }
        // A mistake in one must not take the others with it.
        Err(StoreError::Broken { .. }) if jobs.len() > 1 => {
            for ((answer, _room), job) in answers.into_iter().zip(Arc::try_unwrap(jobs).unwrap_or_default()) {
                let alone = commit_together(db, &Arc::new(vec![job])).await;
                let _ = answer.send(match alone.map(|mut outcomes| outcomes.pop()) {
                    Ok(Some(outcome)) => outcome.map_err(Error::from),
                    Ok(None) => Err(Error::Overloaded),
                    Err(error) => Err(error.into()),
                });
            }
        }
        Err(error) => {
            for (answer, _room) in answers {
                let _ = answer.send(Err(again(&error).into()));
            }
        }
    }
}

/// First as if no `localId` had been used before, which the unique index checks at no cost; and when one had, with care.
async fn commit_together(db: &Db, jobs: &Arc<Vec<Job>>) -> Result<Vec<Outcome>, StoreError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let hopeful = Arc::clone(jobs);
    match db.write("append messages", move |tx| transaction::run(tx, &hopeful, false)).await {
        Err(StoreError::Duplicate { .. }) => {
            let careful = Arc::clone(jobs);
            db.write("append messages again", move |tx| transaction::run(tx, &careful, true)).await
        }
        outcome => outcome,
    }
}

/// The same failure for each of those that it hit.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { operation, reason } => StoreError::Unavailable { operation, reason: reason.clone() },
        StoreError::Busy { operation } => {
            StoreError::Unavailable { operation, reason: "another transaction is in the way".to_owned() }
        }
        other => StoreError::bad_row("append messages", other.to_string()),
    }
}
