//! `ensemble discard`: removes the worktrees of tasks.

use std::process::ExitCode;

use clap::Args;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};

use super::DONE;
use super::runs::Which;
use crate::changes::{self, Wish, chosen, order};
use crate::complete;
use crate::confirm;
use crate::context::{Context, Me};
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::print;
use crate::progress::name;

/// Removes the worktrees of tasks and their branches, and nothing else. What was not applied is lost.
#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task: its key, its ref or id, or its number from 1 on [default: all that have a worktree]
    #[arg(add = complete::tasks())]
    task: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

impl Discard {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let run = self.run.get(&me).await?;
        let machines = Machines::if_available(context, &me).await;
        let tasks = with_worktrees(&run, self.task.as_deref())?;
        if tasks.is_empty() {
            return Err(Failure::message("No task of this run has a worktree."));
        }
        let lost = not_applied(&run, &tasks);
        if !lost.is_empty() && !self.yes {
            confirm::deletion(&format!("what {} changed, which was not applied", lost.join(", ")))?;
        }
        let mut code = DONE;
        let mut results = Vec::new();
        for (number, task) in tasks {
            let changes = order(&me, &run, task, Wish::Discard).await?;
            if changes.state != ChangesState::Discarded {
                code = ExitCode::FAILURE;
            }
            let called = name(task, number);
            match changes.state {
                _ if context.json => {
                    results
                        .push(serde_json::json!({ "taskId": task.id, "taskKey": task.task_key, "changes": changes }));
                }
                ChangesState::Discarded => print::line(format!("✓ {called}: the worktree is removed"))?,
                ChangesState::Discarding => changes::waits(task, number, &machines)?,
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

/// The tasks that have a worktree, with their positions.
fn with_worktrees<'r>(run: &'r Run, named: Option<&str>) -> Result<Vec<(usize, &'r Task)>> {
    chosen(run, named, |_, state| {
        use ChangesState::{Applied, Conflicted, Discarding, Kept};
        matches!(state, Kept | Conflicted | Applied | Discarding)
    })
}

/// Those that changed something that was not applied, by their names.
fn not_applied(run: &Run, tasks: &[(usize, &Task)]) -> Vec<String> {
    let is_lost = |task: &Task| {
        let changes = task.changes.as_ref().filter(|changes| changes::has_something(changes));
        let is_open = |changes: &TaskChanges| matches!(changes.state, ChangesState::Kept | ChangesState::Conflicted);
        changes.is_some_and(is_open) && !changes::was_applied_with(run, task)
    };
    tasks.iter().filter(|(_, task)| is_lost(task)).map(|(number, task)| name(task, *number)).collect()
}

/// Removes the worktrees of a run that is to be deleted, because no command can name them afterwards. `ask` shows what would be
/// lost, and asks.
pub(crate) async fn all_of(
    me: &Me,
    run: &Run,
    machines: &Machines,
    ask: impl FnOnce(&[String]) -> Result<()>,
) -> Result<()> {
    let is_applying =
        |task: &&Task| task.changes.as_ref().is_some_and(|changes| changes.state == ChangesState::Applying);
    if run.tasks.iter().flatten().any(|task| is_applying(&task)) {
        return Err(Failure::message("Changes of this run are being applied. Delete the run when that has ended."));
    }
    // The worktrees of a deleted machine are nobody's any more.
    let is_there =
        |task: &Task| machines.all().is_empty() || task.machine_id.as_ref().is_none_or(|id| machines.get(id).is_some());
    let tasks: Vec<(usize, &Task)> =
        with_worktrees(run, None)?.into_iter().filter(|(_, task)| is_there(task)).collect();
    ask(&not_applied(run, &tasks))?;
    for (number, task) in tasks {
        if order(me, run, task, Wish::Discard).await?.state != ChangesState::Discarded {
            let machine = task.machine_id.as_ref().map_or("its machine".to_owned(), |id| machines.called(id));
            return Err(Failure::message(format!(
                "The worktree of {} could not be removed from {machine}. Is its runner running? Try again when it is, or \
                 leave the worktree there: `ensemble runs delete {} --keep-worktrees`.",
                name(task, number),
                run.reference
            )));
        }
    }
    Ok(())
}
