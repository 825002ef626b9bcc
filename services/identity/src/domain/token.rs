//! How long tokens live.

use std::time::Duration;

use ensemble_types::accounts;
use ensemble_types::ids::{MachineId, TokenId, UserId};
use ensemble_types::time::Timestamp;

/// The shortest life of a machine token.
const MACHINE_MIN_SECONDS: u32 = 60;
const RECOVERY: Duration = Duration::from_secs(600);

/// How long tokens live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenLifetimes {
    pub(crate) user: Duration,
    /// The longest life of a machine token, and the default.
    pub(crate) machine_max_seconds: u32,
}

/// A machine's token, without the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineToken {
    pub(crate) id: TokenId,
    pub(crate) user: UserId,
    pub(crate) machine: MachineId,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// The machine signed in with a key of its own.
    pub(crate) by_key: bool,
}

/// `expiresInSeconds` is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number from {MACHINE_MIN_SECONDS} to {max}")]
pub(crate) struct BadLifetime {
    max: u32,
}

impl TokenLifetimes {
    /// The longest life of any token.
    pub(crate) fn longest(&self) -> Duration {
        self.user.max(Duration::from_secs(u64::from(self.machine_max_seconds)))
    }

    /// The life of a token that recovery words ask for: enough to make a new device.
    pub(crate) fn recovery(&self) -> Duration {
        self.user.min(RECOVERY)
    }

    /// The life of a machine's token.
    pub(crate) fn machine(&self, wanted_seconds: Option<u32>) -> Result<Duration, BadLifetime> {
        let max = self.machine_max_seconds;
        match wanted_seconds {
            None => Ok(Duration::from_secs(u64::from(max))),
            Some(seconds) if (MACHINE_MIN_SECONDS..=max).contains(&seconds) => {
                Ok(Duration::from_secs(u64::from(seconds)))
            }
            Some(_) => Err(BadLifetime { max }),
        }
    }
}

impl From<MachineToken> for accounts::MachineToken {
    fn from(token: MachineToken) -> Self {
        Self { id: token.id, machine_id: token.machine, created_at: token.created_at, expires_at: token.expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_token_lives_a_minute_to_ninety_days() {
        let lifetimes = TokenLifetimes { user: Duration::from_secs(3_600), machine_max_seconds: 7_776_000 };
        assert_eq!(lifetimes.machine(None), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(lifetimes.machine(Some(60)), Ok(Duration::from_secs(60)));
        for seconds in [0, 59, 7_776_001, u32::MAX] {
            assert!(lifetimes.machine(Some(seconds)).is_err());
        }
        assert_eq!(lifetimes.longest(), Duration::from_secs(90 * 86_400));
        assert_eq!(lifetimes.recovery(), Duration::from_secs(600));
    }

    #[test]
    fn the_longest_life_is_that_of_the_longer_kind() {
        let longest = |user: u64, machine_max_seconds| {
            TokenLifetimes { user: Duration::from_secs(user), machine_max_seconds }.longest().as_secs()
        };
        assert_eq!((longest(100, 60), longest(100, 200)), (100, 200));
        let lifetimes = TokenLifetimes { user: Duration::from_secs(1), machine_max_seconds: 7_776_000 };
        assert_eq!(lifetimes.machine(Some(7_776_000)), Ok(Duration::from_secs(7_776_000)));
    }
}
