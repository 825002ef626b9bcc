//! How many requests a caller may send.
//!
//! GCRA, by the key that knows most of the caller: the machine token, the account, or the address. Counters live in this
//! process and are forgotten when they are full again.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::http::RateLimit;
use ensemble_chassis::places::Places;
use ensemble_chassis::shares::{Shares, limit_address};
use ensemble_chassis::{Caller, Vars};
use ensemble_types::ids::{TokenId, UserId};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::domain::route_table::Class;

const MINUTE: Duration = Duration::from_secs(60);

/// The policies: name in the header fields, variable, default, and what is counted in a minute.
const POLICIES: [(&str, &str, u32, &str); 7] = [
    ("account", "LIMIT_ACCOUNT", 600, "requests of one account"),
    ("address", "LIMIT_ADDRESS", 3_000, "requests without a valid token from one address"),
    ("machine", "LIMIT_MACHINE", 6_000, "requests of one machine token"),
    ("sign-in", "LIMIT_SIGN_IN", 60, "sign-in calls from one address"),
    ("public-link", "LIMIT_PUBLIC_LINK", 60, "readings of public links from one address"),
    ("device-link", "LIMIT_DEVICE_LINK", 3, "requests to link a device from one address"),
    ("look", "LIMIT_LOOK", 240, "looks of one account"),
];

/// Counts requests, and what callers hold at one time. Shared by all threads.
pub struct Limiter {
    /// In the order of [`POLICIES`].
    policies: [Policy; 7],
    /// Taken by a sign-in that may make an account. Only identity knows which one does; its answer says so.
    pub(crate) new_accounts: Places,
    pub(crate) streams: Arc<Shares<LimitKey>>,
    pub(crate) uploads: Arc<Shares<LimitKey>>,
    pub(crate) compressing: Arc<Shares<LimitKey>>,
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
    pub fn read(vars: &mut Vars) -> Self {
        let policies = POLICIES.map(|(name, variable, default, counted)| {
            Policy::new(name, vars.parse(variable, &format!("{counted} in a minute (0: no limit)"), default), counted)
        });
        let accounts = vars.parse("LIMIT_NEW_ACCOUNTS", "new accounts per hour from one address", 10);
        let new_accounts = Places::per_hour(accounts, "new-accounts", "new accounts from one address");
        let streams = vars.parse("MAX_STREAMS_PER_CALLER", "streams and long-polls of one caller at once", 1_000);
        // Each of them holds some 300 KiB on its way through.
        let uploads = vars.parse("MAX_UPLOADS", "bodies of more than 64 KiB that pass through at once", 256);
        let each = vars.parse("MAX_UPLOADS_PER_CALLER", "such bodies of one account, machine token or address", 32);
        Self {
            policies,
            new_accounts,
            // The bound of connections bounds streams in all.
            streams: Shares::new(streams, usize::MAX),
            uploads: Shares::new(each, uploads),
            // What is beyond goes out as it is.
            compressing: Shares::new(8, 64),
        }
    }

    /// Counts one request; `None` where there is no limit.
    pub(crate) fn count(&self, class: Class, limit_key: LimitKey, address: IpAddr) -> Option<RateLimit> {
        let [of_account, of_address, of_machine, sign_in, public_link, device_link, look] = &self.policies;
        let by_address = LimitKey::Address(limit_address(address));
        match (class, limit_key) {
            (Class::Exempt, _) | (Class::LiveFrames, LimitKey::Machine(_)) => None,
            (Class::SignIn, _) => sign_in.count(by_address),
            (Class::PublicLink, _) => public_link.count(by_address),
            (Class::DeviceLink, _) => device_link.count(by_address),
            (Class::Look, LimitKey::Account(_)) => look.count(limit_key),
            (Class::NeverThrottled, LimitKey::Machine(_)) => {
                of_machine.count(limit_key).map(|quota| RateLimit { refused_for: None, ..quota })
            }
            (_, LimitKey::Machine(_)) => of_machine.count(limit_key),
            (_, LimitKey::Account(_)) => of_account.count(limit_key),
            (_, LimitKey::Address(_)) => of_address.count(limit_key),
        }
    }

    /// Forgets the callers whose whole share is there again.
    pub(crate) fn sweep(&self) {
        for limiter in self.policies.iter().filter_map(|policy| policy.limiter.as_ref()) {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        self.new_accounts.sweep();
    }
}

struct Policy {
    name: &'static str,
    quota: u32,
    counted: &'static str,
    limiter: Option<RateLimiter<LimitKey, HashMapStateStore<LimitKey>, DefaultClock, StateInformationMiddleware>>,
}

impl Policy {
    fn new(name: &'static str, quota: u32, counted: &'static str) -> Self {
        let limiter = NonZeroU32::new(quota)
            .and_then(|burst| Some(Quota::with_period(MINUTE / quota)?.allow_burst(burst)))
            .map(|quota| RateLimiter::hashmap(quota).with_middleware());
        Self { name, quota, counted, limiter }
    }

    fn count(&self, key: LimitKey) -> Option<RateLimit> {
        let limiter = self.limiter.as_ref()?;
        let (left, refused_for) = match limiter.check_key(&key) {
            Ok(state) => (state.remaining_burst_capacity(), None),
            Err(not_yet) => (0, Some(not_yet.wait_time_from(limiter.clock().now()))),
        };
        let Self { name: policy, quota: most, counted, .. } = *self;
        Some(RateLimit { policy, most, window: Some(MINUTE), left, counted, refused_for })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn limiter() -> Limiter {
        limiter_of([3, 2, 1, 1, 1, 1, 1, 1])
    }

    fn limiter_of(quotas: [u32; 8]) -> Limiter {
        let names = ["ACCOUNT", "ADDRESS", "MACHINE", "SIGN_IN", "PUBLIC_LINK", "DEVICE_LINK", "LOOK", "NEW_ACCOUNTS"];
        let pairs = names.into_iter().zip(quotas);
        Limiter::read(&mut Vars::from_pairs(pairs.map(|(name, quota)| (format!("LIMIT_{name}"), quota.to_string()))))
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
        assert_eq!(quota.rate_limit(), "\"account\";r=2;t=20");
        assert_eq!(quota.policy(), "\"account\";q=3;w=60");
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
    fn live_frames_of_machines_are_not_counted() {
        let limiter = limiter();
        let token = LimitKey::Machine(TokenId::generate());
        for _ in 0..5 {
            assert!(limiter.count(Class::LiveFrames, token, ip("1.1.1.1")).is_none());
        }
        assert!(limiter.count(Class::Ordinary, token, ip("1.1.1.1")).is_some_and(|quota| quota.refused_for.is_none()));
        assert!(limiter.count(Class::LiveFrames, LimitKey::new(None, ip("2.2.2.2")), ip("2.2.2.2")).is_some());
    }

    #[test]
    fn a_caller_whose_share_is_there_again_is_forgotten() {
        // A request counts for 60 ns.
        let limiter = limiter_of([1_000_000_000, 1, 1, 1, 1, 1, 1, 1]);
        let known = || limiter.policies[0].limiter.as_ref().expect("a limit").len();
        limiter.count(Class::Ordinary, LimitKey::Account(UserId::generate()), ip("1.1.1.1"));
        limiter.count(Class::SignIn, LimitKey::Address(ip("1.1.1.1")), ip("1.1.1.1"));
        assert_eq!(known(), 1);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        limiter.sweep();
        assert_eq!(known(), 0);
        let sign_in = limiter.policies[3].limiter.as_ref().expect("a limit");
        assert_eq!(sign_in.len(), 1, "its share is there again in a minute");
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
    fn a_refusal_says_what_was_counted_and_when_it_ends() {
        let limiter = limiter();
        let address = ip("5.5.5.5");
        for (class, key, detail) in [
            (
                Class::Ordinary,
                LimitKey::Account(UserId::generate()),
                "At most 3 requests of one account are allowed in a minute.",
            ),
            (
                Class::Ordinary,
                LimitKey::Address(address),
                "At most 2 requests without a valid token from one address are",
            ),
            (Class::Ordinary, LimitKey::Machine(TokenId::generate()), "At most 1 requests of one machine token are"),
            (Class::SignIn, LimitKey::Address(address), "At most 1 sign-in calls from one address are"),
            (Class::PublicLink, LimitKey::Address(address), "At most 1 readings of public links from one address are"),
            (Class::DeviceLink, LimitKey::Address(address), "At most 1 requests to link a device from one address are"),
            (Class::Look, LimitKey::Account(UserId::generate()), "At most 1 looks of one account are"),
        ] {
            let mut quota = limiter.count(class, key, address).expect("a limit");
            assert!(quota.refused_for.is_none());
            while quota.refused_for.is_none() {
                quota = limiter.count(class, key, address).expect("a limit");
            }
            let problem = quota.problem();
            let seconds = problem.retry_after.expect("an end");
            assert!((1..=60).contains(&seconds), "{seconds}");
            assert!(problem.detail.starts_with(detail), "{}", problem.detail);
            assert!(
                problem.detail.ends_with(&format!(" The next one is allowed in {seconds} s.")),
                "{}",
                problem.detail
            );
        }
    }

    #[test]
    fn zero_is_no_limit() {
        assert!(limiter_of([0; 8]).count(Class::SignIn, LimitKey::Address(ip("1.1.1.1")), ip("1.1.1.1")).is_none());
    }

    fn caller(machine: Option<&str>) -> Caller {
        Caller {
            user: UserId::generate(),
            machine: machine.map(|id| id.parse().expect("an id")),
            device: None,
            is_recovery: false,
            token: TokenId::generate(),
            expires_at: ensemble_types::time::Timestamp::from_unix_seconds(0),
        }
    }

    #[test]
    fn a_request_counts_against_what_is_known_of_its_caller() {
        let (user, machine) = (caller(None), caller(Some("m")));
        let address = ip("2001:db8:1:2:3:4:5:6");
        assert_eq!(LimitKey::new(Some(&user), address), LimitKey::Account(user.user));
        assert_eq!(LimitKey::new(Some(&machine), address), LimitKey::Machine(machine.token));
        assert_eq!(LimitKey::new(None, address), LimitKey::Address(ip("2001:db8:1:2::")));
    }

    #[test]
    fn each_kind_of_caller_has_a_policy_of_its_own() {
        let limiter = limiter();
        let address = ip("4.4.4.4");
        for (class, key, policy) in [
            (Class::Ordinary, LimitKey::Account(UserId::generate()), "\"account\";q=3;w=60"),
            (Class::Ordinary, LimitKey::Address(address), "\"address\";q=2;w=60"),
            (Class::Ordinary, LimitKey::Machine(TokenId::generate()), "\"machine\";q=1;w=60"),
            (Class::SignIn, LimitKey::Address(address), "\"sign-in\";q=1;w=60"),
            (Class::PublicLink, LimitKey::Address(address), "\"public-link\";q=1;w=60"),
            (Class::DeviceLink, LimitKey::Account(UserId::generate()), "\"device-link\";q=1;w=60"),
            (Class::Look, LimitKey::Account(UserId::generate()), "\"look\";q=1;w=60"),
            (Class::Look, LimitKey::Address(address), "\"address\";q=2;w=60"),
            (Class::NeverThrottled, LimitKey::Account(UserId::generate()), "\"account\";q=3;w=60"),
        ] {
            assert_eq!(limiter.count(class, key, address).expect("a limit").policy(), policy);
        }
    }
}
