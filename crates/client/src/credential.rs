//! As whom a client calls, and the short-lived token that an account key is exchanged for.

use std::time::{Duration, Instant};

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use crate::account_key::AccountKey;

/// As whom a client calls.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// As nobody: signing in, public links, the well-known documents.
    #[default]
    Anonymous,
    /// With a token that was made elsewhere: a machine token, or a user token that is not renewed.
    Bearer(SecretString),
    /// As the holder of an account key: tokens are fetched when they are needed and renewed before they expire.
    Account(AccountKey),
}

/// A user token, as a sign-in gives it.
#[derive(Clone, Debug)]
pub struct Token {
    pub token: SecretString,
    pub user_id: UserId,
    pub expires_at: Timestamp,
    /// When this process should have another one. By the monotonic clock, so that a wrong wall clock does not matter.
    pub(crate) renew_at: Instant,
}

impl Token {
    /// A token that was kept from before, with what is left of its life.
    pub fn kept(token: SecretString, user_id: UserId, expires_at: Timestamp, left: Duration) -> Self {
        Self { token, user_id, expires_at, renew_at: Instant::now() + renewal(left) }
    }

    pub(crate) fn is_fresh(&self) -> bool {
        Instant::now() < self.renew_at
    }

    pub(crate) fn expose(&self) -> &str {
        self.token.expose_secret()
    }
}

/// A token is renewed a minute before its end, or in the last tenth of a short life.
fn renewal(left: Duration) -> Duration {
    left.saturating_sub((left / 10).min(Duration::from_secs(60)))
}
