//! Times for people: how long ago, in the local time zone, and durations.

use std::sync::LazyLock;
use std::time::Duration;

use ensemble_types::time::Timestamp;
use tz::{DateTime, TimeZone};

/// The time zone of the person: `TZ`, and without it `/etc/localtime`, as for the C library.
static ZONE: LazyLock<TimeZone> = LazyLock::new(|| {
    let zone = match std::env::var_os("TZ") {
        Some(named) => TimeZone::from_posix_tz(&named.to_string_lossy()),
        None => TimeZone::local(),
    };
    zone.unwrap_or_else(|_| TimeZone::utc())
});

/// `3 min ago`.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.since(at).as_secs() {
        0..5 => "just now".to_owned(),
        seconds => format!("{} ago", rough(seconds)),
    }
}

/// `2026-03-26 14:00:05 +01:00`.
pub fn local(at: Timestamp) -> String {
    local_in(&ZONE, at)
}

fn local_in(zone: &TimeZone, at: Timestamp) -> String {
    let Some(time) = in_zone(zone, at) else { return at.to_string() };
    let offset = time.local_time_type().ut_offset();
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    let (date, second) = (date(&time), time.second());
    format!("{date} {}:{second:02} {sign}{:02}:{:02}", minute(&time), minutes / 60, minutes % 60)
}

/// `2026-03-26 14:00:05 +01:00 (3 min ago)`.
pub fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", local(at), ago(at, now))
}

/// `14:05 (in 2 h)`, or with the date when it is another day.
pub fn clock(at: Timestamp, now: Timestamp) -> String {
    let (Some(time), Some(today)) = (in_zone(&ZONE, at), in_zone(&ZONE, now)) else { return at.to_string() };
    let shown = if date(&time) == date(&today) { minute(&time) } else { format!("{} {}", date(&time), minute(&time)) };
    match at.since(now).as_secs() {
        0 => format!("{shown} ({})", ago(at, now)),
        seconds => format!("{shown} (in {})", rough(seconds)),
    }
}

fn in_zone(zone: &TimeZone, at: Timestamp) -> Option<DateTime> {
    DateTime::from_timespec(at.unix_seconds(), 0, zone.as_ref()).ok()
}

fn date(time: &DateTime) -> String {
    format!("{:04}-{:02}-{:02}", time.year(), time.month(), time.month_day())
}

fn minute(time: &DateTime) -> String {
    format!("{:02}:{:02}", time.hour(), time.minute())
}

/// `12 s`, `3 min 5 s`, `2 h 10 min`.
pub fn duration(duration: Duration) -> String {
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
    fn a_time_has_the_offset_of_its_own_day() {
        let shown = |zone, at: &str| local_in(&TimeZone::from_posix_tz(zone).unwrap(), at.parse().unwrap());
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        assert_eq!(shown(berlin, "2026-03-26T13:00:05Z"), "2026-03-26 14:00:05 +01:00");
        assert_eq!(shown(berlin, "2026-03-29T00:59:59Z"), "2026-03-29 01:59:59 +01:00");
        assert_eq!(shown(berlin, "2026-03-29T01:00:00Z"), "2026-03-29 03:00:00 +02:00");
        assert_eq!(shown("NST3:30", "2026-01-01T01:02:03Z"), "2025-12-31 21:32:03 -03:30");
        assert_eq!(shown("UTC0", "2026-01-01T01:02:03Z"), "2026-01-01 01:02:03 +00:00");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = Timestamp::from_unix_seconds(1_800_000_000);
        let before = |seconds| ago(now.minus(Duration::from_secs(seconds)), now);
        assert_eq!(before(0), "just now");
        assert_eq!(before(200), "3 min ago");
        assert_eq!(before(7_500), "2 h ago");
        assert_eq!(before(400_000), "4 days ago");
        let ahead = |seconds| clock(now.plus(Duration::from_secs(seconds)), now);
        assert!(ahead(7_230).ends_with(" (in 2 h)") && ahead(400_000).starts_with("20"), "{}", ahead(7_230));
        assert!(clock(now.minus(Duration::from_secs(90)), now).ends_with(" (1 min ago)"));
        assert_eq!(duration(Duration::from_secs(185)), "3 min 5 s");
    }
}
