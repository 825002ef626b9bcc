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
    keys: Limit<(KeyDigest, bool)>,
    users: Limit<(String, bool)>,
    addresses: Limit<IpAddr>,
    /// Those of applications and of agents.
    wrong_keys: Limit<IpAddr>,
    injections: Limit<GatewaySessionId>,
    tool_calls: Limit<GatewaySessionId>,
    agent_calls: Limit<GatewaySessionId>,
}

/// `None`: no limit.
struct Limit<K: Hash + Eq + Clone>(Option<DefaultKeyedRateLimiter<K>>);

impl Rates {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            keys: Limit::new(config.per_key, Quota::per_minute),
            users: Limit::new(config.per_user, Quota::per_minute),
            addresses: Limit::new(config.per_address, Quota::per_minute),
            wrong_keys: Limit::new(config.wrong_keys, Quota::per_minute),
            injections: Limit::new(config.injections, Quota::per_minute),
            tool_calls: Limit::new(config.tool_calls, Quota::per_minute),
            agent_calls: Limit::new(config.agent_calls, Quota::per_second),
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

    pub(crate) fn agent_call(&self, session: GatewaySessionId) -> Result<(), u32> {
        self.agent_calls.check(&session)
    }

    /// Removes entries that have not been used for a while.
    pub(crate) fn remove_idle(&self) {
        self.keys.remove_idle();
        self.users.remove_idle();
        self.addresses.remove_idle();
        self.wrong_keys.remove_idle();
        self.injections.remove_idle();
        self.tool_calls.remove_idle();
        self.agent_calls.remove_idle();
    }
}

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(number: u32, per: fn(NonZeroU32) -> Quota) -> Self {
        Self(NonZeroU32::new(number).map(|number| RateLimiter::keyed(per(number))))
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
