//! How many requests a caller may send, and the fields that say so (RateLimit header fields for HTTP, draft 11).
//!
//! GCRA, by the key that knows most of the caller: the machine token, the account, or the address. Counters live in this
//! process and are forgotten when they are full again.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::header::HeaderValue;
use ensemble_chassis::Caller;
use ensemble_types::ids::{TokenId, UserId};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::domain::client_address::limit_address;
use crate::domain::route_table::Class;

/// Requests per minute; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    pub account: u32,
    pub address: u32,
    pub machine: u32,
    pub sign_in: u32,
    pub public_link: u32,
    /// Per hour.
    pub new_accounts: u32,
}

/// Counts requests. Shared by all threads.
pub(crate) struct Limiter {
    account: Policy<UserId>,
    address: Policy<IpAddr>,
    machine: Policy<TokenId>,
    sign_in: Policy<IpAddr>,
    public_link: Policy<IpAddr>,
    new_accounts: Policy<IpAddr>,
    /// Addresses that have made all the accounts they may, and until when.
    exhausted: Mutex<HashMap<IpAddr, Instant>>,
}

/// What a limiter decided about one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaStatus {
    policy: &'static str,
    quota: u32,
    window: Duration,
    remaining: u32,
    /// Set when there is nothing left: how long until there is.
    pub refused_for: Option<Duration>,
}

/// What a request is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LimitKey {
    Account(UserId),
    Machine(TokenId),
    Address(IpAddr),
}

impl LimitKey {
    pub(crate) fn new(caller: Option<&Caller>, address: IpAddr) -> Self {
        match caller {
            Some(caller) if caller.machine.is_some() => Self::Machine(caller.token),
            Some(caller) => Self::Account(caller.user),
            None => Self::Address(limit_address(address)),
        }
    }
}

impl Limiter {
    pub(crate) fn new(quotas: Quotas) -> Self {
        let minute = Duration::from_secs(60);
        Self {
            account: Policy::new("\"account\"", quotas.account, minute),
            address: Policy::new("\"address\"", quotas.address, minute),
            machine: Policy::new("\"machine\"", quotas.machine, minute),
            sign_in: Policy::new("\"sign-in\"", quotas.sign_in, minute),
            public_link: Policy::new("\"public-link\"", quotas.public_link, minute),
            new_accounts: Policy::new("\"new-accounts\"", quotas.new_accounts, Duration::from_secs(3600)),
            exhausted: Mutex::default(),
        }
    }

    /// Counts one request; `None` where there is no limit.
    pub(crate) fn count(&self, class: Class, limit_key: LimitKey, address: IpAddr) -> Option<QuotaStatus> {
        match (class, limit_key) {
            (Class::Exempt, _) => None,
            (Class::SignIn, _) => self.sign_in.count(&limit_address(address)),
            (Class::PublicLink, _) => self.public_link.count(&limit_address(address)),
            (Class::NeverThrottled, LimitKey::Machine(token)) => {
                self.machine.count(&token).map(|quota| QuotaStatus { refused_for: None, ..quota })
            }
            (_, LimitKey::Machine(token)) => self.machine.count(&token),
            (_, LimitKey::Account(user)) => self.account.count(&user),
            (_, LimitKey::Address(address)) => self.address.count(&address),
        }
    }

    /// Counts one new account. Only identity knows which sign-in makes one; its answer says so.
    pub(crate) fn count_new_account(&self, address: IpAddr) {
        let address = limit_address(address);
        if let Some(quota) = self.new_accounts.count(&address)
            && quota.remaining == 0
        {
            let until = Instant::now() + quota.window / quota.quota.max(1);
            self.exhausted().insert(address, until);
        }
    }

    /// May a sign-in from `address` make an account?
    pub(crate) fn may_make_account(&self, address: IpAddr) -> bool {
        self.exhausted().get(&limit_address(address)).is_none_or(|until| *until <= Instant::now())
    }

    fn exhausted(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.exhausted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the callers whose whole share is there again.
    pub(crate) fn sweep(&self) {
        self.account.sweep();
        self.address.sweep();
        self.machine.sweep();
        self.sign_in.sweep();
        self.public_link.sweep();
        self.new_accounts.sweep();
        self.exhausted().retain(|_, until| *until > Instant::now());
    }
}

impl QuotaStatus {
    /// `"account";r=599;t=1`: what is left, and the seconds until all of it is there again.
    pub(crate) fn rate_limit(&self) -> Option<HeaderValue> {
        let spent = u64::from(self.quota.saturating_sub(self.remaining));
        let refill = (spent * self.window.as_secs()).div_ceil(u64::from(self.quota.max(1)));
        HeaderValue::try_from(format!("{};r={};t={refill}", self.policy, self.remaining)).ok()
    }

    /// `"account";q=600;w=60`
    pub(crate) fn policy(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("{};q={};w={}", self.policy, self.quota, self.window.as_secs())).ok()
    }
}

type Keyed<K> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, StateInformationMiddleware>;

struct Policy<K: Hash + Eq + Clone> {
    name: &'static str,
    quota: u32,
    window: Duration,
    limiter: Option<Keyed<K>>,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> Policy<K> {
    fn new(name: &'static str, quota: u32, window: Duration) -> Self {
        let limiter = NonZeroU32::new(quota)
            .and_then(|burst| Some(Quota::with_period(window / quota)?.allow_burst(burst)))
            .map(|quota| RateLimiter::dashmap(quota).with_middleware());
        Self { name, quota, window, limiter, clock: DefaultClock::default() }
    }

    fn count(&self, key: &K) -> Option<QuotaStatus> {
        let (remaining, refused_for) = match self.limiter.as_ref()?.check_key(key) {
            Ok(state) => (state.remaining_burst_capacity(), None),
            Err(not_yet) => (0, Some(not_yet.wait_time_from(self.clock.now()))),
        };
        Some(QuotaStatus { policy: self.name, quota: self.quota, window: self.window, remaining, refused_for })
    }

    fn sweep(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(Quotas { account: 3, address: 2, machine: 1, sign_in: 1, public_link: 1, new_accounts: 1 })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_key_has_a_share_of_its_own() {
        let limiter = limiter();
        let (one, other) = (UserId::generate(), UserId::generate());
        let count = |user| limiter.count(Class::Ordinary, LimitKey::Account(user), ip("1.1.1.1")).expect("a limit");
        assert_eq!((0..3).filter(|_| count(one).refused_for.is_none()).count(), 3);
        let refused = count(one);
        assert!(refused.refused_for.is_some_and(|wait| wait > Duration::ZERO && wait <= Duration::from_secs(20)));
        assert!(count(other).refused_for.is_none());
    }

    #[test]
    fn the_fields_say_what_is_left() {
        let quota =
            limiter().count(Class::Ordinary, LimitKey::Account(UserId::generate()), ip("1.1.1.1")).expect("a limit");
        assert_eq!(quota.rate_limit().expect("a value"), "\"account\";r=2;t=20");
        assert_eq!(quota.policy().expect("a value"), "\"account\";q=3;w=60");
    }

    #[test]
    fn a_runners_report_is_counted_and_not_refused() {
        let limiter = limiter();
        let token = LimitKey::Machine(TokenId::generate());
        for _ in 0..5 {
            let quota = limiter.count(Class::NeverThrottled, token, ip("1.1.1.1")).expect("a limit");
            assert_eq!(quota.refused_for, None);
        }
        assert!(limiter.count(Class::Ordinary, token, ip("1.1.1.1")).is_some_and(|quota| quota.refused_for.is_some()));
        let stranger = LimitKey::new(None, ip("2.2.2.2"));
        let refused =
            (0..3).filter_map(|_| limiter.count(Class::NeverThrottled, stranger, ip("2.2.2.2"))?.refused_for).count();
        assert_eq!(refused, 1, "a report without a token is a request like others");
    }

    #[test]
    fn strict_classes_count_by_address() {
        let limiter = limiter();
        let count =
            |class| limiter.count(class, LimitKey::Account(UserId::generate()), ip("3.3.3.3")).expect("a limit");
        assert!(count(Class::SignIn).refused_for.is_none());
        assert!(count(Class::SignIn).refused_for.is_some());
        assert!(count(Class::PublicLink).refused_for.is_none(), "another share");
        assert!(limiter.count(Class::Exempt, LimitKey::Address(ip("3.3.3.3")), ip("3.3.3.3")).is_none());
    }

    #[test]
    fn zero_is_no_limit() {
        let none = Quotas { account: 0, address: 0, machine: 0, sign_in: 0, public_link: 0, new_accounts: 0 };
        assert!(Limiter::new(none).count(Class::SignIn, LimitKey::Address(ip("1.1.1.1")), ip("1.1.1.1")).is_none());
    }

    #[test]
    fn an_address_makes_so_many_accounts_and_no_more() {
        let limiter = limiter();
        assert!(limiter.may_make_account(ip("1.1.1.1")));
        limiter.count_new_account(ip("1.1.1.1"));
        assert!(!limiter.may_make_account(ip("1.1.1.1")));
        assert!(limiter.may_make_account(ip("2.2.2.2")));
        limiter.sweep();
        assert!(!limiter.may_make_account(ip("1.1.1.1")), "its hour is not over");
    }
}
