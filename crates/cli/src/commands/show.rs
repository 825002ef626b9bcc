//! `ensemble show`: shows one run and its tasks.

use clap::Args;
use ensemble_types::runs::{Run, Task, TaskStatus, WaitingFor};

use super::DONE;
use super::runs::Which;
use crate::complete;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::machines::Machines;
use crate::progress::{name, why_not_begun};
use crate::styled::Tone;
use crate::table::{Column, Table};
use crate::watching::{AllowDenials, Asked, named, watch};
use crate::{changes, cost, denials, print, when};

/// A run with more tasks is shown without those that have completed or wait.
const MANY_TASKS: usize = 50;

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
        let machines = Machines::if_available(context, &me).await;
        if context.json {
            print::json(&named(&machines, &run), false)?;
        } else {
            show(&run, &machines, self.all)?;
        }
        Ok(DONE)
    }
}

fn show(run: &Run, machines: &Machines, all: bool) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let field = |name: &str, value: &str| print::field(name, Tone::Plain, value);
    field("run", run.reference.as_str())?;
    if let Some(title) = &run.title {
        field("title", title)?;
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
    if let Some(limits) = cost::limits(tasks) {
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
    let shown = tasks.iter().enumerate().filter(|(_, task)| is_shown(task));
    shown.for_each(|(number, task)| table.row(row(task, number, tasks, machines)));
    table.print()?;
    let hidden = tasks.iter().filter(|task| !is_shown(task)).count();
    if hidden > 0 {
        let summary = &run.summary;
        print::line(format!(
            "… {hidden} more tasks (--all shows them): {} completed, {} queued",
            summary.completed, summary.queued
        ))?;
    }
    let waits = |task: &&Task| task.status == TaskStatus::Queued && task.waiting_reason.is_some();
    let active = tasks.iter().any(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Dispatching));
    if let Some((number, task)) = tasks.iter().enumerate().find(|(_, task)| waits(task)).filter(|_| !active) {
        let reason = machines.explain(task.waiting_reason.as_deref().unwrap_or_default());
        print::line(format!("\n{} waits: {}", name(task, number), print::inline(&reason)))?;
        if task.waiting_for == Some(WaitingFor::Quota) {
            print::line(format!(
                "`ensemble retry {0}` tries at once. To use another machine: `ensemble cancel {0}`, and submit it again with --machine.",
                run.reference
            ))?;
        }
    }
    if denials::count(tasks) > 0 || tasks.iter().any(|task| !task.refusals.is_empty()) {
        print::line("")?;
    }
    denials::report(tasks, machines)?;
    denials::report_machines(tasks, machines)?;
    changes::report(run)
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
        plain(task.task_key.clone().unwrap_or_else(|| name(task, number))),
        (task.status.into(), task.status.as_str().to_owned()),
        plain(task.machine_id.as_ref().map(|id| machines.called(id)).unwrap_or_default()),
        plain(task.attempt.to_string()),
        plain(task.provider.as_str().to_owned()),
        plain(time.unwrap_or_default()),
        plain(task.usage.as_ref().map(cost::dollars).unwrap_or_default()),
        plain(print::short(&result, 80)),
    ]
}
