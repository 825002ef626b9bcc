//! What runners name in their requests: the tasks that they can run, and the lease that they hold.

use std::time::Duration;

use ensemble_types::ids::{LeaseId, MachineId, OrderId, UserId};
use ensemble_types::runs::Provider;

/// What a runner can run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunnerRequest {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) providers: Vec<Provider>,
    /// How many tasks it wants at most.
    pub(crate) capacity: u32,
    /// How many it runs at once at most.
    pub(crate) slots: Option<u32>,
    /// The orders that it is carrying out.
    pub(crate) taken_orders: Vec<OrderId>,
}

impl RunnerRequest {
    /// Otherwise it asks for orders only.
    pub(crate) fn wants_tasks(&self) -> bool {
        self.capacity > 0 && !self.providers.is_empty()
    }

    /// The names of its providers, separated by commas.
    pub(crate) fn names(&self) -> String {
        self.providers.iter().map(Provider::as_str).collect::<Vec<_>>().join(",")
    }
}

/// A runner that requested leases and counts as active for some time.
#[derive(Clone, Debug)]
pub(crate) struct ActiveRunner {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    /// As in [`RunnerRequest::names`].
    pub(crate) providers: String,
    pub(crate) slots: Option<u32>,
    pub(crate) active_for: Duration,
}

/// What identifies a lease in a runner's request. A request for the lease of another account or machine finds nothing.
#[derive(Clone, Debug)]
pub(crate) struct LeaseCall {
    pub(crate) lease: LeaseId,
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    /// The number of the runner's attempt. It does not count any more when the task has a newer attempt.
    pub(crate) fence: i64,
}

impl LeaseCall {
    /// The fence is the number of the attempt. A number that no attempt can have matches none.
    pub(crate) fn attempt(&self) -> i32 {
        i32::try_from(self.fence).unwrap_or(-1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_that_has_no_room_or_no_provider_asks_for_orders_only() {
        for (capacity, providers, wants_tasks) in [
            (1, vec![Provider::Claude], true),
            (9, vec![Provider::Claude, Provider::Codex], true),
            (0, vec![Provider::Claude], false),
            (1, vec![], false),
        ] {
            let (owner, machine) = (UserId::generate(), "m".parse().unwrap());
            let request = RunnerRequest { owner, machine, providers, capacity, slots: None, taken_orders: Vec::new() };
            assert_eq!(request.wants_tasks(), wants_tasks, "{request:?}");
        }
    }

    #[test]
    fn a_fence_that_no_attempt_can_have_matches_none() {
        let attempt = |fence| {
            let machine = "m".parse().unwrap();
            LeaseCall { lease: LeaseId::generate(), owner: UserId::generate(), machine, fence }.attempt()
        };
        assert_eq!((attempt(1), attempt(i64::from(i32::MAX))), (1, i32::MAX));
        // Attempts count from 1.
        for fence in [i64::from(i32::MAX) + 1, i64::MAX, i64::MIN] {
            assert!(attempt(fence) < 0, "{fence}");
        }
    }
}
