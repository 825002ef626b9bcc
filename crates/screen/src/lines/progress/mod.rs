//! The progress of a run: one line per task that is redrawn on a terminal, or one line per change elsewhere.

mod line;

use std::collections::HashMap;
use std::fmt::Write;

use ensemble_types::ids::{SessionId, TaskId};
use ensemble_types::line::{clean, short};
use ensemble_types::runs::{ChangedTask, Task, TaskStatus, Usage, WaitingFor};
use ensemble_types::time::Timestamp;

use self::line::Line;
use super::{Column, Machines, Styled, Table, Tone, cost, cut, when, wrap};

/// The lines of a reason for waiting.
const REASON_LINES: usize = 4;
const LONGEST_NAME: usize = 40;

/// Where it is shown.
#[derive(Clone, Copy)]
pub struct Place {
    /// The columns and rows of the terminal. `None`: it is no terminal, and lines are not redrawn.
    pub size: fn() -> Option<(usize, usize)>,
    pub is_coloured: bool,
    pub now: fn() -> Timestamp,
}

/// The state of the display. What changes it returns what is to be written.
pub struct Progress<M> {
    place: Place,
    /// The number of lines drawn last; `None` when lines are not redrawn.
    drawn: Option<usize>,
    machines: M,
    tasks: Vec<Line>,
    at: HashMap<TaskId, usize>,
    tick: usize,
    /// The reason for waiting that was printed last.
    said: Option<String>,
}

impl<M: Machines> Progress<M> {
    pub fn new(tasks: &[Task], machines: M, place: Place) -> Self {
        let now = (place.now)();
        Self {
            place,
            drawn: (place.size)().map(|_| 0),
            machines,
            tasks: tasks.iter().enumerate().map(|(number, task)| Line::new(task, number, now)).collect(),
            at: tasks.iter().enumerate().map(|(number, task)| (task.id, number)).collect(),
            tick: 0,
            said: None,
        }
    }

    /// Whether lines are redrawn, so that elapsed time is shown.
    pub fn is_live(&self) -> bool {
        self.drawn.is_some()
    }

    /// The initial state. Without a terminal: tasks that have started.
    pub fn begin(&mut self) -> String {
        let begun = |(at, line): (usize, &Line)| (line.status != TaskStatus::Queued).then_some(at);
        let begun: Vec<usize> = self.tasks.iter().enumerate().filter_map(begun).collect();
        self.shown(&begun)
    }

    pub fn change(&mut self, changed: &[ChangedTask]) -> String {
        let turned = self.turned(changed.iter().map(|change| (change.id, change)), Line::turn);
        self.shown(&turned)
    }

    /// Takes all tasks from the run: also what changes without an event, such as why a task waits.
    pub fn renew(&mut self, tasks: &[Task]) -> String {
        let now = (self.place.now)();
        let turned = self.turned(tasks.iter().map(|task| (task.id, task)), |line, task| line.renew(task, now));
        let mut out = self.shown(&turned);
        if let Some((text, reason)) = self.stuck().filter(|_| self.drawn.is_none())
            && self.said.as_ref() != Some(&reason)
        {
            out.push_str(&clean(&text));
            out.push('\n');
            self.said = Some(reason);
        }
        out
    }

    /// Changes these tasks. Returns the places of those of which more than details are new.
    fn turned<T>(&mut self, news: impl Iterator<Item = (TaskId, T)>, take: impl Fn(&mut Line, T)) -> Vec<usize> {
        let mut turned = Vec::new();
        for (id, new) in news {
            let Some(at) = self.at.get(&id).copied() else { continue };
            let Some(line) = self.tasks.get_mut(at) else { continue };
            let before = line.turns();
            take(line, new);
            if before != line.turns() {
                turned.push(at);
            }
        }
        turned
    }

    /// All of it where lines are redrawn, and else these tasks.
    fn shown(&mut self, tasks: &[usize]) -> String {
        if self.drawn.is_some() {
            return self.draw();
        }
        let lines = tasks.iter().filter_map(|at| self.tasks.get(*at)).map(|line| self.plain(line));
        lines.map(|line| format!("{}\n", clean(&line))).collect()
    }

    /// The tasks that wait for a person and have no advice yet, with their sessions.
    pub fn asking(&self) -> Vec<(TaskId, SessionId)> {
        let unknown = self.tasks.iter().filter(|line| line.advice.is_none());
        unknown.filter_map(|line| Some((line.id, line.asks_in?))).collect()
    }

    /// What to type to answer a task.
    pub fn advise(&mut self, task: TaskId, advice: String) -> String {
        let turned = self.turned([(task, advice)].into_iter(), |line, advice| line.advice = Some(advice));
        self.shown(&turned)
    }

    /// The tasks that run now, and the attempt of each.
    pub fn active(&self) -> Vec<(TaskId, u32)> {
        let running = self.tasks.iter().filter(|line| line.status == TaskStatus::Running);
        running.map(|line| (line.id, line.attempt)).collect()
    }

    pub fn set_last(&mut self, task: TaskId, last: String) {
        if let Some(line) = self.at.get(&task).and_then(|at| self.tasks.get_mut(*at)) {
            line.last = Some(last);
        }
    }

    /// Whether no task runs although the run has not ended.
    pub fn is_waiting(&self) -> bool {
        self.tasks.iter().any(|line| line.status == TaskStatus::Queued) && !self.tasks.iter().any(Line::is_active)
    }

    pub fn draw(&mut self) -> String {
        let Some((drawn, (columns, rows))) = self.drawn.zip((self.place.size)()) else { return String::new() };
        self.tick = self.tick.wrapping_add(1);
        let lines = self.lines(columns.saturating_sub(1), rows.saturating_sub(1).max(2));
        let mut out = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        for line in &lines {
            let line = line.render(Some(columns.saturating_sub(1)), self.place.is_coloured);
            let _infallible = writeln!(out, "\x1b[2K{line}");
        }
        // Clears the rest of longer old lines.
        out.push_str("\x1b[J");
        self.drawn = Some(lines.len());
        out
    }

    /// Ends the redrawn area, so that later output goes below it.
    pub fn leave(&mut self) {
        if self.drawn.is_some() {
            self.drawn = Some(0);
        }
    }

    /// All tasks if they fit on the screen, otherwise the active ones. Then why nothing runs, and the sums.
    fn lines(&self, columns: usize, most: usize) -> Vec<Styled> {
        let mut below: Vec<Styled> = match self.stuck() {
            Some((text, _)) => wrap(&clean(&text), columns)
                .iter()
                .take(REASON_LINES)
                .map(|line| Styled::new(Tone::Busy, line))
                .collect(),
            None => Vec::new(),
        };
        let is_long = self.tasks.len() + below.len() + 1 > most;
        if self.tasks.len() > 1 || is_long {
            below.push(self.sums(is_long));
        }
        let mut table = Table::new([
            Column::text("", 0, 16),
            Column::fixed("", 0),
            Column::fixed("", 2),
            Column::text("", 4, 14),
            Column::fixed("", 5),
            Column::fixed("", 6),
            Column::text("", 3, 16),
        ]);
        let shown = self.tasks.iter().filter(|line| !is_long || line.is_active());
        shown.take(most.saturating_sub(below.len())).for_each(|line| table.row(self.row(line)));
        let mut lines = table.lines(Some(columns), false);
        lines.extend(below);
        lines
    }

    fn row(&self, line: &Line) -> [(Tone, String); 7] {
        let time = line.elapsed();
        let time = if time.as_secs() > 0 { when::duration(time) } else { String::new() };
        let tone = if line.asks() { Tone::Busy } else { Tone::from(line.status) };
        [
            (tone, format!("{} {}", line.mark(self.tick), cut(&short(&line.name, LONGEST_NAME), LONGEST_NAME))),
            (tone, line.state().to_owned()),
            (Tone::Plain, time),
            (Tone::Plain, line.machine.as_ref().map(|id| self.machines.called(id)).unwrap_or_default()),
            (Tone::Plain, line.usage.as_ref().map(cost::dollars).unwrap_or_default()),
            (Tone::Dim, line.provider.to_string()),
            (if line.error.is_some() { Tone::Bad } else { Tone::Dim }, self.detail(line)),
        ]
    }

    /// Counts if `with_counts`, and what the run has cost.
    fn sums(&self, with_counts: bool) -> Styled {
        let count = |status| self.tasks.iter().filter(|line| line.status == status).count();
        let mut parts = Vec::new();
        if with_counts {
            parts.push(format!(
                "{} tasks: {} completed, {} running, {} queued, {} failed, {} cancelled",
                self.tasks.len(),
                count(TaskStatus::Completed),
                count(TaskStatus::Running) + count(TaskStatus::Dispatching),
                count(TaskStatus::Queued),
                count(TaskStatus::Failed) + count(TaskStatus::DependencyFailed),
                count(TaskStatus::Cancelled),
            ));
        } else {
            parts.push(format!("{} of {} tasks completed", count(TaskStatus::Completed), self.tasks.len()));
        }
        let usage: Usage = cost::sum(self.tasks.iter().filter_map(|line| line.usage));
        parts.extend(cost::sentence(&usage));
        Styled::new(Tone::Dim, &parts.join(" · "))
    }

    /// Why nothing runs: the reason of the first task that waits, and how many wait. Then the same without words that change with
    /// the time.
    fn stuck(&self) -> Option<(String, String)> {
        if !self.is_waiting() {
            return None;
        }
        let blocked = |line: &&Line| {
            line.status == TaskStatus::Queued && line.waiting_for.is_some_and(|what| what != WaitingFor::Dependencies)
        };
        let first = self.tasks.iter().find(blocked)?;
        let count = self.tasks.iter().filter(blocked).count();
        let more = if count > 1 { format!(" and {} more tasks", count - 1) } else { String::new() };
        let waits = if count > 1 { "wait" } else { "waits" };
        let why = |reason: &str| format!("{}{more} {waits}: {reason}", short(&first.name, LONGEST_NAME));
        let said = first.waiting_reason.as_deref().unwrap_or_default();
        Some((why(&self.waits(first)), why(said)))
    }

    fn waits(&self, line: &Line) -> String {
        if line.waiting_for == Some(WaitingFor::Dependencies) {
            let open = line.depends_on.iter().filter_map(|id| self.tasks.get(*self.at.get(id)?));
            let open: Vec<&str> =
                open.filter(|line| line.status != TaskStatus::Completed).map(|line| line.name.as_str()).collect();
            if !open.is_empty() {
                return after(&open);
            }
        }
        match (&line.waiting_reason, line.waiting_for) {
            (Some(reason), _) => self.machines.explain(reason),
            (None, Some(WaitingFor::Machine)) => "for a machine; start `ensemble runner` on one".to_owned(),
            (None, Some(WaitingFor::Quota)) => "until its provider can be used again".to_owned(),
            (None, Some(WaitingFor::Backoff)) => "before the next attempt".to_owned(),
            (None, Some(WaitingFor::Dependencies)) => "for other tasks".to_owned(),
            (None, Some(WaitingFor::Directory)) => "for another task in its directory".to_owned(),
            (None, Some(WaitingFor::Input)) => "for an answer in its session".to_owned(),
            (None, Some(WaitingFor::Concurrency)) => "until fewer tasks run".to_owned(),
            (None, None) => String::new(),
        }
    }

    fn plain(&self, line: &Line) -> String {
        let attempt = if line.attempt > 1 { format!(" (attempt {})", line.attempt) } else { String::new() };
        let machine = line.machine.as_ref().filter(|_| line.is_active()).map(|id| self.machines.called(id));
        let machine = machine.map_or(String::new(), |machine| format!(" on {machine}"));
        let detail = self.detail(line);
        let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
        format!("{}: {}{machine}{attempt}{detail}", line.name, line.state())
    }

    fn detail(&self, line: &Line) -> String {
        if line.status == TaskStatus::DependencyFailed {
            let ended = line.depends_on.iter().filter_map(|id| self.tasks.get(*self.at.get(id)?));
            return because(ended.map(|line| (line.status, line.name.as_str())));
        }
        match (&line.error, line.status) {
            (Some(error), _) => short(error, 200),
            (None, TaskStatus::Queued) => self.waits(line),
            (None, TaskStatus::Running) if line.asks() => line.advice.clone().unwrap_or_default(),
            (None, TaskStatus::Running) => line.last.clone().unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// What a task begins after.
fn after(names: &[&str]) -> String {
    const MOST: usize = 3;
    let named: Vec<String> = names.iter().take(MOST).map(|name| short(name, LONGEST_NAME)).collect();
    let more = names.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("after {}{more}", named.join(", "))
}

/// Whether one of these changes says that a person is asked. Where is known when the run is read.
pub fn is_asking(changed: &[ChangedTask]) -> bool {
    changed.iter().any(|task| task.status == TaskStatus::Running && task.waiting_for == Some(WaitingFor::Input))
}

/// Why a task was not begun: the dependency that did not complete.
pub fn why_not_begun(task: &Task, tasks: &[Task]) -> String {
    let dependencies = tasks.iter().enumerate().filter(|(_, other)| task.depends_on.contains(&other.id));
    let named: Vec<_> = dependencies.map(|(number, other)| (other.status, other.called(number))).collect();
    because(named.iter().map(|(status, name)| (*status, name.as_str())))
}

fn because<'n>(dependencies: impl Iterator<Item = (TaskStatus, &'n str)>) -> String {
    // A failure is the cause of other tasks that could not begin.
    let rank = |status: &TaskStatus| match status {
        TaskStatus::Failed => 0,
        TaskStatus::Cancelled => 1,
        _ => 2,
    };
    let ended = dependencies.filter(|(status, _)| status.is_terminal() && *status != TaskStatus::Completed);
    match ended.min_by_key(|(status, _)| rank(status)) {
        Some((TaskStatus::DependencyFailed, name)) => format!("it waited for {name}, which could not begin"),
        Some((TaskStatus::Cancelled, name)) => format!("it waited for {name}, which was cancelled"),
        Some((_, name)) => format!("it waited for {name}, which failed"),
        None => "a task that it waited for did not complete".to_owned(),
    }
}

#[cfg(test)]
mod tests;
