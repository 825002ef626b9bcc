//! Times for people: how long ago, in the local time zone, and durations.

use std::time::Duration;

use chrono::{DateTime, Local};
use ensemble_types::time::Timestamp;

use crate::context::now;

/// `3 min ago`.
pub(crate) fn ago(at: Timestamp) -> String {
    let past = |now: Timestamp| now.since(at);
    match past(now()).as_secs() {
        0..5 => "just now".to_owned(),
        seconds => format!("{} ago", rough(seconds)),
    }
}

/// `2026-03-26 14:00:05 +01:00`.
pub(crate) fn local(at: Timestamp) -> String {
    match DateTime::from_timestamp_micros(at.micros()) {
        Some(at) => at.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S %:z").to_string(),
        None => at.to_string(),
    }
}

/// `2026-03-26 14:00:05 +01:00 (3 min ago)`.
pub(crate) fn both(at: Timestamp) -> String {
    format!("{} ({})", local(at), ago(at))
}

/// `14:05 (in 2 h)`, or with the date when it is another day.
pub(crate) fn clock(at: Timestamp) -> String {
    let (Some(time), now) = (DateTime::from_timestamp_micros(at.micros()), now()) else { return at.to_string() };
    let time = time.with_timezone(&Local);
    let is_today = DateTime::from_timestamp_micros(now.micros())
        .is_some_and(|now| now.with_timezone(&Local).date_naive() == time.date_naive());
    let shown = time.format(if is_today { "%H:%M" } else { "%Y-%m-%d %H:%M" });
    match at.since(now).as_secs() {
        0 => format!("{shown} ({})", ago(at)),
        seconds => format!("{shown} (in {})", rough(seconds)),
    }
}

/// `12 s`, `3 min 5 s`, `2 h 10 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

fn rough(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_to_now() {
        let before = |seconds| ago(now().minus(Duration::from_secs(seconds)));
        assert_eq!(before(0), "just now");
        assert_eq!(before(200), "3 min ago");
        assert_eq!(before(7_500), "2 h ago");
        assert_eq!(before(400_000), "4 days ago");
        let ahead = |seconds| clock(now().plus(Duration::from_secs(seconds)));
        assert!(ahead(7_230).ends_with(" (in 2 h)") && ahead(400_000).starts_with("20"), "{}", ahead(7_230));
        assert!(clock(now().minus(Duration::from_secs(90))).ends_with(" (1 min ago)"));
        assert_eq!(duration(Duration::from_secs(185)), "3 min 5 s");
    }
}
