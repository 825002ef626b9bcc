//! A server that was restored from a backup is behind: it lacks messages of this machine that it had confirmed.
//!
//! They are sent again, in their order and before anything newer. So the messages up to [`Behind::upto`] that the server has are always
//! the first ones, and the newest of them says where to continue, also after this process was killed.

use std::time::Duration;

use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Between two times that messages are sent again. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const MOST_DOUBLED: u32 = 8;
/// 64 minutes. A clock that was ahead must not make it longer.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(15 << MOST_DOUBLED);
/// After this time without being behind, a server begins with the first pause.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2 * 3_600);
/// People are notified at most once within this time.
const SAID_EVERY: Duration = Duration::from_secs(600);

/// What is known of a server that was, or is, behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Behind {
    /// Messages up to this count are sent again where the server lacks them. `None`: that is done.
    pub(crate) upto: Option<u64>,
    /// Not before this time. It differs each time that they are sent.
    pub(crate) from: Timestamp,
    /// How often they were sent, for the next pause.
    times: u32,
    /// When people were notified.
    said: Timestamp,
}

/// What the server turned out to lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// It had confirmed the messages up to this count.
    pub(crate) upto: u64,
    /// What people have sent after this `seq` may be new.
    pub(crate) after: i64,
    /// The newest `seq` of the server.
    pub(crate) last: i64,
    /// The time of [`Behind::from`] when this was noticed.
    pub(crate) known: Option<Timestamp>,
}

impl Behind {
    /// The server is behind, once more if it was before.
    pub(crate) fn again(before: Option<&Self>, upto: u64, now: Timestamp) -> Self {
        let Some(before) = before else { return Self { upto: Some(upto), from: now, times: 1, said: now } };
        let upto = Some(upto.max(before.upto.unwrap_or_default()));
        if before.upto.is_some() && before.from > now {
            return Self { upto, ..before.clone() };
        }
        let is_forgotten = now.since(before.from) > FORGOTTEN_AFTER;
        let times = if is_forgotten { 0 } else { before.times };
        let pause = if is_forgotten {
            Duration::ZERO
        } else {
            FIRST_PAUSE * 2_u32.pow(times.saturating_sub(1).min(MOST_DOUBLED))
        };
        Self {
            upto,
            from: before.from.plus(pause).max(now).min(now.plus(LONGEST_PAUSE)),
            times: times.saturating_add(1),
            said: if now.since(before.said) >= SAID_EVERY { now } else { before.said },
        }
    }

    /// Whether people do not know of it yet.
    pub(crate) fn is_to_be_said(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| before.said != self.said)
    }

    /// The server has the messages again.
    pub(crate) fn is_over(&self) -> Self {
        Self { upto: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

    #[test]
    fn a_server_that_says_it_again_and_again_waits_longer_and_longer() {
        let mut behind = Behind::again(None, 40, NOW);
        assert_eq!((behind.upto, behind.from), (Some(40), NOW));
        let mut waits = Vec::new();
        for _ in 0..11 {
            let at = behind.from.plus(Duration::from_secs(1));
            let next = Behind::again(Some(&behind.is_over()), 30, at);
            waits.push(next.from.since(behind.from).as_secs());
            behind = next;
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 480, 960, 1_920, 3_840, 3_840, 3_840]);

        let later = behind.from.plus(FORGOTTEN_AFTER + Duration::from_secs(1));
        let next = Behind::again(Some(&behind.is_over()), 50, later);
        assert_eq!(next.from, later);
        assert_eq!(Behind::again(Some(&next), 50, later).from, later.plus(FIRST_PAUSE));

        // By a clock that was ahead.
        let ahead = Behind { upto: None, from: later.plus(Duration::from_secs(1 << 30)), ..next };
        assert_eq!(Behind::again(Some(&ahead), 50, later).from, later.plus(LONGEST_PAUSE));
    }

    #[test]
    fn what_is_noticed_twice_before_it_is_sent_waits_once() {
        let first = Behind::again(None, 40, NOW);
        let second = Behind::again(Some(&first), 30, NOW);
        assert_eq!(second.upto, Some(40), "what is not sent yet stays");
        let third = Behind::again(Some(&second), 50, NOW);
        assert_eq!(third, Behind { upto: Some(50), ..second });
    }

    #[test]
    fn people_are_notified_once_in_ten_minutes() {
        let first = Behind::again(None, 40, NOW);
        let soon = Behind::again(Some(&first.is_over()), 40, NOW.plus(SAID_EVERY / 2));
        assert!(first.is_to_be_said(None) && !soon.is_to_be_said(Some(&first)));
        let late = Behind::again(Some(&soon.is_over()), 40, NOW.plus(SAID_EVERY));
        assert!(late.is_to_be_said(Some(&soon)));
    }
}
