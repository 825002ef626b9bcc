//! `ensemble diff`: what tasks changed.

use clap::Args;
use ensemble_account::Account;
use ensemble_screen::lines::{Styled, Tone};
use ensemble_types::runs::{Run, Task};
use futures_util::StreamExt;

use super::DONE;
use crate::changes::{self, chosen};
use crate::complete;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::named::Which;
use crate::print;

/// How many changed lines fit a screen, with the lines around them.
const SHORT: u64 = 30;

/// Shows what tasks changed, as a unified diff.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task: its key, its ref or id, or its number from 1 on [default: all]
    #[arg(add = complete::tasks())]
    task: Option<String>,
    /// Only the files with their counts
    #[arg(long)]
    stat: bool,
}

impl Diff {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let run = self.run.get(&me).await?;
        let tasks = chosen(&run, self.task.as_deref(), |task, _| {
            task.changes.as_ref().is_some_and(|changes| changes.file_count > 0)
        })?;
        if context.json {
            let mut found = Vec::new();
            for (_, task) in &tasks {
                let diff = read(&me, &run, task).await?;
                context.home.saw_diff(task, &diff, now())?;
                let diff = String::from_utf8_lossy(&diff);
                found.push(serde_json::json!({ "taskId": task.id, "taskKey": task.task_key, "changes": task.changes, "diff": diff }));
            }
            print::json(&serde_json::json!({ "tasks": found }), false)?;
            return Ok(DONE);
        }
        if tasks.is_empty() {
            print::note("No task of this run has changed files, as far as is known.");
            for task in run.tasks.iter().flatten() {
                task.changes.as_ref().map_or(Ok(()), changes::notes)?;
            }
        }
        for (number, task) in &tasks {
            if tasks.len() > 1 || self.stat {
                print::line(format!("── {} ──", task.called(*number)))?;
            }
            match &task.changes {
                Some(changes) if self.stat => changes::show_files(context, task, changes, usize::MAX)?,
                Some(changes) => {
                    let diff = read(&me, &run, task).await?;
                    show(&diff)?;
                    context.home.saw_diff(task, &diff, now())?;
                    if changes.diff_truncated {
                        print::note(
                            "The diff is not complete: it was too long, its machine could not send it, or the quota was reached.",
                        );
                    }
                }
                None => print::note(format!("It is not known what {} changed.", task.called(*number))),
            }
        }
        Ok(DONE)
    }
}

/// Prints what the tasks of a run changed, as long as it fits a screen. Returns whether that is all that they changed.
pub(crate) async fn show_short(context: &Context, me: &Account, run: &Run) -> Result<bool> {
    let (mut printed, mut left_out) = (0_u32, 0_u32);
    for (_, task, changes) in changes::with_files(run.tasks.as_deref().unwrap_or_default()) {
        let is_short = changes.added.saturating_add(changes.removed) <= SHORT && !changes.diff_truncated;
        // The end of a run says what changed in any case.
        if let (true, Ok(diff)) = (is_short, read(me, run, task).await) {
            print::line("")?;
            show(&diff)?;
            context.home.saw_diff(task, &diff, now())?;
            printed += 1;
        } else {
            left_out += 1;
        }
    }
    Ok(printed > 0 && left_out == 0)
}

async fn read(me: &Account, run: &Run, task: &Task) -> Result<Vec<u8>> {
    let mut pieces = std::pin::pin!(me.client.task_diff(run.id, task.id).await?);
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

/// Prints a diff: with colours on a terminal, and never with the escapes of others there.
fn show(diff: &[u8]) -> Result<()> {
    use std::io::IsTerminal;
    if !std::io::stdout().is_terminal() {
        // For `git apply` every byte counts.
        return print::drawn(diff);
    }
    let diff = String::from_utf8_lossy(diff);
    diff.lines().try_for_each(|line| print::styled(&Styled::new(tone(line), &line.replace('\t', "    "))))
}

fn tone(line: &str) -> Tone {
    match line.as_bytes().first() {
        _ if line.starts_with("diff --git ") || line.starts_with("+++ ") || line.starts_with("--- ") => Tone::Strong,
        Some(b'+') => Tone::Good,
        Some(b'-') => Tone::Bad,
        Some(b'@') => Tone::Busy,
        _ => Tone::Plain,
    }
}
