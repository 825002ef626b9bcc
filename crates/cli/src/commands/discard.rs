//! `ensemble discard`: removes the worktrees of tasks.

use std::future::ready;
use std::process::ExitCode;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::changes::Wish;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::DONE;
use crate::changes::{self, chosen, order};
use crate::complete;
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::named::Which;
use crate::print;

/// Runs that are read at once.
const AT_ONCE: usize = 8;

/// Removes the worktrees of tasks and their branches, and nothing else. What was not applied is lost.
#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs(), required_unless_present = "all_ended")]
    run: Option<Which>,
    /// The task: its key, its ref or id, or its number from 1 on [default: all that have a worktree]
    #[arg(add = complete::tasks())]
    task: Option<String>,
    /// Those of all runs that have ended
    #[arg(long, conflicts_with_all = ["run", "task"])]
    all_ended: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Also discard what was not shown, or has changed since. Confirming at the terminal means this too
    #[arg(long)]
    unseen: bool,
}

impl Discard {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let runs = match self.run {
            Some(run) => vec![run.get(&me).await?],
            None => ended(&me).await?,
        };
        let machines = Machines::if_available(&me).await;
        let mut tasks = Vec::new();
        for run in &runs {
            tasks.extend(
                with_worktrees(run, self.task.as_deref())?.into_iter().map(|(number, task)| (run, number, task)),
            );
        }
        if tasks.is_empty() {
            let which = if self.all_ended { "a run that has ended" } else { "this run" };
            return Err(Failure::message(format!("No task of {which} has a worktree.")));
        }
        let called = |run: &Run, number: usize, task: &Task| match runs.as_slice() {
            [_] => task.called(number),
            _ => format!("{} of {}", task.called(number), run.reference),
        };
        let lost = tasks.iter().filter(|(run, _, task)| is_lost(run, task));
        let lost: Vec<String> = lost.map(|(run, number, task)| called(run, *number, task)).collect();
        let is_confirmed = !lost.is_empty() && !self.yes;
        if is_confirmed {
            confirm::deletion(&format!("what {} changed, which was not applied", lost.join(", ")))?;
        }
        let is_one = tasks.len() == 1;
        let mut code = DONE;
        let mut results = Vec::new();
        for (run, number, task) in tasks {
            let called = called(run, number, task);
            // What is lost is only what the question has named.
            let unseen = self.unseen || (is_confirmed && is_lost(run, task));
            let applying = task.changes.clone().filter(|changes| changes.state == ChangesState::Applying);
            let changes = match applying {
                Some(changes) => Ok(changes),
                None => order((context, &me), (run, task), Wish::Discard, unseen).await,
            };
            let changes = match changes {
                Ok(changes) => changes,
                Err(error) if is_one => return Err(error),
                // The others are discarded all the same.
                Err(error) => {
                    code = ExitCode::FAILURE;
                    if context.json {
                        results.push(not_done(task, &error));
                    } else {
                        print::line(format!("✗ {called}: {error}"))?;
                    }
                    continue;
                }
            };
            if changes.state != ChangesState::Discarded {
                code = changes::unfinished(&changes, code);
            }
            match changes.state {
                _ if context.json => {
                    results
                        .push(serde_json::json!({ "taskId": task.id, "taskKey": task.task_key, "changes": changes }));
                }
                ChangesState::Discarded => print::line(format!("✓ {called}: the worktree is removed"))?,
                ChangesState::Discarding => {
                    print::line(format!("… {called}: {}.", changes::why_open(task, &changes, &machines)))?;
                }
                ChangesState::Applying => print::line(format!(
                    "✗ {called}: its changes are being applied: {}. Discard the worktree then.",
                    changes::why_open(task, &changes, &machines)
                ))?,
                _ => print::line(format!(
                    "✗ {called}: the machine could not remove the worktree. {}",
                    changes::why_failed(&changes)
                ))?,
            }
        }
        if context.json {
            print::json(&serde_json::json!({ "tasks": results }), false)?;
        }
        Ok(code)
    }
}

/// What a program reads of a task that was not discarded.
fn not_done(task: &Task, error: &Failure) -> serde_json::Value {
    serde_json::json!({ "taskId": task.id, "taskKey": task.task_key, "changes": task.changes, "error": error.to_string() })
}

/// The runs that have ended, with their tasks.
async fn ended(me: &Account) -> Result<Vec<Run>> {
    let runs: Vec<Run> = me.client.runs(None).try_filter(|run| ready(run.status.is_terminal())).try_collect().await?;
    let read = stream::iter(runs).map(|run| async move { Ok::<_, Failure>(me.run(run.id).await?) });
    read.buffered(AT_ONCE).try_collect().await
}

/// The tasks that have a worktree, with their positions.
fn with_worktrees<'r>(run: &'r Run, named: Option<&str>) -> Result<Vec<(usize, &'r Task)>> {
    chosen(run, named, |_, state| {
        use ChangesState::{Applied, Applying, Conflicted, Discarding, Kept};
        matches!(state, Kept | Conflicted | Applied | Applying | Discarding)
    })
}

/// Whether the task changed something that was not applied.
fn is_lost(run: &Run, task: &Task) -> bool {
    let changes = task.changes.as_ref().filter(|changes| changes.has_something());
    let is_open = |changes: &TaskChanges| matches!(changes.state, ChangesState::Kept | ChangesState::Conflicted);
    changes.is_some_and(is_open) && !run.was_applied_with(task)
}

/// Those that changed something that was not applied, by their names.
fn not_applied(run: &Run, tasks: &[(usize, &Task)]) -> Vec<String> {
    tasks.iter().filter(|(_, task)| is_lost(run, task)).map(|(number, task)| task.called(*number)).collect()
}

/// Removes the worktrees of a run that is to be deleted, because no command can name them afterwards. `ask` shows what would be
/// lost, and asks.
pub(crate) async fn all_of(
    context: &Context,
    me: &Account,
    run: &Run,
    machines: &Machines,
    ask: impl FnOnce(&[String]) -> Result<()>,
) -> Result<()> {
    let is_applying =
        |task: &&Task| task.changes.as_ref().is_some_and(|changes| changes.state == ChangesState::Applying);
    if run.tasks.iter().flatten().any(|task| is_applying(&task)) {
        return Err(Failure::message("Changes of this run are being applied. Delete the run when that has ended."));
    }
    // The worktrees of a deleted machine cannot be reached any more.
    let is_there =
        |task: &Task| machines.all().is_empty() || task.machine_id.as_ref().is_none_or(|id| machines.get(id).is_some());
    let tasks: Vec<(usize, &Task)> =
        with_worktrees(run, None)?.into_iter().filter(|(_, task)| is_there(task)).collect();
    ask(&not_applied(run, &tasks))?;
    let mut left = Vec::new();
    for (number, task) in tasks {
        let called = task.called(number);
        // A person who deletes the run has agreed to lose it.
        match order((context, me), (run, task), Wish::Discard, true).await {
            Ok(changes) if changes.state == ChangesState::Discarded => {}
            Ok(changes) => {
                let machine = task.machine_id.as_ref().map_or("its machine".to_owned(), |id| machines.called(id));
                let why = match changes.state {
                    ChangesState::Discarding => "Is its runner running?".to_owned(),
                    _ => changes::why_failed(&changes),
                };
                left.push(format!("The worktree of {called} could not be removed from {machine}. {why}"));
            }
            Err(error) => left.push(format!("The worktree of {called} was not removed. {error}")),
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Failure::message(format!(
        "{}\nThe run was not deleted. Try again later, or leave these worktrees there: `ensemble runs delete {} --keep-worktrees`.",
        left.join("\n"),
        run.reference
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::task;

    #[test]
    fn a_task_that_was_not_discarded_says_why() {
        let task = task("a");
        let said = not_done(&task, &Failure::message("It has changed."));
        assert_eq!((&said["taskKey"], &said["error"]), (&"a".into(), &"It has changed.".into()));
    }
}
