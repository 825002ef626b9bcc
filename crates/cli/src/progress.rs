//! The progress of a run: one line per task that is redrawn on a terminal, or one line per change elsewhere.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use ensemble_types::ids::TaskId;
use ensemble_types::runs::{ChangedTask, Task, TaskStatus, WaitingFor};

use crate::failure::Result;
use crate::print::{clean, short};

/// The state of the display.
pub(crate) struct Progress {
    /// The number of lines drawn last; `None` when lines are not redrawn.
    drawn: Option<usize>,
    tasks: Vec<Line>,
    at: HashMap<TaskId, usize>,
    tick: usize,
}

struct Line {
    name: String,
    provider: &'static str,
    status: TaskStatus,
    attempt: u32,
    waiting_for: Option<WaitingFor>,
    error: Option<String>,
    since: Option<Instant>,
    seconds: u64,
}

impl Progress {
    pub(crate) fn new(tasks: &[Task]) -> Self {
        let mut progress = Self {
            drawn: io::stdout().is_terminal().then_some(0),
            tasks: Vec::with_capacity(tasks.len()),
            at: HashMap::with_capacity(tasks.len()),
            tick: 0,
        };
        for (number, task) in tasks.iter().enumerate() {
            progress.at.insert(task.id, number);
            progress.tasks.push(Line {
                name: name(task, number),
                provider: task.provider.as_str(),
                status: task.status,
                attempt: task.attempt,
                waiting_for: task.waiting_for,
                error: task.error.as_ref().map(|error| error.message.clone()),
                since: None,
                seconds: 0,
            });
        }
        progress
    }

    /// Whether lines are redrawn, so that elapsed time is shown.
    pub(crate) fn is_live(&self) -> bool {
        self.drawn.is_some()
    }

    /// Shows the initial state. Without a terminal: tasks that have started, and tasks that need an action of the user.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.drawn.is_some() {
            return self.draw();
        }
        for line in self
            .tasks
            .iter()
            .filter(|line| line.status != TaskStatus::Queued || line.waiting_for == Some(WaitingFor::Machine))
        {
            crate::print::line(line.plain())?;
        }
        Ok(())
    }

    pub(crate) fn change(&mut self, changed: &[ChangedTask]) -> Result<()> {
        for change in changed {
            let Some(line) = self.at.get(&change.id).and_then(|at| self.tasks.get_mut(*at)) else { continue };
            let before = (line.status, line.attempt);
            line.turn(change);
            if self.drawn.is_none() && before != (line.status, line.attempt) {
                let mut out = io::stdout().lock();
                writeln!(out, "{}", clean(&line.plain()))?;
                out.flush()?;
            }
        }
        self.draw()
    }

    /// Replaces all tasks by those of the run, for example when a response could not hold all changes.
    pub(crate) fn replace(&mut self, tasks: &[Task]) -> Result<()> {
        let changed: Vec<_> = tasks
            .iter()
            .map(|task| ChangedTask {
                id: task.id,
                status: task.status,
                attempt: task.attempt,
                waiting_for: task.waiting_for,
                waiting_reason: task.waiting_reason.clone(),
                machine_id: task.machine_id.clone(),
                error: task.error.clone(),
            })
            .collect();
        self.change(&changed)
    }

    pub(crate) fn draw(&mut self) -> Result<()> {
        let Some(drawn) = self.drawn else { return Ok(()) };
        self.tick = self.tick.wrapping_add(1);
        let (columns, rows) = screen();
        let lines = self.lines(rows.saturating_sub(1).max(2));
        let mut out = io::stdout().lock();
        if drawn > 0 {
            write!(out, "\x1b[{drawn}A")?;
        }
        for line in &lines {
            let line: String = clean(line).replace('\n', " ").chars().take(columns.saturating_sub(1)).collect();
            writeln!(out, "\x1b[2K{line}")?;
        }
        // Clears the rest of longer old lines.
        write!(out, "\x1b[J")?;
        out.flush()?;
        self.drawn = Some(lines.len());
        Ok(())
    }

    /// Ends the redrawn area, so that later output goes below it.
    pub(crate) fn leave(&mut self) {
        if self.drawn.is_some() {
            self.drawn = Some(0);
        }
    }

    /// All tasks if they fit on the screen, otherwise the active ones and a count of the others.
    fn lines(&self, most: usize) -> Vec<String> {
        let width = self.tasks.iter().map(|line| line.name.chars().count()).max().unwrap_or_default().min(40);
        let draw = |line: &Line| line.drawn(width, self.tick);
        if self.tasks.len() <= most {
            return self.tasks.iter().map(draw).collect();
        }
        let busy = |line: &&Line| matches!(line.status, TaskStatus::Running | TaskStatus::Dispatching);
        let mut lines: Vec<_> = self.tasks.iter().filter(busy).take(most.saturating_sub(1)).map(draw).collect();
        let count = |status| self.tasks.iter().filter(|line| line.status == status).count();
        lines.push(format!(
            "{} tasks: {} completed, {} running, {} queued, {} failed, {} cancelled",
            self.tasks.len(),
            count(TaskStatus::Completed),
            count(TaskStatus::Running) + count(TaskStatus::Dispatching),
            count(TaskStatus::Queued),
            count(TaskStatus::Failed) + count(TaskStatus::DependencyFailed),
            count(TaskStatus::Cancelled),
        ));
        lines
    }
}

impl Line {
    fn turn(&mut self, change: &ChangedTask) {
        if change.attempt != self.attempt {
            self.since = None;
        }
        if change.status == TaskStatus::Running && self.since.is_none() {
            self.since = Some(Instant::now());
        }
        if change.status.is_terminal() {
            self.seconds = self.elapsed();
            self.since = None;
        }
        self.status = change.status;
        self.attempt = change.attempt;
        self.waiting_for = change.waiting_for;
        self.error = change.error.as_ref().map(|error| error.message.clone());
    }

    fn elapsed(&self) -> u64 {
        self.since.map_or(self.seconds, |since| since.elapsed().as_secs())
    }

    fn drawn(&self, width: usize, tick: usize) -> String {
        const TURNING: [&str; 4] = ["◐", "◓", "◑", "◒"];
        let mark = match self.status {
            TaskStatus::Queued => "·",
            TaskStatus::Dispatching | TaskStatus::Running => TURNING.get(tick % TURNING.len()).unwrap_or(&"◐"),
            TaskStatus::Completed => "✓",
            TaskStatus::Failed | TaskStatus::DependencyFailed => "✗",
            TaskStatus::Cancelled => "⊘",
        };
        let time = self.elapsed();
        let time = if time > 0 { format!("{time} s") } else { String::new() };
        let name = short(&self.name, width.max(1));
        format!("{mark} {name:width$}  {:7} {:17} {time:>7}  {}", self.provider, self.status.as_str(), self.detail())
            .trim_end()
            .to_owned()
    }

    fn plain(&self) -> String {
        let attempt = if self.attempt > 1 { format!(" (attempt {})", self.attempt) } else { String::new() };
        let detail = self.detail();
        let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
        format!("{}: {}{attempt}{detail}", self.name, self.status.as_str())
    }

    fn detail(&self) -> String {
        if let Some(error) = &self.error {
            return short(error, 200);
        }
        match (self.status, self.waiting_for) {
            (TaskStatus::Queued, Some(WaitingFor::Machine)) => {
                "waiting for a machine; start `ensemble runner` on one".to_owned()
            }
            (TaskStatus::Queued, Some(WaitingFor::Backoff)) => "waiting before the next attempt".to_owned(),
            (TaskStatus::Queued, Some(WaitingFor::Dependencies)) => "waiting for other tasks".to_owned(),
            _ => String::new(),
        }
    }
}

/// A task's name for people: its title, its key or its number.
pub(crate) fn name(task: &Task, number: usize) -> String {
    task.title.clone().or_else(|| task.task_key.clone()).unwrap_or_else(|| format!("task {}", number + 1))
}

/// Columns and rows of the terminal.
fn screen() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, status: TaskStatus) -> Line {
        Line {
            name: name.to_owned(),
            provider: "codex",
            status,
            attempt: 1,
            waiting_for: None,
            error: None,
            since: None,
            seconds: 0,
        }
    }

    fn progress(tasks: Vec<Line>) -> Progress {
        Progress { drawn: Some(0), tasks, at: HashMap::new(), tick: 0 }
    }

    #[test]
    fn each_task_has_a_line_that_says_how_it_stands() {
        let mut waits = line("b", TaskStatus::Queued);
        waits.waiting_for = Some(WaitingFor::Machine);
        let mut broke = line("c", TaskStatus::Failed);
        broke.error = Some("no such model\nand more".to_owned());
        let lines = progress(vec![line("a long name", TaskStatus::Completed), waits, broke]).lines(10);
        assert!(lines[0].starts_with("✓ a long name  codex   completed"), "{lines:?}");
        assert!(lines[1].starts_with("· b ") && lines[1].contains("ensemble runner"), "{lines:?}");
        assert!(lines[2].starts_with("✗ c ") && lines[2].ends_with("no such model…"), "{lines:?}");
    }

    #[test]
    fn more_tasks_than_rows_are_counted() {
        let mut tasks: Vec<_> = (0..100).map(|number| line(&format!("t{number}"), TaskStatus::Queued)).collect();
        tasks[7].status = TaskStatus::Running;
        tasks[8].status = TaskStatus::DependencyFailed;
        let lines = progress(tasks).lines(5);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("t7"), "{lines:?}");
        assert_eq!(lines[1], "100 tasks: 0 completed, 1 running, 98 queued, 1 failed, 0 cancelled");
    }

    #[test]
    fn time_is_counted_per_attempt_from_when_it_runs() {
        let mut task = line("a", TaskStatus::Queued);
        let change = |status, attempt| ChangedTask {
            id: TaskId::generate(),
            status,
            attempt,
            waiting_for: None,
            waiting_reason: None,
            machine_id: None,
            error: None,
        };
        task.turn(&change(TaskStatus::Running, 1));
        assert!(task.since.is_some());
        task.turn(&change(TaskStatus::Failed, 1));
        assert!(task.since.is_none());
        task.turn(&change(TaskStatus::Running, 2));
        assert_eq!(task.plain(), "a: running (attempt 2)");
    }
}
