//! `ensemble discard`: removes the worktrees of tasks.

use std::process::ExitCode;

use clap::Args;
use ensemble_types::runs::{ChangesState, Task};

use super::DONE;
use super::runs::Which;
use crate::changes::{self, Wish, chosen, order};
use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::print;
use crate::progress::name;

/// Removes the worktrees of tasks and their branches, and nothing else. What was not applied is lost.
#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// The run's id, or `last`
    run: Which,
    /// The task: its key, its id, or its number from 1 on [default: all that have a worktree]
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
        let tasks = chosen(&run, self.task.as_deref(), |_, state| {
            use ChangesState::{Applied, Conflicted, Discarding, Kept};
            matches!(state, Kept | Conflicted | Applied | Discarding)
        })?;
        if tasks.is_empty() {
            return Err(Failure::message("No task of this run has a worktree."));
        }
        let is_lost = |task: &Task| {
            let state = task.changes.as_ref().map(|changes| changes.state);
            matches!(state, Some(ChangesState::Kept | ChangesState::Conflicted))
        };
        let lost: Vec<String> =
            tasks.iter().filter(|(_, task)| is_lost(task)).map(|(number, task)| name(task, *number)).collect();
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
                    "✗ {called}: the machine could not remove the worktree. The log of its runner says why"
                ))?,
            }
        }
        if context.json {
            print::json(&serde_json::json!({ "tasks": results }), false)?;
        }
        Ok(code)
    }
}
