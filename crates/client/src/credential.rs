//! The identity of a client, and the short-lived token that an account key is exchanged for.

use std::time::{Duration, Instant};

use ensemble_types::ids::UserId;
use ensemble_types::invites::Admission;
use ensemble_types::time::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use ensemble_protocol::AccountKey;

/// The identity of a client.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// No identity: for signing in, public links and the well-known documents.
    #[default]
    Anonymous,
    /// A token from elsewhere: a machine token, or a user token that is not renewed.
    Bearer(SecretString),
    /// The key of an account or of one of its devices: tokens are fetched when needed and renewed before they expire. A key that
    /// the service does not know makes an account.
    Account(AccountKey),
    /// The same, where a new account needs an invitation.
    Invited(AccountKey, Admission),
    /// The same, and it never makes an account.
    Device(AccountKey),
}

impl Credential {
    /// The key, and whether it may make an account.
    pub(crate) fn key(&self) -> Option<(&AccountKey, bool)> {
        match self {
            Self::Account(key) | Self::Invited(key, _) => Some((key, true)),
            Self::Device(key) => Some((key, false)),
            Self::Anonymous | Self::Bearer(_) => None,
        }
    }

    pub(crate) fn admission(&self) -> Option<&Admission> {
        match self {
            Self::Invited(_, admission) => Some(admission),
            _ => None,
        }
    }
}

/// A user token from a sign-in.
#[derive(Clone, Debug)]
pub struct Token {
    pub token: SecretString,
    pub user_id: UserId,
    pub expires_at: Timestamp,
    /// When to renew it. Measured with the monotonic clock, so that a wrong wall clock does not matter.
    pub(crate) renew_at: Instant,
}

impl Token {
    /// A token from an earlier process, and its remaining lifetime.
    pub fn stored(token: SecretString, user_id: UserId, expires_at: Timestamp, left: Duration) -> Self {
        Self { token, user_id, expires_at, renew_at: Instant::now() + renewal(left) }
    }

    pub(crate) fn is_fresh(&self) -> bool {
        Instant::now() < self.renew_at
    }

    pub(crate) fn expose(&self) -> &str {
        self.token.expose_secret()
    }
}

/// A token is renewed one minute before it expires, or in the last tenth of a short lifetime.
fn renewal(left: Duration) -> Duration {
    left.saturating_sub((left / 10).min(Duration::from_secs(60)))
}
