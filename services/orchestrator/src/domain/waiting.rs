//! What a queued task waits for, and why, for people.

use ensemble_types::runs::{Provider, Refusal, TaskStatus, WaitingFor};
use ensemble_types::time::Timestamp;

/// The longest reason, in characters. The interface promises it.
const LONGEST_REASON: usize = 512;
/// Machines that a reason describes. The others are counted.
const DESCRIBED: usize = 4;

/// A machine whose runner has asked for leases.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) machine: String,
    pub(crate) providers: Vec<Provider>,
    /// How many attempts it runs at once at most, if it said so.
    pub(crate) slots: Option<i64>,
    /// Its open leases.
    pub(crate) running: i64,
    /// Until when it counts as active.
    pub(crate) seen_until: Timestamp,
    pub(crate) is_active: bool,
    /// The providers whose usage limits are reached there, and when they can be used again.
    pub(crate) held: Vec<(Provider, Timestamp)>,
}

impl Runner {
    fn is_full(&self) -> bool {
        self.slots.is_some_and(|slots| self.running >= slots)
    }
}

/// That the agent of a task asks something.
pub(crate) const ASKS_A_PERSON: &str = "The agent asks something. Answer it in the session of the task.";

/// Everything that can keep a task from starting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Obstacles<'a> {
    pub(crate) status: TaskStatus,
    pub(crate) open_deps: i32,
    /// The end of the pause before its next attempt.
    pub(crate) paused_until: Option<Timestamp>,
    pub(crate) provider: Provider,
    /// The only machine that may run it, if there is one.
    pub(crate) machine: Option<&'a str>,
    /// The owner chose the machine.
    pub(crate) is_pinned: bool,
    pub(crate) refusals: &'a [Refusal],
    /// The run has as many running tasks as it may have.
    pub(crate) full_run: Option<u32>,
}

/// The first obstacle that keeps a queued task from starting, and a sentence about it. `None` when a runner can lease it
/// now.
pub(crate) fn waiting_for(task: Obstacles<'_>, runners: &[Runner]) -> Option<(WaitingFor, String)> {
    let (obstacle, reason) = if task.status != TaskStatus::Queued {
        return None;
    } else if task.open_deps > 0 {
        let tasks = if task.open_deps == 1 { "task that has" } else { "tasks that have" };
        (WaitingFor::Dependencies, format!("It depends on {} {tasks} not completed.", task.open_deps))
    } else if let Some(until) = task.paused_until {
        (WaitingFor::Backoff, format!("Its last attempt failed. The next one starts at {until}."))
    } else if let Some(reason) = task.limits(runners) {
        (WaitingFor::Quota, reason)
    } else if let Some(running) = task.full_run {
        (WaitingFor::Concurrency, format!("{running} tasks of the run are running, and no more may at once."))
    } else if runners.iter().any(|runner| task.can_use(runner) && !runner.is_full()) {
        return None;
    } else {
        (WaitingFor::Machine, task.machines(runners))
    };
    Some((obstacle, shorten(reason)))
}

impl Obstacles<'_> {
    fn may_have(&self, runner: &Runner) -> bool {
        self.machine.is_none_or(|machine| machine == runner.machine) && self.refusal_of(&runner.machine).is_none()
    }

    fn can_run_on(&self, runner: &Runner) -> bool {
        runner.is_active && runner.providers.contains(&self.provider) && self.may_have(runner)
    }

    /// Until when the provider cannot be used on a machine, because its usage limit is reached there.
    fn held_until(&self, runner: &Runner) -> Option<Timestamp> {
        runner.held.iter().find(|(provider, _)| *provider == self.provider).map(|(_, until)| *until)
    }

    /// It can run on this machine, and the provider's usage limit is not reached there.
    fn can_use(&self, runner: &Runner) -> bool {
        self.can_run_on(runner) && self.held_until(runner).is_none()
    }

    /// That the provider's usage limit is reached wherever the task could run.
    fn limits(&self, runners: &[Runner]) -> Option<String> {
        if runners.iter().any(|runner| self.can_use(runner)) {
            return None;
        }
        let may = runners.iter().filter(|runner| runner.providers.contains(&self.provider) && self.may_have(runner));
        let mut held: Vec<_> = may.filter_map(|runner| Some((self.held_until(runner)?, runner))).collect();
        held.sort_by_key(|(until, runner)| (*until, &runner.machine));
        let (until, first) = held.first()?;
        let mut reason = format!("{}'s limit on {} is reached; continues at {until}", self.provider, first.machine);
        if !first.is_active {
            reason.push_str(&format!(" when the machine is back, which is away since {}", first.seen_until));
        }
        for (until, runner) in held.iter().skip(1).take(DESCRIBED - 1) {
            reason.push_str(&format!("; on {} at {until}", runner.machine));
        }
        Some(reason + ".")
    }

    fn refusal_of(&self, machine: &str) -> Option<&Refusal> {
        self.refusals.iter().rev().find(|refusal| refusal.machine_id.as_str() == machine)
    }

    /// Why no machine takes it.
    fn machines(&self, runners: &[Runner]) -> String {
        if let Some(machine) = self.machine {
            let bound =
                if self.is_pinned { "It is pinned to the machine" } else { "The run's tasks are on the machine" };
            return match runners.iter().find(|runner| runner.machine == machine) {
                None => format!("{bound} {machine}, which has not asked for work yet. Is a runner running there?"),
                Some(runner) => format!("{bound} {machine}, which {}.", self.describe(runner)),
            };
        }
        if runners.is_empty() {
            return "No machine has asked for work yet. Is a runner running on one?".to_owned();
        }
        // The most useful first: full, then without the provider, then away.
        let mut sorted: Vec<&Runner> = runners.iter().collect();
        sorted
            .sort_by_key(|runner| (!self.can_run_on(runner), !runner.is_active, std::cmp::Reverse(runner.seen_until)));
        let mut parts: Vec<String> = sorted
            .iter()
            .take(DESCRIBED)
            .map(|runner| format!("{} {}", runner.machine, self.describe(runner)))
            .collect();
        if sorted.len() > DESCRIBED {
            parts.push(format!("{} more machines cannot run it either", sorted.len() - DESCRIBED));
        }
        format!("No machine can run it with {} now: {}.", self.provider, parts.join("; "))
    }

    fn describe(&self, runner: &Runner) -> String {
        if let Some(refusal) = self.refusal_of(&runner.machine) {
            return format!("refused it ({}: {})", refusal.code, refusal.message.trim_end_matches('.'));
        }
        if !runner.is_active {
            return format!("is away since {}", runner.seen_until);
        }
        if !runner.providers.contains(&self.provider) {
            let names = runner.providers.iter().map(Provider::as_str).filter(|name| *name != Provider::DEMO);
            let names: Vec<&str> = names.collect();
            let offers = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            return format!("is online and offers {offers}, not {}", self.provider);
        }
        if let Some(until) = self.held_until(runner) {
            return format!("is at {}'s limit until {until}", self.provider);
        }
        format!("is full: {} of {} attempts", runner.running, runner.slots.unwrap_or(runner.running))
    }
}

/// A task that was leased waits for its directory.
pub(crate) fn directory_is_busy(machine: &str) -> String {
    shorten(format!("Another task works in its directory on the machine {machine}. They take turns."))
}

fn shorten(reason: String) -> String {
    if reason.chars().count() <= LONGEST_REASON {
        return reason;
    }
    let mut cut: String = reason.chars().take(LONGEST_REASON - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(machine: &str, provider: Provider) -> Runner {
        Runner {
            machine: machine.to_owned(),
            providers: vec![provider],
            slots: Some(4),
            running: 0,
            seen_until: Timestamp::from_unix_seconds(1_000),
            is_active: true,
            held: Vec::new(),
        }
    }

    const TASK: Obstacles<'static> = Obstacles {
        status: TaskStatus::Queued,
        open_deps: 0,
        paused_until: None,
        provider: Provider::Claude,
        machine: None,
        is_pinned: false,
        refusals: &[],
        full_run: None,
    };

    #[test]
    fn the_first_obstacle_is_reported() {
        let runners = [runner("a", Provider::Claude)];
        let expect = |task, obstacle| {
            assert_eq!(waiting_for(task, &runners).map(|(waiting_for, _)| waiting_for), obstacle, "{task:?}");
        };
        expect(TASK, None);
        expect(Obstacles { machine: Some("b"), ..TASK }, Some(WaitingFor::Machine));
        expect(Obstacles { provider: Provider::Codex, ..TASK }, Some(WaitingFor::Machine));
        let full = Obstacles { machine: Some("b"), full_run: Some(4), ..TASK };
        expect(full, Some(WaitingFor::Concurrency));
        let paused = Obstacles { paused_until: Some(Timestamp::from_unix_seconds(9)), ..full };
        expect(paused, Some(WaitingFor::Backoff));
        expect(Obstacles { open_deps: 1, ..paused }, Some(WaitingFor::Dependencies));
        expect(Obstacles { status: TaskStatus::Running, ..paused }, None);
    }

    #[test]
    fn a_reason_says_of_each_machine_why_it_cannot_run_the_task() {
        let reason = |task, all: Vec<Runner>| waiting_for(task, &all).map(|(_, reason)| reason).unwrap();
        assert_eq!(reason(TASK, vec![]), "No machine has asked for work yet. Is a runner running on one?");
        let full = Runner { running: 4, ..runner("full", Provider::Claude) };
        let other = runner("other", Provider::Codex);
        let away = Runner { is_active: false, ..runner("away", Provider::Claude) };
        assert_eq!(
            reason(TASK, vec![away.clone(), other.clone(), full.clone()]),
            "No machine can run it with claude now: full is full: 4 of 4 attempts; other is online and offers codex, not \
             claude; away is away since 1970-01-01T00:16:40.000Z."
        );
        let pinned = Obstacles { machine: Some("away"), is_pinned: true, ..TASK };
        assert_eq!(
            reason(pinned, vec![away.clone(), full]),
            "It is pinned to the machine away, which is away since 1970-01-01T00:16:40.000Z."
        );
        let unknown = reason(Obstacles { machine: Some("new"), is_pinned: true, ..TASK }, vec![away]);
        assert!(unknown.starts_with("It is pinned to the machine new, which has not asked"), "{unknown}");
        let refusal = Refusal {
            machine_id: "m".parse().unwrap(),
            code: "WORKING_DIRECTORY_NOT_FOUND".to_owned(),
            message: "There is no /work.".to_owned(),
            at: Timestamp::from_unix_seconds(5),
        };
        let refused = Obstacles { refusals: &[refusal], ..TASK };
        assert_eq!(
            reason(refused, vec![runner("m", Provider::Claude)]),
            "No machine can run it with claude now: m refused it (WORKING_DIRECTORY_NOT_FOUND: There is no /work)."
        );
    }

    #[test]
    fn a_task_waits_for_its_provider_when_no_machine_without_the_limit_is_there() {
        let at = Timestamp::from_unix_seconds;
        let held = |machine: &str, until| Runner {
            held: vec![(Provider::Claude, at(until))],
            ..runner(machine, Provider::Claude)
        };
        let of = |task, all: &[Runner]| waiting_for(task, all).unwrap();
        let (first, later) = (held("a", 7_200), held("b", 9_000));
        let alone = "claude's limit on a is reached; continues at 1970-01-01T02:00:00.000Z.";
        let full_run = Obstacles { full_run: Some(4), ..TASK };
        assert_eq!(
            of(full_run, std::slice::from_ref(&first)),
            (WaitingFor::Quota, alone.to_owned()),
            "before concurrency"
        );
        let both = of(TASK, &[later.clone(), first.clone()]).1;
        assert!(both.ends_with("02:00:00.000Z; on b at 1970-01-01T02:30:00.000Z."), "{both}");
        let five: Vec<Runner> = (1..=5).map(|day| held(&format!("m{day}"), day * 86_400)).collect();
        let four = of(TASK, &five).1;
        assert!(four.ends_with("; on m4 at 1970-01-05T00:00:00.000Z."), "{four}");
        let paused = Obstacles { paused_until: Some(at(9)), ..TASK };
        assert_eq!(of(paused, std::slice::from_ref(&first)).0, WaitingFor::Backoff);
        // Another machine has no limit.
        assert_eq!(waiting_for(TASK, &[first.clone(), runner("c", Provider::Claude)]), None);
        let full = Runner { running: 4, ..runner("c", Provider::Claude) };
        let (found, reason) = of(TASK, &[first.clone(), full]);
        assert_eq!(found, WaitingFor::Machine);
        assert!(reason.contains("a is at claude's limit until 1970-01-01T02:00:00.000Z; c is full"), "{reason}");
        let other = Runner { held: vec![(Provider::Codex, at(9))], ..runner("a", Provider::Claude) };
        assert_eq!(waiting_for(TASK, &[other]), None);
        let pinned = Obstacles { machine: Some("b"), is_pinned: true, ..TASK };
        assert!(
            of(pinned, &[first, Runner { is_active: false, ..later }])
                .1
                .contains("on b is reached; continues at 1970-01-01T02:30:00.000Z when")
        );
    }

    #[test]
    fn tasks_of_one_directory_take_turns() {
        let expected = "Another task works in its directory on the machine desk. They take turns.";
        assert_eq!(directory_is_busy("desk"), expected);
    }

    #[test]
    fn a_reason_counts_dependencies_and_the_machines_that_it_does_not_describe() {
        let depends = |open_deps| waiting_for(Obstacles { open_deps, ..TASK }, &[]).unwrap().1;
        assert_eq!(depends(1), "It depends on 1 task that has not completed.");
        assert_eq!(depends(2), "It depends on 2 tasks that have not completed.");
        let reason = |machines: usize| {
            let all: Vec<Runner> = (0..machines).map(|at| runner(&format!("m{at}"), Provider::Codex)).collect();
            waiting_for(TASK, &all).unwrap().1
        };
        assert!(reason(4).ends_with("m3 is online and offers codex, not claude."), "{}", reason(4));
        assert!(reason(6).ends_with("not claude; 2 more machines cannot run it either."), "{}", reason(6));
    }

    #[test]
    fn a_reason_has_at_most_512_characters() {
        let all: Vec<Runner> = (0..100).map(|at| runner(&format!("{at}{}", "ä".repeat(62)), Provider::Codex)).collect();
        let (_, reason) = waiting_for(TASK, &all).unwrap();
        assert!(reason.chars().count() <= 512 && reason.contains("not claude"), "{reason}");
        assert_eq!(shorten("ä".repeat(512)), "ä".repeat(512));
        assert_eq!(shorten("ä".repeat(513)), "ä".repeat(511) + "…");
    }
}
