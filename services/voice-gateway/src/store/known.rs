//! What this process knows of the database without asking it: its clock, and how many sessions are open in all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_types::time::Timestamp;

#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<Mutex<Knowledge>>);

#[derive(Debug, Default)]
struct Knowledge {
    total: Option<(Instant, u64)>,
    clock: Option<(Instant, Timestamp)>,
}

impl Known {
    /// A count is believed for so long; where it matters, near the limit, it is not asked for.
    const BELIEVED: Duration = Duration::from_millis(200);

    fn lock(&self) -> MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many sessions are open in all. Counting them takes the longer the more there are, so it is done by one start of
    /// many.
    pub(super) fn total(&self) -> Option<u64> {
        self.lock().total.filter(|(at, _)| at.elapsed() < Self::BELIEVED).map(|(_, total)| total)
    }

    pub(super) fn counted(&self, total: u64) {
        self.lock().total = Some((Instant::now(), total));
    }

    pub(super) fn one_more(&self) {
        if let Some((_, total)) = self.lock().total.as_mut() {
            *total += 1;
        }
    }

    /// The database's time, as far as its last word on it tells. Whoever uses it lets the database check it: a machine may
    /// have slept.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.lock().clock.map(|(at, time)| time.plus(at.elapsed()))
    }

    /// The database has just said what time it is.
    pub(super) fn told(&self, time: Timestamp) {
        self.lock().clock = Some((Instant::now(), time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_known_with_what_was_started_since() {
        let known = Known::default();
        known.one_more();
        assert_eq!(known.total(), None, "nobody has counted");
        known.counted(5);
        known.one_more();
        assert_eq!(known.total(), Some(6));
        known.lock().total = Some((Instant::now() - Known::BELIEVED, 6));
        assert_eq!(known.total(), None, "too old");
    }

    #[test]
    fn the_clock_goes_on() {
        let known = Known::default();
        assert_eq!(known.now(), None, "nobody has told");
        let time = Timestamp::from_unix_seconds(1_774_483_200);
        known.told(time);
        known.lock().clock = Some((Instant::now() - Duration::from_secs(2), time));
        assert!(known.now() >= Some(time.plus(Duration::from_secs(2))));
    }
}
