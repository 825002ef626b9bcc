//! What a queued task waits for.

use ensemble_types::runs::{Provider, TaskStatus, WaitingFor};

/// A runner that requested leases recently.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) machine: String,
    pub(crate) providers: Vec<Provider>,
}

/// Everything that can keep a task from starting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Obstacles<'a> {
    pub(crate) status: TaskStatus,
    pub(crate) open_deps: i32,
    pub(crate) paused: bool,
    pub(crate) provider: Provider,
    /// The only machine that may run it, if there is one.
    pub(crate) machine: Option<&'a str>,
    pub(crate) run_is_full: bool,
}

/// The first obstacle that keeps a queued task from starting. `None` when a runner can lease it now.
pub(crate) fn waiting_for(task: Obstacles<'_>, runners: &[Runner]) -> Option<WaitingFor> {
    let can_run = |runner: &Runner| {
        runner.providers.contains(&task.provider) && task.machine.is_none_or(|machine| machine == runner.machine)
    };
    if task.status != TaskStatus::Queued {
        None
    } else if task.open_deps > 0 {
        Some(WaitingFor::Dependencies)
    } else if task.paused {
        Some(WaitingFor::Backoff)
    } else if !runners.iter().any(can_run) {
        Some(WaitingFor::Machine)
    } else if task.run_is_full {
        Some(WaitingFor::Concurrency)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_obstacle_is_reported() {
        let runners = [Runner { machine: "a".to_owned(), providers: vec![Provider::Claude] }];
        let task = Obstacles {
            status: TaskStatus::Queued,
            open_deps: 0,
            paused: false,
            provider: Provider::Claude,
            machine: None,
            run_is_full: false,
        };
        let expect = |task, obstacle| assert_eq!(waiting_for(task, &runners), obstacle, "{task:?}");
        expect(task, None);
        expect(Obstacles { run_is_full: true, ..task }, Some(WaitingFor::Concurrency));
        expect(Obstacles { machine: Some("b"), run_is_full: true, ..task }, Some(WaitingFor::Machine));
        expect(Obstacles { provider: Provider::Codex, ..task }, Some(WaitingFor::Machine));
        expect(Obstacles { paused: true, ..task }, Some(WaitingFor::Backoff));
        expect(Obstacles { open_deps: 1, paused: true, ..task }, Some(WaitingFor::Dependencies));
        expect(Obstacles { status: TaskStatus::Running, ..task }, None);
    }
}
