//! How many voice sessions, and how many seconds of them, one user and all users together may have.

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
    /// Of all sessions together whose start came without the user's token. What they cannot have is left for proven users.
    pub(crate) unproven_sessions: u64,
    pub(crate) unproven_daily_seconds: u64,
}

/// What is in use at this moment, without the session that the start would replace. A user's own numbers are those of the
/// sessions that are proven, or not proven, as the start is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) user_sessions: u64,
    pub(crate) total_sessions: u64,
    pub(crate) user_seconds: u64,
    pub(crate) total_seconds: u64,
    /// Of all unproven sessions. `None`: the start is proven, so they do not bound it.
    pub(crate) unproven: Option<Unproven>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unproven {
    pub(crate) sessions: u64,
    pub(crate) seconds: u64,
}

/// More starts than this are never between their count and their commit, on all replicas together: each of them holds a connection
/// to the database. This is eight replicas with 16 connections, and the chart makes six. Above it a burst of starts at the limit can
/// go over the limit by what is more.
const IN_FLIGHT: u64 = 128;

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
        if usage.unproven.is_some_and(|used| full(self.unproven_sessions, used.sessions)) {
            return Err(VoiceRefusal::TotalSessions);
        }
        if full(self.user_daily_seconds, usage.user_seconds) {
            return Err(VoiceRefusal::UserDailySeconds);
        }
        if full(self.total_daily_seconds, usage.total_seconds) {
            return Err(VoiceRefusal::TotalDailySeconds);
        }
        if usage.unproven.is_some_and(|used| full(self.unproven_daily_seconds, used.seconds)) {
            return Err(VoiceRefusal::TotalDailySeconds);
        }
        let left = |limit: u64, used: u64| {
            if limit == 0 { Duration::MAX } else { Duration::from_secs(limit.saturating_sub(used)) }
        };
        Ok(self
            .session
            .min(left(self.user_daily_seconds, usage.user_seconds))
            .min(left(self.total_daily_seconds, usage.total_seconds))
            .min(usage.unproven.map_or(Duration::MAX, |used| left(self.unproven_daily_seconds, used.seconds))))
    }

    /// Whether a count of all sessions is so close to its limit that starts must be counted one after the other.
    pub(crate) fn is_near_total(&self, usage: &Usage) -> bool {
        let near = |limit: u64, used: u64| limit > 0 && used.saturating_add(IN_FLIGHT) >= limit;
        near(self.total_sessions, usage.total_sessions)
            || usage.unproven.is_some_and(|used| near(self.unproven_sessions, used.sessions))
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
        unproven_sessions: 8,
        unproven_daily_seconds: 0,
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
    fn starts_are_counted_one_by_one_near_the_limit_of_all_sessions() {
        let limits = Limits { total_sessions: 1_000, unproven_sessions: 750, ..LIMITS };
        let all = |total_sessions| Usage { total_sessions, ..Usage::default() };
        assert!(!limits.is_near_total(&all(1_000 - IN_FLIGHT - 1)));
        assert!(limits.is_near_total(&all(1_000 - IN_FLIGHT)));
        assert!(!Limits { total_sessions: 0, ..LIMITS }.is_near_total(&all(u64::MAX)));
        let unproven = |sessions| Usage { unproven: Some(Unproven { sessions, seconds: 0 }), ..Usage::default() };
        assert!(!limits.is_near_total(&unproven(750 - IN_FLIGHT - 1)));
        assert!(limits.is_near_total(&unproven(750 - IN_FLIGHT)));
    }

    #[test]
    fn unproven_sessions_leave_room_for_proven_ones() {
        let limits = Limits { total_daily_seconds: 9_000, unproven_daily_seconds: 6_000, ..LIMITS };
        let unproven = |sessions, seconds| Usage {
            total_sessions: sessions,
            total_seconds: seconds,
            unproven: Some(Unproven { sessions, seconds }),
            ..Usage::default()
        };
        assert_eq!(limits.grant(unproven(8, 0)), Err(VoiceRefusal::TotalSessions));
        assert_eq!(limits.grant(unproven(7, 6_000)), Err(VoiceRefusal::TotalDailySeconds));
        assert_eq!(limits.grant(unproven(7, 5_990)), Ok(Duration::from_secs(10)));
        let proven = |sessions, seconds| Usage { unproven: None, ..unproven(sessions, seconds) };
        assert_eq!(limits.grant(proven(8, 6_000)), Ok(Duration::from_secs(3_000)));
    }

    #[test]
    fn a_session_lasts_no_longer_than_the_seconds_that_are_left() {
        let granted = LIMITS.grant(Usage { user_seconds: 7000, ..Usage::default() });
        assert_eq!(granted, Ok(Duration::from_secs(200)));
        assert_eq!(LIMITS.grant(Usage::default()), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn one_less_than_a_limit_is_granted_and_zero_is_no_limit() {
        let all = Limits { total_daily_seconds: 9_000, ..LIMITS };
        let almost =
            Usage { user_sessions: 1, total_sessions: 9, user_seconds: 7_199, total_seconds: 8_990, unproven: None };
        assert_eq!(all.grant(almost), Ok(Duration::from_secs(1)));
        assert_eq!(all.grant(Usage { user_seconds: 0, ..almost }), Ok(Duration::from_secs(10)));
        let total = all.grant(Usage { total_seconds: 9_000, ..almost });
        assert_eq!(total, Err(VoiceRefusal::TotalDailySeconds));
        let none =
            Limits { user_sessions: 0, total_sessions: 0, user_daily_seconds: 0, total_daily_seconds: 0, ..LIMITS };
        let much = Usage {
            user_sessions: 99,
            total_sessions: 99,
            user_seconds: 99_999,
            total_seconds: 99_999,
            unproven: None,
        };
        assert_eq!(none.grant(much), Ok(LIMITS.session));
    }
}
