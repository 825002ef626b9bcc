//! The server's clock, as a client measures it with each answer.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ensemble_types::time::Timestamp;
use reqwest::header::{DATE, HeaderMap};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// `Date` has whole seconds, and an answer takes a while: a smaller difference is none.
const EXACT: i64 = 5_000_000;
/// A server that names another day is not followed: what is signed for a later day could be kept until then.
const MOST: i64 = 24 * 3_600 * 1_000_000;

/// The clock of this computer, and by how much it is ahead of the server's.
#[derive(Debug)]
pub struct Clock {
    local: fn() -> Timestamp,
    ahead_micros: AtomicI64,
}

impl Clock {
    /// `local` is the clock of this computer.
    pub fn new(local: fn() -> Timestamp) -> Self {
        Self { local, ahead_micros: AtomicI64::new(0) }
    }

    /// Takes the server's time from an answer that has just come (RFC 9110, section 6.6.1).
    pub(crate) fn measure(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok()) else { return };
        let there = date.unix_timestamp().saturating_mul(1_000_000);
        let ahead = (self.local)().micros().saturating_sub(there);
        let ahead = if ahead.saturating_abs() < EXACT { 0 } else { ahead };
        self.ahead_micros.store(ahead, Ordering::Relaxed);
    }

    /// By how many seconds the clock of this computer is ahead of the server's; negative: behind. 0 before the first answer.
    pub fn ahead(&self) -> i64 {
        self.ahead_micros.load(Ordering::Relaxed) / 1_000_000
    }

    /// The time by the server's clock, from the newest answer. What is signed carries this time, so that a wrong clock here does
    /// not matter. Before the first answer, and where the server names another day: by the clock of this computer.
    pub fn now(&self) -> Timestamp {
        let (here, ahead) = ((self.local)(), self.ahead_micros.load(Ordering::Relaxed));
        if ahead.saturating_abs() > MOST {
            return here;
        }
        Timestamp::from_micros(here.micros().saturating_sub(ahead))
    }

    /// The earlier and the later one of the two clocks. A later time of the server is followed for a day, as by [`Self::now`].
    pub fn both(&self) -> (Timestamp, Timestamp) {
        let (here, ahead) = ((self.local)(), self.ahead_micros.load(Ordering::Relaxed));
        let there = Timestamp::from_micros(here.micros().saturating_sub(ahead));
        let later = if ahead < -MOST { here } else { here.max(there) };
        (here.min(there), later)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(system)
    }
}

/// The clock of this computer.
#[expect(clippy::disallowed_methods, reason = "a client has no clock but the system's")]
fn system() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_micros(0).plus(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_774_526_400;

    fn noon() -> Timestamp {
        Timestamp::from_unix_seconds(NOON)
    }

    fn measured(seconds_ahead: i64) -> Clock {
        let clock = Clock::new(noon);
        let date = OffsetDateTime::from_unix_timestamp(NOON - seconds_ahead).unwrap().format(&Rfc2822).unwrap();
        clock.measure(&HeaderMap::from_iter([(DATE, date.parse().unwrap())]));
        clock
    }

    #[test]
    fn the_time_is_the_servers_within_a_day() {
        for (ahead, corrected) in
            [(600, 600), (-600, -600), (4, 0), (-4, 0), (80_000, 80_000), (90_000, 0), (-90_000, 0)]
        {
            let clock = measured(ahead);
            assert_eq!(clock.now(), Timestamp::from_unix_seconds(NOON - corrected), "{ahead}");
        }
        assert_eq!(measured(90_000).ahead(), 90_000, "it is said, and not followed");
    }

    #[test]
    fn a_server_that_is_ahead_makes_nothing_earlier_and_one_that_is_behind_makes_nothing_later() {
        let day = 24 * 3_600;
        for (ahead, earlier, later) in [
            (-(day - 3_600), 0, day - 3_600),
            (day - 3_600, -(day - 3_600), 0),
            (3 * day, -3 * day, 0),
            (-3 * day, 0, 0),
            (4, 0, 0),
        ] {
            let expected = [earlier, later].map(|seconds| Timestamp::from_unix_seconds(NOON + seconds));
            assert_eq!(<[Timestamp; 2]>::from(measured(ahead).both()), expected, "{ahead}");
        }
    }

    #[test]
    fn without_a_date_it_is_the_clock_of_this_computer() {
        let clock = Clock::new(noon);
        for text in ["", "yesterday"] {
            clock.measure(&HeaderMap::from_iter([(DATE, text.parse().unwrap())]));
        }
        clock.measure(&HeaderMap::new());
        assert_eq!(clock.now(), noon());
    }
}
