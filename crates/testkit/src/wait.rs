//! Waiting for what will be true, without guessing how long it takes.

use std::time::Duration;

use tokio::time::Instant;

/// Asks again and again until it is true; panics when it is not within `timeout`.
#[track_caller]
pub fn eventually(timeout: Duration, mut question: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let asker = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + timeout;
        while !question().await {
            assert!(Instant::now() < deadline, "not true within {timeout:?}: {asker}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
