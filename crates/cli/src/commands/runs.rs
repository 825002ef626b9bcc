//! `ensemble runs`: lists runs, newest first. `ensemble runs delete`: deletes one.

use std::collections::HashMap;

use clap::{Args, Subcommand, ValueEnum};
use ensemble_account::Account;
use ensemble_screen::lines::{Column, Table, Tone};
use ensemble_screen::lines::{cost, denials};
use ensemble_types::ids::{RunId, SessionId};
use ensemble_types::runs::{Run, Task, WaitingFor};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::DONE;
use super::session::START_TITLE;
use crate::complete;
use crate::confirm;
use crate::context::Context;
use crate::failure::Result;
use crate::machines::Machines;
use crate::named::Which;
use crate::watching::named;
use crate::{asking, print, when};

/// How many waiting runs are explained, if they have at most [`MANY_TASKS`] tasks.
const EXPLAINED: usize = 5;
const MANY_TASKS: u32 = 500;
/// How many runs are read to show their cost and refused commands, and how many of them at once.
const LOOKED_AT: usize = 20;
const FEW_TASKS: u32 = 50;
const AT_ONCE: usize = 4;

/// Lists your runs, newest first.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Runs {
    #[command(subcommand)]
    change: Option<Change>,
    /// Only runs in this state
    #[arg(long, short, value_enum)]
    status: Option<Status>,
    /// The maximum number of runs, at least 1
    #[arg(long, short = 'n', default_value = "20", value_parser = at_least_one)]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// Delete a run that has ended, with its tasks and their output
    #[command(visible_alias = "rm")]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Delete {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// Leave the worktrees of its tasks on their machines. Without this they are removed
    #[arg(long)]
    keep_worktrees: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Status {
    /// Not ended yet
    Active,
    /// Ended
    Terminal,
    Queued,
    Running,
    Canceling,
    Completed,
    Failed,
    Cancelled,
}

impl Runs {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        if let Some(Change::Delete(command)) = self.change {
            command.run(context, &me).await?;
            return Ok(DONE);
        }
        let status = self.status.and_then(|status| status.to_possible_value()).map(|value| value.get_name().to_owned());
        // The start of a session is no separate work: the session is in the list of sessions.
        let is_work = |run: &Run| std::future::ready(context.json || run.title.as_deref() != Some(START_TITLE));
        let runs: Vec<Run> = me.client.runs(status).try_filter(is_work).take(self.limit).try_collect().await?;
        if context.json {
            let machines = Machines::if_available(&me).await;
            return print_all(&me, &runs, &machines).await;
        }
        if runs.is_empty() {
            print::line(match self.status {
                Some(_) => "No runs in this state.",
                None => "No runs. Begin one with `ensemble do \"…\"`, or submit a plan: `ensemble run PLAN`.",
            })?;
            return Ok(DONE);
        }
        let machines = Machines::if_available(&me).await;
        let details = details(&me, &runs).await;
        let mut table = table();
        for run in &runs {
            table.row([
                (Tone::Plain, run.reference.to_string()),
                (run.status.into(), state(run, &details)),
                (Tone::Plain, format!("{}/{}", run.summary.completed, run.summary.total)),
                (Tone::Plain, when::ago(run.created_at)),
                (Tone::Plain, details.get(&run.id).map(|details| details.cost.clone()).unwrap_or_default()),
                (Tone::Plain, run.machine_id.as_ref().map(|id| machines.called(id)).unwrap_or_default()),
                (Tone::Plain, print::short(run.title.as_deref().unwrap_or_default(), 60)),
            ]);
        }
        print::table(&table)?;
        if details.values().any(|details| details.is_denied) {
            print::line("\n⚠ Agents of these runs were refused commands. `ensemble show RUN` names them.")?;
        }
        for run in &runs {
            for (task, session) in details.get(&run.id).iter().flat_map(|details| &details.asking) {
                print::line(format!("\n{} asks, {task}: {}", run.reference, asking::advice(&me, *session).await))?;
            }
        }
        for (run, task, reason) in waiting(&me, &runs, &machines).await? {
            print::line(format!("\n{} waits, {task}: {}", run.reference, print::inline(&reason)))?;
        }
        Ok(DONE)
    }
}

fn table() -> Table {
    Table::new([
        Column::fixed("RUN", 0),
        Column::fixed("STATE", 0),
        Column::fixed("TASKS", 3),
        Column::fixed("SUBMITTED", 4),
        Column::fixed("COST", 6),
        Column::text("MACHINE", 5, 14),
        Column::text("TITLE", 2, 12),
    ])
}

/// What a list of runs does not have.
struct Details {
    cost: String,
    is_denied: bool,
    /// The tasks that wait for a person, with their sessions.
    asking: Vec<(String, SessionId)>,
}

fn state(run: &Run, details: &HashMap<RunId, Details>) -> String {
    let details = details.get(&run.id);
    let mark = if details.is_some_and(|details| details.is_denied) { " ⚠" } else { "" };
    let asks = details.is_some_and(|details| !details.asking.is_empty());
    format!("{}{mark}", if asks { "◆ asks" } else { run.status.as_str() })
}

/// What the runs cost, and whether agents were refused commands. A list has no tasks, so only the newest runs with few tasks
/// are looked at.
async fn details(me: &Account, runs: &[Run]) -> HashMap<RunId, Details> {
    let looked_at =
        runs.iter().filter(|run| run.started_at.is_some() && run.summary.total <= FEW_TASKS).take(LOOKED_AT);
    let read = stream::iter(looked_at.map(|run| me.run(run.id))).buffered(AT_ONCE);
    let details = read.filter_map(async |run| {
        let run = run.ok()?;
        let tasks = run.tasks.as_deref().unwrap_or_default();
        let cost = cost::dollars(&cost::total(tasks));
        let asking = tasks.iter().enumerate();
        let asking = asking.filter_map(|(number, task)| Some((task.called(number), task.asks_in()?)));
        Some((run.id, Details { cost, is_denied: denials::count(tasks) > 0, asking: asking.collect() }))
    });
    details.collect().await
}

/// The runs for programs. A run without a running task has the task that waits and the reason with it.
async fn print_all(me: &Account, runs: &[Run], machines: &Machines) -> Result {
    let waiting = waiting(me, runs, machines).await?;
    let runs = runs.iter().map(|run| {
        let mut record = named(machines, run);
        if let (Some(members), Some((_, task, reason))) =
            (record.as_object_mut(), waiting.iter().find(|(of, ..)| of.id == run.id))
        {
            members.insert("waitingTask".to_owned(), task.as_str().into());
            members.insert("waitingReason".to_owned(), reason.as_str().into());
        }
        record
    });
    print::json(&serde_json::json!({ "runs": runs.collect::<Vec<_>>() }), false)?;
    Ok(DONE)
}

/// Why nothing of a run runs: its first task that waits, and the reason.
async fn waiting<'r>(me: &Account, runs: &'r [Run], machines: &Machines) -> Result<Vec<(&'r Run, String, String)>> {
    let is_stuck = |run: &&Run| {
        !run.status.is_terminal() && run.summary.running == 0 && (1..=MANY_TASKS).contains(&run.summary.queued)
    };
    let mut found = Vec::new();
    for run in runs.iter().filter(is_stuck).take(EXPLAINED) {
        let tasks = me.run(run.id).await?.tasks.unwrap_or_default();
        let waits = |task: &Task| task.waiting_for.is_some_and(|what| what != WaitingFor::Dependencies);
        if let Some((number, task)) = tasks.iter().enumerate().find(|(_, task)| waits(task)) {
            let reason = machines.explain(task.waiting_reason.as_deref().unwrap_or("it waits for a machine"));
            found.push((run, task.called(number), reason));
        }
    }
    Ok(found)
}

fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("must be 1 or more")
}

impl Delete {
    async fn run(self, context: &Context, me: &Account) -> Result<()> {
        let run = self.run.get(me).await?;
        let reference = run.reference;
        let ask = |not_applied: &[String]| match not_applied {
            _ if self.yes => Ok(()),
            [] => confirm::deletion(&format!("run {reference} with its tasks and their output")),
            tasks => confirm::deletion(&format!(
                "run {reference} with its tasks, their output, and what {} changed, which was not applied",
                tasks.join(", ")
            )),
        };
        // A run that has not ended is refused by the server.
        if self.keep_worktrees || !run.status.is_terminal() {
            ask(&[])?;
        } else {
            let machines = Machines::if_available(me).await;
            super::discard::all_of(context, me, &run, &machines, ask).await?;
        }
        me.client.delete_run(run.id).await?;
        me.forget_used_run(run.id);
        if context.json {
            return print::json(&serde_json::json!({ "success": true }), false);
        }
        print::line(format!("Deleted {reference}."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_shows_which_run_is_in_which_state() {
        let cells =
            ["k3x9q2ab", "canceling ⚠", "10/12", "59 min ago", "$12.34", "a-machine-with-a-name", "Mend the tests"];
        let mut table = table();
        table.row(cells.map(|cell| (Tone::Plain, cell.to_owned())));
        for columns in [40, 60, 80] {
            let lines: Vec<String> =
                table.lines(Some(columns), true).iter().map(|line| line.render(None, false)).collect();
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns}: {lines:?}");
            assert!(
                lines[1].starts_with("k3x9q2ab  canceling ⚠") && lines[1].contains("Mend the"),
                "{columns}: {lines:?}"
            );
        }
    }
}
