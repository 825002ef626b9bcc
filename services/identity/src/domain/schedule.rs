//! When signing keys are made and deleted.
//!
//! A key is published well before it signs, so that every service that verifies has it by then. It is kept until the last
//! token that it can have signed has expired. So a rotation has no effect that a client could notice.

use std::time::Duration;

use ensemble_types::time::Timestamp;

/// The phases of a key's life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// How long a key signs.
    pub(crate) rotate_every: Duration,
    /// How long it is published before it signs.
    pub(crate) publish_before: Duration,
    /// How long it is kept after it has signed: the longest life of a token, and the difference that clocks may have.
    pub(crate) keep_after: Duration,
}

/// A key that peers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Counts up with each new key.
    pub(crate) generation: i64,
    pub(crate) signs_from: Timestamp,
}

/// Which keys to make and to delete now.
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
            // The first key signs at once, because no peer has keys loaded yet.
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

    /// The key that signs now: the newest that has begun.
    pub(crate) fn signs_now(keys: &[Published], now: Timestamp) -> Option<i64> {
        let begun = keys.iter().rev().find(|key| key.signs_from <= now);
        // If the clock was set back, the oldest key is better than none.
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
    fn the_first_key_signs_at_once_and_the_next_is_published_a_day_before() {
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
    fn a_late_rotation_still_publishes_before_it_signs() {
        let late = schedule().plan(&[Published { generation: 1, signs_from: day(100) }], day(500)).make;
        assert_eq!(late, Some(Published { generation: 2, signs_from: day(501) }));
    }

    /// For every interval between two rotations: a key has been published long enough before it signs, and it is kept as
    /// long as its tokens are valid.
    #[test]
    fn every_valid_token_has_its_key() {
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

    #[test]
    fn a_key_is_dropped_when_the_last_token_that_it_signed_has_expired() {
        let keys = [(1, 100), (2, 130), (3, 160)].map(|(generation, n)| Published { generation, signs_from: day(n) });
        let dropped = |now| schedule().plan(&keys, now).drop;
        let second = Duration::from_secs(1);
        assert_eq!(dropped(day(220).minus(second)), [0; 0]);
        assert_eq!(dropped(day(220)), [1]);
        assert_eq!(dropped(day(250)), [1, 2], "the newest stays");
        assert_eq!(dropped(day(9_999)), [1, 2]);
    }

    #[test]
    fn a_clock_that_was_set_back_has_the_oldest_key() {
        let keys = [(1, 100), (2, 130)].map(|(generation, n)| Published { generation, signs_from: day(n) });
        assert_eq!(Schedule::signs_now(&keys, day(99)), Some(1));
        assert_eq!(Schedule::signs_now(&keys, day(9_999)), Some(2));
        assert_eq!(Schedule::signs_now(&[], day(1)), None);
    }
}
