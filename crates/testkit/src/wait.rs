//! Waits for a condition with a deadline, so that tests do not guess how long something takes.

use std::panic::{AssertUnwindSafe, Location, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

/// The limit of a wait for what should happen soon. A machine can stand still for half a minute, and a test that passes does
/// not take longer because its limit is high.
pub const SOON: Duration = Duration::from_secs(60);

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

/// Runs a scenario whose steps have to follow each other faster than a short limit of the code under test. A failure counts
/// when the scenario took less than `time` and the machine did not stand still meanwhile. Otherwise the scenario runs again,
/// ten times at most.
pub async fn in_time(time: Duration, scenario: impl AsyncFn()) {
    const TRIES: u32 = 10;
    const STANDS_STILL: Duration = Duration::from_millis(60);
    for tries in 1..=TRIES {
        let (begun, watch) = (Instant::now(), Watch::start());
        let outcome = AssertUnwindSafe(scenario()).catch_unwind().await;
        let Err(failure) = outcome else { return };
        let counts = begun.elapsed() < time && watch.longest_pause() < STANDS_STILL;
        if counts || tries == TRIES {
            resume_unwind(failure);
        }
    }
}

/// Watches how long this process gets no processor.
struct Watch {
    has_ended: Arc<AtomicBool>,
    watching: JoinHandle<Duration>,
}

impl Watch {
    fn start() -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&has_ended);
        let watching = std::thread::spawn(move || {
            let (mut longest, mut before) = (Duration::ZERO, Instant::now());
            while !until.load(Ordering::SeqCst) {
                std::thread::park_timeout(INTERVAL);
                longest = longest.max(before.elapsed().saturating_sub(INTERVAL));
                before = Instant::now();
            }
            longest
        });
        Self { has_ended, watching }
    }

    fn longest_pause(self) -> Duration {
        self.has_ended.store(true, Ordering::SeqCst);
        self.watching.join().unwrap_or_default()
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
