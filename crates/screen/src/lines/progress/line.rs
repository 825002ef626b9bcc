//! One task of the display.

use std::time::{Duration, Instant};

use ensemble_types::ids::{MachineId, SessionId, TaskId};
use ensemble_types::runs::{ChangedTask, Provider, Task, TaskStatus, Usage, WaitingFor};
use ensemble_types::time::Timestamp;

pub(super) struct Line {
    pub(super) id: TaskId,
    pub(super) name: String,
    pub(super) provider: Provider,
    pub(super) machine: Option<MachineId>,
    pub(super) status: TaskStatus,
    pub(super) attempt: u32,
    pub(super) waiting_for: Option<WaitingFor>,
    pub(super) waiting_reason: Option<String>,
    /// Where a person is asked, and what to type there.
    pub(super) asks_in: Option<SessionId>,
    pub(super) advice: Option<String>,
    pub(super) error: Option<String>,
    pub(super) depends_on: Vec<TaskId>,
    pub(super) usage: Option<Usage>,
    /// The last line of its output.
    pub(super) last: Option<String>,
    since: Option<Instant>,
    took: Duration,
}

impl Line {
    pub(super) fn new(task: &Task, number: usize, now: Timestamp) -> Self {
        let mut line = Self {
            id: task.id,
            name: task.called(number),
            provider: task.provider,
            machine: None,
            status: task.status,
            attempt: task.attempt,
            waiting_for: None,
            waiting_reason: None,
            asks_in: None,
            advice: None,
            error: None,
            depends_on: task.depends_on.clone(),
            usage: None,
            last: None,
            since: None,
            took: Duration::ZERO,
        };
        line.renew(task, now);
        line
    }

    /// Takes everything from the task, also how long it has run.
    pub(super) fn renew(&mut self, task: &Task, now: Timestamp) {
        self.turn(&ChangedTask {
            id: task.id,
            reference: task.reference,
            status: task.status,
            attempt: task.attempt,
            waiting_for: task.waiting_for,
            waiting_reason: task.waiting_reason.clone(),
            machine_id: task.machine_id.clone(),
            error: task.error.clone(),
        });
        self.usage = task.usage;
        self.asks_in = task.asks_in();
        if let Some(started) = task.started_at {
            match task.finished_at.filter(|_| task.status.is_terminal()) {
                Some(finished) => self.took = finished.since(started),
                None if task.status == TaskStatus::Running => {
                    self.since = Instant::now().checked_sub(now.since(started));
                }
                None => {}
            }
        }
    }

    pub(super) fn turn(&mut self, change: &ChangedTask) {
        if change.attempt != self.attempt {
            self.since = None;
            self.last = None;
        }
        if change.status == TaskStatus::Running && self.since.is_none() {
            self.since = Some(Instant::now());
        }
        if change.status.is_terminal() {
            self.took = self.elapsed();
            self.since = None;
            self.last = None;
        }
        self.status = change.status;
        self.attempt = change.attempt;
        self.waiting_for = change.waiting_for;
        self.waiting_reason.clone_from(&change.waiting_reason);
        self.machine.clone_from(&change.machine_id);
        if !self.asks() {
            (self.asks_in, self.advice) = (None, None);
        }
        self.error = change.error.as_ref().map(|error| error.message.clone());
    }

    /// How long it has run, or ran.
    pub(super) fn elapsed(&self) -> Duration {
        self.since.map_or(self.took, |since| since.elapsed())
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.status, TaskStatus::Running | TaskStatus::Dispatching)
    }

    /// Whether its agent waits for an answer of a person.
    pub(super) fn asks(&self) -> bool {
        self.status == TaskStatus::Running && self.waiting_for == Some(WaitingFor::Input)
    }

    /// How it is called by people.
    pub(super) fn state(&self) -> &'static str {
        if self.asks() { "asks" } else { self.status.as_str() }
    }

    /// What a line is printed for where lines are not redrawn.
    pub(super) fn turns(&self) -> (TaskStatus, u32, Option<String>) {
        (self.status, self.attempt, self.advice.clone())
    }

    pub(super) fn mark(&self, tick: usize) -> &'static str {
        const TURNING: [&str; 4] = ["◐", "◓", "◑", "◒"];
        match self.status {
            _ if self.asks() => "◆",
            TaskStatus::Queued => "·",
            TaskStatus::Dispatching | TaskStatus::Running => TURNING.get(tick % TURNING.len()).unwrap_or(&"◐"),
            TaskStatus::Completed => "✓",
            TaskStatus::Failed | TaskStatus::DependencyFailed => "✗",
            TaskStatus::Cancelled => "⊘",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::task;

    #[test]
    fn time_is_counted_per_attempt_and_from_its_start_when_joined_late() {
        let now = Timestamp::from_unix_seconds(1_800_000_000);
        let mut running = task("a");
        running.status = TaskStatus::Running;
        running.started_at = Some(now.minus(Duration::from_secs(100)));
        running.finished_at = None;
        let mut line = Line::new(&running, 0, now);
        assert!((100..110).contains(&line.elapsed().as_secs()), "{:?}", line.elapsed());
        let change = |status, attempt| ChangedTask {
            id: running.id,
            reference: running.reference,
            status,
            attempt,
            waiting_for: None,
            waiting_reason: None,
            machine_id: None,
            error: None,
        };
        line.turn(&change(TaskStatus::Failed, 1));
        assert!(line.elapsed().as_secs() >= 100);
        line.turn(&change(TaskStatus::Running, 2));
        assert!(line.elapsed().as_secs() < 10);
        assert!(Line::new(&task("b"), 0, now).elapsed().as_secs() == 5);
    }
}
