//! How many voice sessions, and how many seconds of them, a user and everybody together may have.

use std::time::Duration;

use ensemble_types::voice::VoiceRefusal;

/// Zero means "no limit", everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) session: Duration,
    pub(crate) user_sessions: u64,
    pub(crate) total_sessions: u64,
    pub(crate) user_daily_seconds: u64,
    pub(crate) total_daily_seconds: u64,
}

/// What is in use at this moment, the session that a start would replace left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) user_sessions: u64,
    pub(crate) total_sessions: u64,
    pub(crate) user_seconds: u64,
    pub(crate) total_seconds: u64,
}

/// Numbers in use that are below all of these come close to no limit: a start gets a full session, and no other start
/// that is on its way changes that. [`Bounds::NONE`] where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) user_sessions: i64,
    pub(crate) total_sessions: i64,
    pub(crate) user_seconds: i64,
    pub(crate) total_seconds: i64,
}

impl Bounds {
    pub(crate) const NONE: i64 = i64::MAX;
}

impl Limits {
    /// How long a new session may last, or why there may be none.
    pub(crate) fn grant(&self, usage: Usage) -> Result<Duration, VoiceRefusal> {
        let full = |limit: u64, used: u64| limit > 0 && used >= limit;
        if full(self.user_sessions, usage.user_sessions) {
            return Err(VoiceRefusal::UserSessions);
        }
        if full(self.total_sessions, usage.total_sessions) {
            return Err(VoiceRefusal::TotalSessions);
        }
        if full(self.user_daily_seconds, usage.user_seconds) {
            return Err(VoiceRefusal::UserDailySeconds);
        }
        if full(self.total_daily_seconds, usage.total_seconds) {
            return Err(VoiceRefusal::TotalDailySeconds);
        }
        let left = |limit: u64, used: u64| {
            if limit == 0 { Duration::MAX } else { Duration::from_secs(limit.saturating_sub(used)) }
        };
        Ok(self
            .session
            .min(left(self.user_daily_seconds, usage.user_seconds))
            .min(left(self.total_daily_seconds, usage.total_seconds)))
    }

    /// See [`Bounds`]; `margin` as in [`Limits::must_queue`].
    pub(crate) fn bounds(&self, margin: u64) -> Bounds {
        let bound = |limit: u64, below: u64| match limit {
            0 => Bounds::NONE,
            _ => i64::try_from(below).unwrap_or(Bounds::NONE),
        };
        let seconds = self.session.as_secs() + u64::from(self.session.subsec_nanos() > 0);
        let full_session = |limit: u64| bound(limit, limit.saturating_add(1).saturating_sub(seconds.max(1)));
        Bounds {
            user_sessions: bound(self.user_sessions, self.user_sessions),
            total_sessions: bound(self.total_sessions, self.total_sessions.saturating_sub(margin)),
            user_seconds: full_session(self.user_daily_seconds),
            total_seconds: full_session(self.total_daily_seconds),
        }
    }

    /// Whether the count of all sessions comes so close to the limit that starts must be counted one after the other.
    /// Fewer starts than `margin` are ever between their count and their commit.
    pub(crate) fn must_queue(&self, total_sessions: u64, margin: u64) -> bool {
        self.total_sessions > 0 && total_sessions.saturating_add(margin) >= self.total_sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        session: Duration::from_secs(3600),
        user_sessions: 2,
        total_sessions: 10,
        user_daily_seconds: 7200,
        total_daily_seconds: 0,
    };

    #[test]
    fn each_limit_refuses_by_its_own_name() {
        let refusal = |usage| LIMITS.grant(usage).err();
        assert_eq!(refusal(Usage { user_sessions: 2, ..Usage::default() }), Some(VoiceRefusal::UserSessions));
        assert_eq!(refusal(Usage { total_sessions: 10, ..Usage::default() }), Some(VoiceRefusal::TotalSessions));
        assert_eq!(refusal(Usage { user_seconds: 7200, ..Usage::default() }), Some(VoiceRefusal::UserDailySeconds));
        assert_eq!(refusal(Usage { total_seconds: u64::MAX, ..Usage::default() }), None);
    }

    #[test]
    fn below_its_bounds_a_start_gets_a_full_session() {
        let bounds = LIMITS.bounds(3);
        assert_eq!(
            bounds,
            Bounds { user_sessions: 2, total_sessions: 7, user_seconds: 3601, total_seconds: Bounds::NONE }
        );
        let last = |bound: i64| u64::try_from(bound - 1).unwrap();
        let below = Usage {
            user_sessions: last(bounds.user_sessions),
            total_sessions: last(bounds.total_sessions),
            user_seconds: last(bounds.user_seconds),
            total_seconds: u64::MAX,
        };
        assert_eq!(LIMITS.grant(below), Ok(LIMITS.session));
        assert!(!LIMITS.must_queue(below.total_sessions, 3));
        assert!(LIMITS.must_queue(below.total_sessions + 1, 3));
        assert!(LIMITS.grant(Usage { user_seconds: below.user_seconds + 1, ..below }).unwrap() < LIMITS.session);
        let short = Limits { user_daily_seconds: 60, ..LIMITS };
        assert_eq!(short.bounds(3).user_seconds, 0, "no usage leaves room for a full session");
        let odd = Limits { session: Duration::from_millis(1_500), user_daily_seconds: 2, ..LIMITS };
        assert_eq!(odd.bounds(3).user_seconds, 1, "one second of two leaves less than one and a half");
    }

    #[test]
    fn a_session_lasts_no_longer_than_the_seconds_that_are_left() {
        let granted = LIMITS.grant(Usage { user_seconds: 7000, ..Usage::default() });
        assert_eq!(granted, Ok(Duration::from_secs(200)));
        assert_eq!(LIMITS.grant(Usage::default()), Ok(Duration::from_secs(3600)));
    }
}
