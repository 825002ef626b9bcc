//! `ensemble show`: shows one run and its tasks.

use clap::Args;
use ensemble_account::Account;
use ensemble_screen::lines::progress::why_not_begun;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_screen::lines::{cost, denials};
use ensemble_types::runs::{Run, Task, TaskStatus, WaitingFor};

use super::DONE;
use super::output::command;
use crate::complete;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::machines::Machines;
use crate::named::Which;
use crate::origin::{NOT_CHECKED, NOT_SIGNED, doubt};
use crate::watching::{AllowDenials, Asked, named, watch};
use crate::{asking, changes, print, when};

/// A run with more tasks is shown without those that have completed or wait.
const MANY_TASKS: usize = 50;
/// When all have completed or wait, this many are shown.
const FIRST: usize = 20;

/// Shows a run and its tasks.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// Update until the run has ended
    #[arg(long, short)]
    watch: bool,
    /// Show all tasks of a long run
    #[arg(long, short)]
    all: bool,
    #[command(flatten)]
    allow: AllowDenials,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.run.find(&me).await?;
        if self.watch {
            return watch(context, &me, id, Asked::default(), self.allow).await;
        }
        let run = self.run.get(&me).await?;
        let machines = Machines::if_available(&me).await;
        if context.json {
            print::json(&named(&machines, &run), false)?;
        } else {
            show((context, &me), &run, &machines, self.all).await?;
        }
        Ok(DONE)
    }
}

async fn show((context, me): (&Context, &Account), run: &Run, machines: &Machines, all: bool) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let field = |name: &str, value: &str| print::field(name, Tone::Plain, value);
    field("run", run.reference.as_str())?;
    match &run.title {
        // Of a run that is sealed as a whole the server alone says the title.
        Some(title) if tasks.iter().all(|task| doubt(task).is_some()) => {
            field("title", &format!("{title} ({NOT_CHECKED})"))?;
        }
        Some(title) => field("title", title)?,
        None if tasks.iter().all(|task| doubt(task) == Some(NOT_SIGNED)) => field("title", NOT_SIGNED)?,
        None if tasks.iter().all(|task| doubt(task).is_some()) => field("title", NOT_CHECKED)?,
        None => {}
    }
    let is_mixed = |what| tasks.iter().any(|task| doubt(task) != Some(what));
    for what in [NOT_SIGNED, NOT_CHECKED] {
        if let Some(number) = tasks.iter().position(|task| doubt(task) == Some(what)).filter(|_| is_mixed(what)) {
            field("!", &format!("task {} is {what}", number + 1))?;
        }
    }
    print::field("state", run.status.into(), run.status.as_str())?;
    if let Some(reason) = &run.cancel_reason {
        field("cancelled", reason)?;
    }
    if let Some(machine) = &run.machine_id {
        field("machine", &machines.called(machine))?;
    }
    field("submitted", &when::both(run.created_at))?;
    if let Some(at) = run.finished_at {
        field("ended", &when::both(at))?;
    }
    if let Some(cost) = cost::sentence(&cost::total(tasks)) {
        field("cost", &cost)?;
    }
    if let Some(limits) = ensemble_plan::limits(tasks) {
        field("cost limit", &limits)?;
    }
    print::line("")?;
    let is_short = all || tasks.len() <= MANY_TASKS;
    let is_shown = |task: &Task| is_short || !matches!(task.status, TaskStatus::Completed | TaskStatus::Queued);
    let mut table = Table::new([
        Column::text("TASK", 0, 12),
        Column::fixed("STATE", 0),
        Column::text("MACHINE", 4, 14),
        Column::fixed("ATTEMPT", 7),
        Column::fixed("PROVIDER", 6),
        Column::fixed("TIME", 3),
        Column::fixed("COST", 5),
        Column::text("RESULT", 2, 12),
    ]);
    let mut shown: Vec<_> = tasks.iter().enumerate().filter(|(_, task)| is_shown(task)).collect();
    if shown.is_empty() {
        shown = tasks.iter().enumerate().take(FIRST).collect();
    }
    shown.iter().for_each(|(number, task)| table.row(row(task, *number, tasks, machines)));
    print::table(&table)?;
    if let Some(hidden) = hidden(tasks, &shown) {
        print::line(hidden)?;
    }
    // Its result is that of the newest attempt.
    for (number, task) in shown.iter().filter(|(_, task)| task.attempt > 1) {
        let (earlier, name) = (task.attempt - 1, task.called(*number));
        print::line(format!("\n{name} has an earlier attempt: `{}` prints it.", command(run, task, earlier)))?;
    }
    let waits = |task: &&Task| task.status == TaskStatus::Queued && task.waiting_reason.is_some();
    let active = tasks.iter().any(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Dispatching));
    if let Some((number, task)) = tasks.iter().enumerate().find(|(_, task)| waits(task)).filter(|_| !active) {
        let reason = machines.explain(task.waiting_reason.as_deref().unwrap_or_default());
        print::line(format!("\n{} waits: {}", task.called(number), print::inline(&reason)))?;
        if task.waiting_for == Some(WaitingFor::Quota) {
            print::line(format!(
                "`ensemble retry {0}` tries at once. To use another machine: `ensemble cancel {0}`, and submit it again with --machine.",
                run.reference
            ))?;
        }
    }
    for (number, task) in tasks.iter().enumerate() {
        if let Some(session) = task.asks_in() {
            print::line(format!("\n{} asks: {}", task.called(number), asking::advice(me, session).await))?;
        }
    }
    if tasks.iter().any(|task| task.session_id.is_some() && task.asks_in().is_none()) {
        print::line("")?;
        asking::sessions(me, run).await?;
    }
    let rejected = denials::not_said(tasks);
    if denials::count(tasks) > 0 || rejected.iter().any(|task| !task.refusals.is_empty()) {
        print::line("")?;
    }
    print::lines(denials::report(tasks, machines))?;
    print::lines(denials::report_machines(&rejected, machines))?;
    changes::report(context, run, false)
}

/// `… 40 more tasks (--all shows them): 38 completed, 2 queued`
fn hidden(tasks: &[Task], shown: &[(usize, &Task)]) -> Option<String> {
    let count = |status| {
        let of = |count: usize| count.saturating_sub(shown.iter().filter(|(_, task)| task.status == status).count());
        of(tasks.iter().filter(|task| task.status == status).count())
    };
    let states = [TaskStatus::Completed, TaskStatus::Queued].map(|status| (count(status), status.as_str()));
    let parts: Vec<_> =
        states.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")).collect();
    let hidden: usize = states.iter().map(|(count, _)| count).sum();
    (hidden > 0).then(|| format!("… {hidden} more tasks (--all shows them): {}", parts.join(", ")))
}

fn row(task: &Task, number: usize, tasks: &[Task], machines: &Machines) -> [(Tone, String); 8] {
    let until = if task.status.is_terminal() { task.finished_at } else { Some(now()) };
    let time = task.started_at.zip(until).map(|(from, to)| when::duration(to.since(from)));
    let waiting = task.waiting_reason.as_deref();
    let result = match (&task.error, &task.output_summary, waiting) {
        _ if task.status == TaskStatus::DependencyFailed => why_not_begun(task, tasks),
        (Some(error), ..) => format!("{}: {}", error.code, error.message),
        (None, Some(summary), _) => summary.clone(),
        (None, None, Some(reason)) => machines.explain(reason),
        (None, None, None) => String::new(),
    };
    let plain = |text: String| (Tone::Plain, text);
    [
        plain(task.task_key.clone().unwrap_or_else(|| task.called(number))),
        (task.status.into(), if task.asks_in().is_some() { "asks" } else { task.status.as_str() }.to_owned()),
        plain(task.machine_id.as_ref().map(|id| machines.called(id)).unwrap_or_default()),
        plain(task.attempt.to_string()),
        plain(task.provider.as_str().to_owned()),
        plain(time.unwrap_or_default()),
        plain(task.usage.as_ref().map(cost::dollars).unwrap_or_default()),
        plain(print::short(&result, 80)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::task;

    #[test]
    fn tasks_that_are_not_shown_are_counted() {
        let mut tasks: Vec<Task> = (0..60).map(|number| task(&number.to_string())).collect();
        let first = |tasks: &'_ [Task]| hidden(tasks, &tasks.iter().enumerate().take(FIRST).collect::<Vec<_>>());
        assert_eq!(first(&tasks).as_deref(), Some("… 40 more tasks (--all shows them): 40 completed"));
        tasks[59].status = TaskStatus::Queued;
        assert_eq!(first(&tasks).as_deref(), Some("… 40 more tasks (--all shows them): 39 completed, 1 queued"));
        assert_eq!(first(&tasks[..20]), None);
    }
}
