//! Work on large bodies, away from the threads that serve: a few threads at once, and one job at a time for each caller.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use ensemble_types::problem::{Code, Problem};

use super::ApiError;
use super::budget::{FREE, Sender};
use super::turns::Turns;

/// Where large bodies are worked on, shared by all requests of a service.
#[derive(Clone, Debug)]
pub(crate) struct LargeWork(Turns);

/// An argument of handlers that have much to do with a large body.
pub struct Heavy(HttpRequest);

/// The length of a request's body, once it has been read.
#[derive(Clone, Copy)]
pub(super) struct BodyLength(pub(super) usize);

impl Default for LargeWork {
    /// With half of the processors, so that the threads that serve keep the others.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self(Turns::new(1, cores / 2))
    }
}

impl LargeWork {
    /// Runs `job` when it is the sender's turn. A job whose caller has gone meanwhile runs to its end.
    ///
    /// # Errors
    /// 503 when it was not its turn in time.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        sender: Sender,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let turn = self.0.take(sender).await?;
        let span = tracing::Span::current();
        let work = move || {
            let _entered = span.enter();
            let _turn = turn;
            job()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "Work on a large body failed");
            Problem::new(Code::Internal, "The request could not be processed.")
        })
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn sender(last: u8) -> Sender {
        Sender::Address(Some([10, 0, 0, last].into()))
    }

    #[tokio::test]
    async fn one_sender_works_on_one_body_at_a_time() {
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
    }

    #[tokio::test]
    async fn a_job_that_panics_is_an_error_of_its_request_only() {
        let work = LargeWork::default();
        let failed = work.run(sender(1), || panic!("a bug")).await;
        assert_eq!(failed.unwrap_err().code, Code::Internal);
        assert_eq!(work.run(sender(1), || 7).await.unwrap(), 7);
    }
}
