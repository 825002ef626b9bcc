//! What a queued task waits for.

use ensemble_types::runs::{Provider, TaskStatus, WaitingFor};

/// A runner that asked for leases lately.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) machine: String,
    pub(crate) providers: Vec<Provider>,
}

/// What there is to know about a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits<'a> {
    pub(crate) status: TaskStatus,
    pub(crate) open_deps: i32,
    pub(crate) paused: bool,
    pub(crate) provider: Provider,
    /// The only machine that may take it, if there is one.
    pub(crate) machine: Option<&'a str>,
    pub(crate) run_is_full: bool,
}

/// The first thing that keeps a queued task from running; nothing when a runner will take it at any moment.
pub(crate) fn waiting_for(task: Waits<'_>, runners: &[Runner]) -> Option<WaitingFor> {
    let able = |runner: &Runner| {
        runner.providers.contains(&task.provider) && task.machine.is_none_or(|machine| machine == runner.machine)
    };
    if task.status != TaskStatus::Queued {
        None
    } else if task.open_deps > 0 {
        Some(WaitingFor::Dependencies)
    } else if task.paused {
        Some(WaitingFor::Backoff)
    } else if !runners.iter().any(able) {
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
    fn the_first_obstacle_is_named() {
        let runners = [Runner { machine: "a".to_owned(), providers: vec![Provider::Claude] }];
        let task = Waits {
            status: TaskStatus::Queued,
            open_deps: 0,
            paused: false,
            provider: Provider::Claude,
            machine: None,
            run_is_full: false,
        };
        let expect = |task, waits| assert_eq!(waiting_for(task, &runners), waits, "{task:?}");
        expect(task, None);
        expect(Waits { run_is_full: true, ..task }, Some(WaitingFor::Concurrency));
        expect(Waits { machine: Some("b"), run_is_full: true, ..task }, Some(WaitingFor::Machine));
        expect(Waits { provider: Provider::Codex, ..task }, Some(WaitingFor::Machine));
        expect(Waits { paused: true, ..task }, Some(WaitingFor::Backoff));
        expect(Waits { open_deps: 1, paused: true, ..task }, Some(WaitingFor::Dependencies));
        expect(Waits { status: TaskStatus::Running, ..task }, None);
    }
}
