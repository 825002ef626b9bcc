//! Detects that the machine has slept.
//!
//! During sleep, timers stop and connections break. Afterwards the wall clock has advanced and the monotonic clock has
//! not. Pending timers and calls are then cut short.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// How often the two clocks are compared.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A smaller difference is a correction of the clock.
const SHORTEST_SLEEP: Duration = Duration::from_secs(15);

/// Counts how often the machine woke up.
pub type Woken = watch::Receiver<u64>;

/// Compares the clocks until there is no receiver left.
pub async fn watch(woken: watch::Sender<u64>) {
    watch_with(woken, CHECK_INTERVAL, wall_clock).await;
}

async fn watch_with(woken: watch::Sender<u64>, interval: Duration, wall: impl Fn() -> SystemTime) {
    let mut before = (Instant::now(), wall());
    while !woken.is_closed() {
        tokio::time::sleep(interval).await;
        let now = (Instant::now(), wall());
        let wall_time = now.1.duration_since(before.1).unwrap_or_default();
        let slept = wall_time.saturating_sub(now.0.duration_since(before.0));
        if slept > SHORTEST_SLEEP {
            tracing::info!(slept_s = slept.as_secs(), "The machine was asleep; contacting the server at once");
            woken.send_modify(|count| *count += 1);
        }
        before = now;
    }
}

/// Waits for the next wake-up. Never returns when the watcher has ended.
pub async fn next(woken: &mut Woken) {
    if woken.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the host has no injected clock; what decides across machines is the server's"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_hour_that_only_the_wall_clock_counted_is_a_sleep() {
        // The wall clock advances by an hour between the first and the second reading.
        let readings = AtomicU64::new(0);
        let start = wall_clock();
        let wall = move || start + Duration::from_secs(3600) * u32::from(readings.fetch_add(1, Ordering::SeqCst) > 0);
        let sender = watch::Sender::new(0);
        let mut woken = sender.subscribe();
        let watching = tokio::spawn(watch_with(sender, Duration::from_millis(5), wall));
        tokio::time::timeout(ensemble_testkit::SOON, next(&mut woken)).await.unwrap();
        assert_eq!(*woken.borrow(), 1);
        drop(woken);
        tokio::time::timeout(ensemble_testkit::SOON, watching).await.unwrap().unwrap();
    }
}
