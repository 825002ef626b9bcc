//! Group commit: jobs that wait at the same time go to the database together.
//!
//! A commit waits for the disk, and one commit for many jobs waits once. The queue has a bound and every caller a
//! deadline, so that a slow database refuses work instead of collecting it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Span;

use crate::deadline::{Deadline, Deadlines};
use crate::{Db, StoreError};

/// The limits of a [`Batcher`].
#[derive(Clone, Copy, Debug)]
pub struct BatchConfig {
    /// Names the thread, and the operation in errors.
    pub name: &'static str,
    /// Jobs that may wait for a batch; at least 1.
    pub queue: usize,
    /// Jobs in one batch; at least 1.
    pub max_batch: usize,
    /// How long a caller waits for its answer; less while the database is known to be away. A job that has much to do
    /// extends it for its batch ([`Conn::extend_deadline`](crate::Conn::extend_deadline)).
    pub timeout: Duration,
}

/// Collects jobs that wait and runs them together on a thread of its own, one batch at a time.
///
/// Cheap to clone. The thread ends when the last clone is dropped, after it has run the jobs that were accepted. A job
/// is run even when its caller was cancelled, as in [`Db::write`]; a job whose caller timed out before its batch began is not.
pub struct Batcher<J, R, E> {
    queue: mpsc::Sender<Waiting<J, R, E>>,
    config: BatchConfig,
    db: Db,
}

struct Waiting<J, R, E> {
    job: J,
    deadline: Deadline,
    span: Span,
    answer: oneshot::Sender<Result<R, E>>,
}

impl<J, R, E> Batcher<J, R, E>
where
    J: Send + 'static,
    R: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    /// Starts the thread. `run` gets at least one and at most `max_batch` jobs, in the order in which they came, and gives
    /// one answer per job, in the same order. It uses [`Db::write_blocking`].
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(
        db: &Db,
        config: BatchConfig,
        mut run: impl FnMut(&Db, Vec<J>) -> Vec<Result<R, E>> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel(config.queue.max(1));
        let batches = db.clone();
        std::thread::Builder::new().name(config.name.to_owned()).spawn(move || {
            while let Some(first) = waiting.blocking_recv() {
                run_batch(&batches, config.name, next_batch(first, &mut waiting, config.max_batch), &mut run);
            }
        })?;
        Ok(Self { queue, config, db: db.clone() })
    }

    /// Waits until the job's batch has run.
    ///
    /// # Errors
    /// The job's own, or [`StoreError::Unavailable`]: the queue is full, no answer came in time, or `run` panicked or
    /// gave too few answers. Only in the first case is it known that the job was not run.
    pub async fn submit(&self, job: J) -> Result<R, E> {
        let operation = self.config.name;
        let unavailable = |reason: &str| E::from(StoreError::Unavailable { operation, reason: reason.to_owned() });
        let deadline = Deadline::new(Instant::now(), self.db.limit(self.config.timeout));
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { job, deadline: deadline.clone(), span: Span::current(), answer };
        self.queue.try_send(waiting).map_err(|_| unavailable("too many jobs are waiting"))?;
        tokio::select! {
            biased;
            outcome = answered => outcome.unwrap_or_else(|_| Err(unavailable("the batch gave no answer"))),
            () = deadline.passed() => Err(unavailable("the batch did not answer in time")),
        }
    }
}

impl<J, R, E> Clone for Batcher<J, R, E> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), config: self.config, db: self.db.clone() }
    }
}

/// The first job and those that wait behind it, without those whose callers have timed out.
fn next_batch<J, R, E>(
    first: Waiting<J, R, E>,
    waiting: &mut mpsc::Receiver<Waiting<J, R, E>>,
    max_batch: usize,
) -> Vec<Waiting<J, R, E>> {
    let mut batch = vec![first];
    while batch.len() < max_batch
        && let Ok(next) = waiting.try_recv()
    {
        batch.push(next);
    }
    batch.retain(|waiting| !waiting.deadline.has_passed());
    batch
}

fn run_batch<J, R, E>(
    db: &Db,
    name: &'static str,
    batch: Vec<Waiting<J, R, E>>,
    run: &mut impl FnMut(&Db, Vec<J>) -> Vec<Result<R, E>>,
) {
    let span = span_of(name, &batch);
    let callers: Deadlines = batch.iter().map(|waiting| waiting.deadline.clone()).collect();
    let (jobs, answers): (Vec<J>, Vec<_>) = batch.into_iter().map(|waiting| (waiting.job, waiting.answer)).unzip();
    if jobs.is_empty() {
        return;
    }
    // A panic must not end the thread. Its callers get no answer, which `submit` turns into an error.
    let outcomes =
        span.in_scope(|| catch_unwind(AssertUnwindSafe(|| run(&db.for_batch(callers), jobs)))).unwrap_or_default();
    if outcomes.len() != answers.len() {
        tracing::error!(
            batch = name,
            jobs = answers.len(),
            answers = outcomes.len(),
            "A batch did not answer every job"
        );
    }
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        // A caller that was cancelled does not read its answer.
        drop(answer.send(outcome));
    }
}

/// A batch belongs to the trace of its first job and points to those of the others.
fn span_of<J, R, E>(name: &'static str, batch: &[Waiting<J, R, E>]) -> Span {
    let Some((first, others)) = batch.split_first() else { return Span::none() };
    let span = tracing::debug_span!(parent: &first.span, "batch", otel.name = name, jobs = batch.len());
    for other in others {
        span.follows_from(&other.span);
    }
    span
}
