//! Notices that the machine has slept.
//!
//! While it sleeps, timers stand still and connections die without a word. Afterwards the wall clock has moved and the
//! monotonic clock has not. Whoever waits for a timer or an answer then should not wait any longer.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

/// How often the two clocks are compared.
const LOOK: Duration = Duration::from_secs(2);

/// Less than this is a clock being set right.
const SLEPT: Duration = Duration::from_secs(15);

/// Counts how often the machine woke.
pub(crate) type Woken = watch::Receiver<u64>;

/// Watches until nobody listens any more.
pub(crate) async fn watch(woken: watch::Sender<u64>) {
    watch_with(woken, LOOK, wall_clock).await;
}

async fn watch_with(woken: watch::Sender<u64>, look: Duration, wall: impl Fn() -> SystemTime) {
    let mut before = (Instant::now(), wall());
    while !woken.is_closed() {
        tokio::time::sleep(look).await;
        let now = (Instant::now(), wall());
        let by_the_wall = now.1.duration_since(before.1).unwrap_or_default();
        let slept = by_the_wall.saturating_sub(now.0.duration_since(before.0));
        if slept > SLEPT {
            tracing::info!(
                slept_s = slept.as_secs(),
                "The machine was asleep; telling the server at once that we are back"
            );
            woken.send_modify(|count| *count += 1);
        }
        before = now;
    }
}

/// Waits for the next time that the machine wakes; for ever, when nobody watches.
pub(crate) async fn next(woken: &mut Woken) {
    if woken.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the runner has no kit to take a clock from, and this decides nothing")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_hour_that_no_timer_saw_is_a_sleep() {
        // An hour passes on the wall between the first look at it and the second.
        let looks = AtomicU64::new(0);
        let start = wall_clock();
        let wall = move || start + Duration::from_secs(3600) * u32::from(looks.fetch_add(1, Ordering::SeqCst) > 0);
        let sender = watch::Sender::new(0);
        let mut woken = sender.subscribe();
        let watching = tokio::spawn(watch_with(sender, Duration::from_millis(5), wall));
        tokio::time::timeout(Duration::from_secs(10), next(&mut woken)).await.unwrap();
        assert_eq!(*woken.borrow(), 1);
        drop(woken);
        tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap().unwrap();
    }
}
