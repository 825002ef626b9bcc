//! Looks for work that found nothing, so that not all requests that were notified together have to look.
//!
//! The requests of an account look one at a time. Those that were notified of one task are in a queue when the first one gets
//! it. The next one looks and finds nothing, and the others that ask for the same need not look: nothing has changed since.
//! A request that goes away before it has looked leaves no trace, so the next one looks.

use std::collections::HashMap;

use ensemble_types::ids::UserId;
use tokio::time::Instant;

use super::per_account_lock::TIMEOUT;
use crate::domain::RunnerRequest;

/// What notified a request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wake {
    /// When the request looked before.
    pub(crate) looked_at: Instant,
    /// The last notification for all machines of the account: a task is ready.
    pub(crate) account_at: Instant,
    /// The last notification for its machine alone: a task is ready, or an order.
    pub(crate) machine_at: Instant,
}

/// When such looks began. What a look finds is newer than any notification until then.
#[derive(Debug, Default)]
pub(crate) struct EmptyLooks {
    /// There was nothing for this request.
    requests: HashMap<RunnerRequest, Instant>,
    /// The account had no task that was ready.
    accounts: HashMap<UserId, Instant>,
}

impl EmptyLooks {
    /// Whether a request that was notified would find nothing, because another one has looked since.
    pub(crate) fn cover(&self, request: &RunnerRequest, wake: Wake) -> bool {
        let for_request = self.requests.get(request).is_some_and(|at| *at >= wake.account_at.max(wake.machine_at));
        let knows_machine = wake.looked_at >= wake.machine_at;
        for_request || (knows_machine && self.accounts.get(&request.owner).is_some_and(|at| *at >= wake.account_at))
    }

    /// Records a look, and forgets those that are older than a request waits for its turn to look.
    pub(crate) fn add(&mut self, request: RunnerRequest, began: Instant, is_any_ready: bool) {
        self.requests.retain(|_, at| began.duration_since(*at) <= TIMEOUT);
        self.accounts.retain(|_, at| began.duration_since(*at) <= TIMEOUT);
        if !is_any_ready {
            self.accounts.insert(request.owner, began);
        }
        self.requests.insert(request, began);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ensemble_types::runs::Provider;

    use super::*;

    fn request(owner: UserId, machine: &str) -> RunnerRequest {
        let (machine, providers) = (machine.parse().expect("an id"), vec![Provider::Claude]);
        RunnerRequest { owner, machine, providers, capacity: 1, slots: None, taken_orders: Vec::new() }
    }

    #[test]
    fn a_look_covers_the_notifications_before_it() {
        let (owner, start) = (UserId::generate(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let (one, other) = (request(owner, "one"), request(owner, "other"));
        let more = RunnerRequest { providers: vec![Provider::Claude, Provider::Codex], ..one.clone() };
        let of_account = |millis| Wake { looked_at: start, account_at: at(millis), machine_at: start };
        let of_machine = |millis| Wake { looked_at: start, account_at: start, machine_at: at(millis) };
        let mut looks = EmptyLooks::default();
        assert!(!looks.cover(&one, of_account(5)), "there was no look");
        looks.add(one.clone(), at(10), true);
        for wake in [of_account(5), of_account(10), of_machine(5), of_machine(10)] {
            assert!(looks.cover(&one, wake));
            assert!(!looks.cover(&more, wake) && !looks.cover(&other, wake), "they ask for something else");
        }
        assert!(!looks.cover(&one, of_account(11)) && !looks.cover(&one, of_machine(11)), "they are newer");
        looks.add(one.clone(), at(20), false);
        assert!(looks.cover(&other, of_account(20)) && looks.cover(&more, of_account(20)), "no task was ready");
        assert!(!looks.cover(&other, of_account(21)) && !looks.cover(&other, of_machine(15)), "it may be an order");
        assert!(!looks.cover(&request(UserId::generate(), "one"), of_account(20)), "another account");
    }

    #[test]
    fn old_looks_are_forgotten() {
        let (owner, start) = (UserId::generate(), Instant::now());
        let mut looks = EmptyLooks::default();
        looks.add(request(owner, "one"), start, false);
        looks.add(request(UserId::generate(), "other"), start + TIMEOUT * 2, false);
        assert_eq!((looks.requests.len(), looks.accounts.len()), (1, 1));
    }
}
