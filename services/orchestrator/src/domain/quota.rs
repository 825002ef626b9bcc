//! How long a machine waits for a provider whose usage limit is reached.

use std::time::Duration;

use ensemble_types::time::Timestamp;

/// The longest wait. The interface promises it.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The wait when the runner does not know when the provider can be used again.
const USUAL: Duration = Duration::from_secs(5 * 60);
/// The shortest wait. A provider that is at its limit at once again and again does not keep the machine busy.
const SHORTEST: Duration = Duration::from_secs(60);
/// A task whose attempts ended this many times at the limit fails. With the usual wait that is after three days and a half.
const MOST_WAITS: i32 = 1_000;

/// The end of the wait. `None` when the runner wants a longer one than it may have.
pub(crate) fn hold_until(now: Timestamp, resume_at: Option<Timestamp>) -> Option<Timestamp> {
    let wanted = resume_at.unwrap_or_else(|| now.plus(USUAL));
    (wanted <= now.plus(LONGEST)).then(|| wanted.max(now.plus(SHORTEST)))
}

/// Whether a task that has waited this many times fails.
pub(crate) fn has_waited_too_often(waits: i32) -> bool {
    waits >= MOST_WAITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_minute_to_seven_days_long() {
        let at = Timestamp::from_unix_seconds;
        let now = at(1_000_000);
        let wait = |resume_at| hold_until(now, resume_at).map(|until| until.since(now).as_secs());
        assert_eq!(wait(None), Some(300));
        assert_eq!(wait(Some(at(0))), Some(60), "a time in the past is now");
        assert_eq!(wait(Some(at(1_000_059))), Some(60));
        assert_eq!(wait(Some(at(1_007_200))), Some(7_200));
        assert_eq!(wait(Some(at(1_604_800))), Some(604_800));
        assert_eq!(wait(Some(at(1_604_801))), None);
        assert!(!has_waited_too_often(999) && has_waited_too_often(1_000));
    }
}
