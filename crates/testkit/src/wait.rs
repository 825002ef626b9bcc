//! Waits for a condition with a deadline, so that tests do not guess how long something takes.

use std::panic::Location;
use std::time::Duration;

use tokio::time::Instant;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Checks the condition every 10 ms until it is true. Panics when it is not true within `timeout`.
#[track_caller]
pub fn eventually(timeout: Duration, mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    eventually_some(timeout, async move || condition().await.then_some(()))
}

/// Looks for a value every 10 ms until there is one. Panics when there is none within `timeout`.
#[track_caller]
pub fn eventually_some<T>(timeout: Duration, look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let found = poll(timeout, look).await;
        found.unwrap_or_else(|| panic!("not true within {timeout:?}: {caller}"))
    }
}

/// Looks for a value every 10 ms. `None` when there is none within `timeout`. For programs that report this themselves.
pub async fn poll<T>(timeout: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
