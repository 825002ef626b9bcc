//! Appending messages, many at once: whatever is waiting is committed together, whoever sent it and to whichever session.
//!
//! One writer takes what has queued up while the last commit was on its way; when nothing has, a message goes at once, so
//! nobody waits for company. (Two writers, each with half of the sessions, were slower: their batches are half as large, and
//! what a batch costs by itself weighs more than the wait for the disk that they fill.) The sessions are locked in the order
//! of their ids; permission, `localId` and `seq` are decided under those locks; the rows go in together; the answers come
//! after the commit. The locks are held to the commit, so commits have the order of `seq`, and a reader never meets a
//! smaller one later.
//!
//! On PostgreSQL what owners append takes one statement that commits itself ([`rows`]): one way to the database and back.
//! Everything else is a transaction of a few ([`transaction`]).

mod rows;
mod transaction;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::time::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tracing::Span;

use self::rows::{Rows, Whose};
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
    pub(crate) timeout: Duration,
}

/// The way to the writer. Cheap to clone; the writer ends with the last of them.
#[derive(Clone)]
pub(crate) struct Appender {
    queue: mpsc::Sender<Waiting>,
    /// In units of [`UNIT`] bytes.
    room: Arc<Semaphore>,
    metrics: AppendMetrics,
    timeout: Duration,
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
const OPERATION: &str = "append messages";
/// A call waits for its turn and then so long for its commit.
const GRACE: Duration = Duration::from_millis(500);

impl Appender {
    /// Starts the writer.
    pub(crate) fn start(db: Db, limits: AppendLimits, metrics: AppendMetrics) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(limits.queue);
        let room = Arc::new(Semaphore::new(limits.queue_bytes.div_ceil(UNIT)));
        let (writer_metrics, timeout) = (metrics.clone(), limits.timeout);
        // A thread of its own: between a call and its commit there is no other that would have to be woken.
        std::thread::Builder::new()
            .name("append".to_owned())
            .spawn(move || write(&db, waiting, limits, &writer_metrics))?;
        Ok(Self { queue, room, metrics, timeout })
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
        // The writer may hang with the database; whether it wrote is not known then.
        match timeout(self.timeout + GRACE, answered).await {
            Ok(answer) => answer.unwrap_or(Err(Error::Overloaded)),
            Err(_) => {
                let reason = "it did not answer in time".to_owned();
                Err(StoreError::Unavailable { operation: OPERATION, reason }.into())
            }
        }
    }
}

fn write(db: &Db, mut queue: mpsc::Receiver<Waiting>, limits: AppendLimits, metrics: &AppendMetrics) {
    while let Some(first) = queue.blocking_recv() {
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
        span_of(&batch).in_scope(|| commit(db, batch, limits.timeout));
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

fn commit(db: &Db, batch: Vec<Waiting>, timeout: Duration) {
    let mut jobs = Vec::with_capacity(batch.len());
    let mut answers = Vec::with_capacity(batch.len());
    for Waiting { job, since, answer, _room, .. } in batch {
        if since.elapsed() > timeout {
            let _ = answer.send(Err(Error::Overloaded));
        } else if !answer.is_closed() {
            jobs.push(job);
            answers.push((answer, _room));
        }
    }
    // A mistake of ours, found by one call, must not take the others with it nor end the writer.
    let alone_or_together = match caught(|| store(db, &jobs)) {
        Err(StoreError::Broken { .. }) if jobs.len() > 1 => {
            jobs.chunks(1).map(|job| caught(|| store(db, job)).map(|mut outcomes| outcomes.pop())).collect()
        }
        Ok(outcomes) => outcomes.into_iter().map(|outcome| Ok(Some(outcome))).collect(),
        Err(error) => jobs.iter().map(|_| Err(again(&error))).collect::<Vec<_>>(),
    };
    for ((answer, _room), outcome) in answers.into_iter().zip(alone_or_together) {
        let _ = answer.send(match outcome {
            Ok(Some(outcome)) => outcome.map_err(Error::from),
            Ok(None) => Err(StoreError::bad_row(OPERATION, "a call has no outcome").into()),
            Err(error) => Err(error.into()),
        });
    }
}

/// A panic as an error.
fn caught<T>(store: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(store))
        .unwrap_or_else(|_| Err(StoreError::bad_row(OPERATION, "it panicked")))
}

/// First as if no `localId` had been used before, which the unique index checks at no cost; and when one had, with care.
fn store(db: &Db, jobs: &[Job]) -> Result<Vec<Outcome>, StoreError> {
    let all: Vec<&Job> = jobs.iter().collect();
    if repeats_itself(&all) {
        return careful(db, &all);
    }
    let quick = match db.write_blocking(OPERATION, |c| of_owners(c, &all)) {
        Err(StoreError::Duplicate { .. }) => return careful(db, &all),
        quick => quick?,
    };
    let rest: Vec<&Job> = jobs.iter().zip(&quick).filter(|(_, done)| done.is_none()).map(|(job, _)| job).collect();
    if rest.is_empty() {
        return Ok(quick.into_iter().flatten().map(Ok).collect());
    }
    let rest = match db.write_blocking(OPERATION, |tx| transaction::run(tx, &rest, false)) {
        Err(StoreError::Duplicate { .. }) => careful(db, &rest)?,
        rest => rest?,
    };
    let mut rest = rest.into_iter();
    Ok(quick.into_iter().filter_map(|done| done.map(Ok).or_else(|| rest.next())).collect())
}

/// Stores what owners append; nothing for the calls that need a transaction.
fn of_owners(c: &mut Conn, jobs: &[&Job]) -> Result<Vec<Option<Appended>>, StoreError> {
    let mut rows = Rows::default();
    for job in jobs {
        for draft in &job.drafts.messages {
            rows.push(job, draft);
        }
    }
    let numbers = rows.store(c, Whose::Owners)?;
    let mut stored = numbers.into_iter().enumerate().map(|(row, number)| rows.stored(row, number?));
    // Drafts of one call have one sender, so all of them are stored or none.
    let of_job = |job: &&Job| stored.by_ref().take(job.drafts.messages.len()).collect::<Vec<_>>();
    Ok(jobs
        .iter()
        .map(of_job)
        .map(|drafts| Some(Appended { messages: drafts.into_iter().collect::<Option<_>>()? }))
        .collect())
}

/// A `localId` twice in one batch: which is the first is a question for the careful.
fn repeats_itself(jobs: &[&Job]) -> bool {
    let mut names = HashSet::new();
    let mut all = jobs.iter().flat_map(|job| {
        job.drafts.messages.iter().map(move |draft| (job.session, job.sender, draft.local_id.as_str()))
    });
    !all.all(|name| names.insert(name))
}

fn careful(db: &Db, jobs: &[&Job]) -> Result<Vec<Outcome>, StoreError> {
    db.write_blocking("append messages again", |tx| transaction::run(tx, jobs, true))
}

/// The same failure for each of those that it hit.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { operation, reason } => StoreError::Unavailable { operation, reason: reason.clone() },
        StoreError::Busy { operation } => {
            StoreError::Unavailable { operation, reason: "another transaction is in the way".to_owned() }
        }
        other => StoreError::bad_row(OPERATION, other.to_string()),
    }
}
