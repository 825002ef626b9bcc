//! When signing keys come and go.
//!
//! A key is published well before it signs, so that everybody who verifies has it by then; it is kept until the last
//! token that it can have signed has expired. So a rotation is noticed by nobody.

use std::time::Duration;

use ensemble_types::time::Timestamp;

/// How a key's life is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// How long a key signs.
    pub(crate) rotate_every: Duration,
    /// How long it is known before.
    pub(crate) publish_before: Duration,
    /// How long it is kept after: the longest life of a token, and what clocks may differ by.
    pub(crate) keep_after: Duration,
}

/// A key that others know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Counts up with each new key.
    pub(crate) generation: i64,
    pub(crate) signs_from: Timestamp,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// A key to make.
    pub(crate) make: Option<Published>,
    /// Keys whose last token has expired.
    pub(crate) drop: Vec<i64>,
}

impl Schedule {
    /// `keys` by generation, the oldest first.
    pub(crate) fn plan(&self, keys: &[Published], now: Timestamp) -> Plan {
        let make = match keys.last() {
            // The very first key signs at once: nobody holds an older picture.
            None => Some(Published { generation: 1, signs_from: now }),
            Some(newest) => {
                let due = newest.signs_from.plus(self.rotate_every);
                (now >= due.minus(self.publish_before)).then(|| Published {
                    generation: newest.generation + 1,
                    signs_from: due.max(now.plus(self.publish_before)),
                })
            }
        };
        let successors = keys.iter().skip(1);
        let drop = keys
            .iter()
            .zip(successors)
            .filter(|(_, next)| now >= next.signs_from.plus(self.keep_after))
            .map(|(key, _)| key.generation)
            .collect();
        Plan { make, drop }
    }

    /// The key that signs now: the newest whose time has come.
    pub(crate) fn signs_now(keys: &[Published], now: Timestamp) -> Option<i64> {
        let begun = keys.iter().rev().find(|key| key.signs_from <= now);
        // The clock was set back: better the oldest key than none.
        begun.or(keys.first()).map(|key| key.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn schedule() -> Schedule {
        Schedule {
            rotate_every: Duration::from_secs(30 * DAY),
            publish_before: Duration::from_secs(DAY),
            keep_after: Duration::from_secs(90 * DAY),
        }
    }

    fn day(n: u64) -> Timestamp {
        Timestamp::from_unix_seconds(0).plus(Duration::from_secs(n * DAY))
    }

    #[test]
    fn the_first_key_signs_at_once_and_the_next_is_known_a_day_before() {
        let schedule = schedule();
        let first = Published { generation: 1, signs_from: day(100) };
        assert_eq!(schedule.plan(&[], day(100)).make, Some(first));
        assert_eq!(schedule.plan(&[first], day(128)).make, None);
        let second = Published { generation: 2, signs_from: day(130) };
        assert_eq!(schedule.plan(&[first], day(129)).make, Some(second));
        assert_eq!(schedule.plan(&[first, second], day(129)).make, None);
        assert_eq!(Schedule::signs_now(&[first, second], day(129)), Some(1));
        assert_eq!(Schedule::signs_now(&[first, second], day(130)), Some(2));
    }

    #[test]
    fn a_rotation_that_was_missed_still_gives_notice() {
        let late = schedule().plan(&[Published { generation: 1, signs_from: day(100) }], day(500)).make;
        assert_eq!(late, Some(Published { generation: 2, signs_from: day(501) }));
    }

    /// Whatever the schedule and however seldom anybody looks: the key that signs is known long enough, and a key is
    /// there as long as a token of its own can be.
    #[test]
    fn nobody_ever_meets_a_token_without_its_key() {
        let schedule = schedule();
        for step in [1, 7, 29, 31, 45, 200] {
            let mut keys: Vec<(Published, Timestamp)> = Vec::new();
            let mut signed: Vec<(i64, Timestamp)> = Vec::new();
            for n in 0..100 {
                let now = day(1_000 + n * step);
                let known: Vec<Published> = keys.iter().map(|(key, _)| *key).collect();
                let plan = schedule.plan(&known, now);
                keys.retain(|(key, _)| !plan.drop.contains(&key.generation));
                keys.extend(plan.make.map(|key| (key, now)));
                let known: Vec<Published> = keys.iter().map(|(key, _)| *key).collect();
                let signer = Schedule::signs_now(&known, now).unwrap();
                let (_, published) = keys.iter().find(|(key, _)| key.generation == signer).unwrap();
                assert!(signer == 1 || now >= published.plus(schedule.publish_before), "step {step}");
                signed.push((signer, now.plus(schedule.keep_after)));
                for (generation, expires) in &signed {
                    assert!(*expires <= now || known.iter().any(|key| key.generation == *generation), "step {step}");
                }
            }
        }
    }
}
