//! Waits for a condition with a deadline, so that tests do not guess how long something takes.

use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

/// Checks the condition every 10 ms until it is true. Panics when it is not true within `timeout`.
#[track_caller]
pub fn eventually(timeout: Duration, mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + timeout;
        while !condition().await {
            pause(deadline, timeout, caller).await;
        }
    }
}

/// Looks for a value every 10 ms until there is one. Panics when there is none within `timeout`.
#[track_caller]
pub fn eventually_some<T>(timeout: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            pause(deadline, timeout, caller).await;
        }
    }
}

async fn pause(deadline: Instant, timeout: Duration, caller: &Location<'_>) {
    assert!(Instant::now() < deadline, "not true within {timeout:?}: {caller}");
    tokio::time::sleep(Duration::from_millis(10)).await;
}
