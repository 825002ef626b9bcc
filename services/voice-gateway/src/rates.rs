//! Rate limits, counted on each replica. Limits that must hold exactly are counted in the database.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use ensemble_types::ids::GatewaySessionId;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::config::Rates as Config;
use crate::domain::caller::{KeyDigest, VoiceCaller};

pub(crate) struct Rates {
    /// Starts with the user's token, and without it, are counted apart: what others begin in a user's name, or with the same
    /// key, does not bound the user.
    keys: PerMinute<(KeyDigest, bool)>,
    users: PerMinute<(String, bool)>,
    addresses: PerMinute<IpAddr>,
    wrong_keys: PerMinute<IpAddr>,
    injections: PerMinute<GatewaySessionId>,
    tool_calls: PerMinute<GatewaySessionId>,
}

/// `None`: no limit.
struct PerMinute<K: Hash + Eq + Clone>(Option<DefaultKeyedRateLimiter<K>>);

impl Rates {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            keys: PerMinute::new(config.per_key),
            users: PerMinute::new(config.per_user),
            addresses: PerMinute::new(config.per_address),
            wrong_keys: PerMinute::new(config.wrong_keys),
            injections: PerMinute::new(config.injections),
            tool_calls: PerMinute::new(config.tool_calls),
        }
    }

    /// `Err`: the seconds to wait. The narrowest limit is checked first, so that a refused start does not use up the limit
    /// of the voice key, which all users of an application share.
    pub(crate) fn start(&self, caller: &VoiceCaller, user: &str) -> Result<(), u32> {
        let is_proven = caller.user.is_some();
        caller.address.map_or(Ok(()), |address| self.addresses.check(&address))?;
        self.users.check(&(user.to_owned(), is_proven))?;
        self.keys.check(&(caller.key, is_proven))
    }

    pub(crate) fn wrong_key(&self, address: Option<IpAddr>) -> Result<(), u32> {
        address.map_or(Ok(()), |address| self.wrong_keys.check(&address))
    }

    pub(crate) fn injection(&self, session: GatewaySessionId) -> Result<(), u32> {
        self.injections.check(&session)
    }

    pub(crate) fn tool_call(&self, session: GatewaySessionId) -> Result<(), u32> {
        self.tool_calls.check(&session)
    }

    /// Removes entries that have not been used for a while.
    pub(crate) fn remove_idle(&self) {
        self.keys.remove_idle();
        self.users.remove_idle();
        self.addresses.remove_idle();
        self.wrong_keys.remove_idle();
        self.injections.remove_idle();
        self.tool_calls.remove_idle();
    }
}

impl<K: Hash + Eq + Clone> PerMinute<K> {
    fn new(per_minute: u32) -> Self {
        Self(NonZeroU32::new(per_minute).map(|number| RateLimiter::keyed(Quota::per_minute(number))))
    }

    fn check(&self, key: &K) -> Result<(), u32> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        limiter.check_key(key).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1)
        })
    }

    fn remove_idle(&self) {
        if let Some(limiter) = &self.0 {
            limiter.retain_recent();
        }
    }
}
