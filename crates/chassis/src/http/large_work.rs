//! Work on large bodies, away from the threads that serve: a few threads at once, and one job at a time for each caller, so
//! that callers take turns whatever they send.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use ensemble_types::problem::{Code, Problem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::ApiError;
use super::budget::{FREE, Sender};

/// How long a job waits for its turn. The edge waits 10 s for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(6);

/// Where large bodies are worked on, shared by all requests of a service.
#[derive(Clone, Debug)]
pub(crate) struct LargeWork(Arc<Places>);

#[derive(Debug)]
struct Places {
    longest_wait: Duration,
    /// Half of the processors, so that the threads that serve keep the others.
    all: Arc<Semaphore>,
    of_sender: Mutex<HashMap<Sender, Arc<Semaphore>>>,
}

/// An argument of handlers that have much to do with a large body.
pub struct Heavy(HttpRequest);

/// The length of a request's body, once it has been read.
#[derive(Clone, Copy)]
pub(super) struct BodyLength(pub(super) usize);

impl Default for LargeWork {
    fn default() -> Self {
        Self::new(LONGEST_WAIT)
    }
}

impl LargeWork {
    fn new(longest_wait: Duration) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let all = Arc::new(Semaphore::new((cores / 2).max(1)));
        Self(Arc::new(Places { longest_wait, all, of_sender: Mutex::default() }))
    }

    /// Runs `job` when it is the sender's turn. A job whose caller has gone meanwhile runs to its end.
    ///
    /// # Errors
    /// 503 when it was not its turn in time.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        sender: Sender,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || Problem::new(Code::Unavailable, "The service has too many large requests.").with_retry_after(2);
        let places = timeout(self.0.longest_wait, self.places(sender)).await.map_err(|_| busy())?.ok_or_else(busy)?;
        let span = tracing::Span::current();
        let work = move || {
            let _entered = span.enter();
            let _places = places;
            job()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "Work on a large body failed");
            Problem::new(Code::Internal, "The request could not be processed.")
        })
    }

    /// The sender's only place, and then one of all.
    async fn places(&self, sender: Sender) -> Option<(Turn, OwnedSemaphorePermit)> {
        let place = {
            let mut of_sender = self.0.of_sender.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(of_sender.entry(sender.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let mut turn = Turn { work: self.clone(), sender, place: Some(Arc::clone(&place)), permit: None };
        turn.permit = Some(place.acquire_owned().await.ok()?);
        Some((turn, Arc::clone(&self.0.all).acquire_owned().await.ok()?))
    }
}

/// A sender's place; the last one that leaves removes it from the map.
struct Turn {
    work: LargeWork,
    sender: Sender,
    place: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut of_sender = self.work.0.of_sender.lock().unwrap_or_else(PoisonError::into_inner);
        self.permit = None;
        self.place = None;
        if of_sender.get(&self.sender).is_some_and(|place| Arc::strong_count(place) == 1) {
            of_sender.remove(&self.sender);
        }
    }
}

impl Heavy {
    /// Runs `job` here when the request's body was short, and otherwise where large bodies are worked on.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let length = self.0.extensions().get::<BodyLength>().map_or(0, |length| length.0);
        match self.0.app_data::<LargeWork>().filter(|_| length > FREE) {
            Some(work) => work.clone().run(Sender::of(&self.0), job).await,
            None => Ok(job()),
        }
    }

    pub(super) fn of(request: &HttpRequest) -> Self {
        Self(request.clone())
    }
}

impl FromRequest for Heavy {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self::of(request)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn sender(last: u8) -> Sender {
        Sender::Address(Some([10, 0, 0, last].into()))
    }

    #[tokio::test]
    async fn one_sender_works_on_one_body_at_a_time_and_leaves_nothing() {
        let work = LargeWork::default();
        let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..8).map(|_| {
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            work.run(sender(1), move || {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                at_once.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for outcome in futures_util::future::join_all(jobs).await {
            outcome.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!(work.0.of_sender.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_job_that_panics_is_an_error_of_its_request_only() {
        let work = LargeWork::default();
        let failed = work.run(sender(1), || panic!("a bug")).await;
        assert_eq!(failed.unwrap_err().code, Code::Internal);
        assert_eq!(work.run(sender(1), || 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_job_whose_turn_does_not_come_is_refused() {
        let work = LargeWork::new(Duration::from_millis(10));
        let _held = work.places(sender(1)).await;
        assert_eq!(work.run(sender(1), || ()).await.unwrap_err().code, Code::Unavailable);
    }
}
