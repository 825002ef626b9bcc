//! For which caller the current task works, so that services can share what is scarce among callers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::budget::Sender;
use super::turns::Turns;

tokio::task_local! {
    static CALLER: Sender;
}

/// Waits until it is the turn of the caller for whom the current task works. The turn ends when the result is dropped. None:
/// it works for no caller.
pub type TakeTurn = Arc<dyn Fn() -> BoxFuture<'static, Option<Box<dyn Send>>> + Send + Sync>;

/// Runs `work` for this caller; for none when the work is the service's own.
pub(crate) async fn work_for<W: Future>(caller: Option<Sender>, work: W) -> W::Output {
    match caller {
        Some(caller) => CALLER.scope(caller, work).await,
        None => work.await,
    }
}

/// A body that is written after its handler has ended is still work for the caller.
pub(crate) fn stream_for(caller: Option<Sender>, body: BoxBody) -> BoxBody {
    match (caller, body.size()) {
        (Some(caller), BodySize::Stream) => BoxBody::new(CallersBody { caller, body }),
        _ => body,
    }
}

struct CallersBody {
    caller: Sender,
    body: BoxBody,
}

impl MessageBody for CallersBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let caller = self.caller.clone();
        CALLER.sync_scope(caller, || Pin::new(&mut self.body).poll_next(cx))
    }
}

/// The caller for whom the current task works.
fn current() -> Option<Sender> {
    CALLER.try_with(Clone::clone).ok()
}

/// Turns: each caller has at most `each` at once, whatever the number of callers. Those of one caller are given in the order
/// in which they were requested. The service's own work does not wait.
pub fn turns_of_callers(each: usize) -> TakeTurn {
    let turns = Turns::new(each.max(1), Semaphore::MAX_PERMITS);
    Arc::new(move || {
        let turns = turns.clone();
        Box::pin(async move {
            match current() {
                Some(caller) => Some(Box::new(turns.wait(caller).await) as Box<dyn Send>),
                None => None,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn caller(last: u8) -> Option<Sender> {
        Some(Sender::Address(Some([10, 0, 0, last].into())))
    }

    #[tokio::test]
    async fn a_caller_waits_for_its_own_turns_only() {
        let take = turns_of_callers(1);
        let first = work_for(caller(1), take()).await;
        let by = async |who: Option<Sender>| work_for(who, async { take().now_or_never().is_some() }).await;
        assert!(work_for(caller(1), async { take().now_or_never().is_none() }).await);
        assert!(by(caller(2)).await, "another caller");
        assert!(by(None).await, "the service itself");
        drop(first);
        assert!(by(caller(1)).await);
    }
}
