//! `ensemble apply`: brings what tasks changed in their worktrees into the directory.

use clap::Args;
use ensemble_account::changes::Wish;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};

use super::DONE;
use crate::changes::{self, chosen, files_word, order};
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::named::Which;
use crate::print;

/// Merges what tasks changed in their worktrees into the directory from which they began. Nothing is staged, and no file with
/// uncommitted changes is changed: then, or with a conflict, nothing is changed at all.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task: its key, its ref or id, or its number from 1 on [default: all that have a worktree with changes]
    #[arg(add = complete::tasks())]
    task: Option<String>,
    /// Also what could not be shown: files beyond the first 256, and what is missing in a diff that was too long
    #[arg(long)]
    unseen: bool,
}

impl Apply {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let run = self.run.get(&me).await?;
        let machines = Machines::if_available(&me).await;
        let tasks = chosen(&run, self.task.as_deref(), |task, state| {
            matches!(state, ChangesState::Kept | ChangesState::Conflicted | ChangesState::Applying)
                && task.changes.as_ref().is_some_and(|changes| changes.has_something() || changes.was_applied)
                && !run.is_continued(task)
        })?;
        if tasks.is_empty() {
            return Err(nothing(&run));
        }
        if let [(_, task)] = tasks.as_slice()
            && let Some(changes) = task.changes.as_ref().filter(|changes| changes.state == ChangesState::Applied)
        {
            return Err(done(task, changes));
        }
        let mut code = DONE;
        let mut results = Vec::new();
        for (number, task) in tasks {
            let changes = order((context, &me), (&run, task), Wish::Apply, self.unseen).await?;
            if changes.state != ChangesState::Applied {
                code = changes::unfinished(&changes, code);
            }
            if context.json {
                results.push(serde_json::json!({ "taskId": task.id, "taskKey": task.task_key, "changes": changes }));
                continue;
            }
            let called = task.called(number);
            match changes.state {
                ChangesState::Applied => {
                    let place = task.working_directory.as_deref().unwrap_or("its directory");
                    print::line(format!(
                        "✓ {called}: {} changed in the repository of {place}",
                        files_word(changes.file_count)
                    ))?;
                    changes::files(&changes)?;
                    changes::notes(&changes)?;
                    for earlier in run.began_with(task) {
                        let Some(of) = earlier.changes.as_ref().filter(|of| of.file_count > 0) else { continue };
                        let key = earlier.task_key.as_deref().unwrap_or_default();
                        print::line(format!("  with what it began with, {key}: {}", files_word(of.file_count)))?;
                        changes::files(of)?;
                    }
                }
                ChangesState::Conflicted if changes.conflicted.is_empty() => print::line(format!(
                    "✗ {called}: not applied. {} `ensemble diff {}` shows it.",
                    changes::why_failed(&changes),
                    run.reference
                ))?,
                ChangesState::Conflicted => refused(&run, task, &called, &changes.conflicted)?,
                ChangesState::Applying => {
                    print::line(format!("… {called}: {}.", changes::why_open(task, &changes, &machines)))?;
                }
                ChangesState::Lost => print::line(format!("✗ {called}: the worktree is gone"))?,
                _ => print::line(format!(
                    "✗ {called}: the machine could not apply the changes, and nothing was changed. {}",
                    changes::why_failed(&changes)
                ))?,
            }
        }
        if context.json {
            print::json(&serde_json::json!({ "tasks": results }), false)?;
        } else if code == DONE {
            print::note(format!("Nothing is staged. `ensemble discard {}` removes the worktrees.", run.reference));
        }
        Ok(code)
    }
}

fn refused(run: &Run, task: &Task, called: &str, files: &[String]) -> Result<()> {
    print::line(format!("✗ {called}: not applied, and nothing was changed, because of:"))?;
    files.iter().try_for_each(|file| print::line(format!("  {}", print::inline(file))))?;
    let which = task.task_key.as_deref().map_or(String::new(), |key| format!(" {key}"));
    let they = match files {
        [_] => "It has uncommitted changes, or conflicts",
        _ => "They have uncommitted changes, or conflict",
    };
    print::line(format!(
        "{they} with what was committed. Commit or stash yours and try again, or merge the branch yourself: git merge ensemble/{}",
        task.id
    ))?;
    print::line(format!("  ensemble apply {}{which}", run.reference))
}

/// They were applied. What the person has undone since is the person's to bring back.
fn done(task: &Task, changes: &TaskChanges) -> Failure {
    let place = task.working_directory.as_deref().unwrap_or("its directory");
    Failure::message(format!(
        "The changes of {} were applied to {place} before. To bring them again: git merge --squash ensemble/{}",
        files_word(changes.file_count),
        task.id
    ))
}

/// Why there is nothing to apply.
fn nothing(run: &Run) -> Failure {
    let of_run = || changes::with_files(run.tasks.as_deref().unwrap_or_default());
    if let Some((_, task, changes)) = of_run().find(|(_, _, changes)| changes.state == ChangesState::Applied) {
        return done(task, changes);
    }
    Failure::message(match of_run().next() {
        None => "No task of this run has a worktree with changes.".to_owned(),
        Some((_, _, changes)) if changes.state == ChangesState::None => {
            "The tasks of this run worked in their directory itself, so there is nothing to apply. `--worktree` (or `isolation: \
             worktree` in a plan) gives a task a worktree."
                .to_owned()
        }
        Some((_, _, changes)) => format!("There is nothing left to apply: the changes are {}.", changes.state.as_str()),
    })
}
