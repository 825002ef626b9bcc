//! `ensemble output`: prints the output of a task, once or live.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use ensemble_client::OutputOf;
use ensemble_screen::lines::AgentOutput;
use ensemble_types::runs::{Run, Task, WaitingFor};
use futures_util::{Stream, StreamExt};

use super::DONE;
use crate::complete;
use crate::context::{Context, interrupts};
use crate::failure::{Failure, Result};
use crate::named::{Which, find};
use crate::print;

/// Prints the output of a task's program.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task: its key, its ref or id, or its number from 1 on [default: the only one]
    #[arg(add = complete::tasks())]
    task: Option<String>,
    /// Continue until the attempt has ended
    #[arg(long, short)]
    follow: bool,
    /// The number of the attempt [default: the latest]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Show the results of tools in full, as they always are when the output is not a terminal
    #[arg(long)]
    full: bool,
}

impl Output {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let run = self.run.get(&me).await?;
        let task = find(&run, self.task.as_deref())?;
        check_attempt(&run, task, self.attempt)?;
        let of = OutputOf { run: run.id, task: task.id, attempt: self.attempt, from: 0 };
        let is_folded = !self.full && io::stdout().is_terminal();
        let view = if context.json { AgentOutput::default() } else { print::agent_output(is_folded) };
        if self.follow {
            return print_all(view, me.client.follow_output(of), context.json).await;
        }
        print_all(view, me.client.output(of).await?, context.json).await
    }
}

async fn print_all(
    mut view: AgentOutput,
    output: impl Stream<Item = ensemble_client::Result<impl AsRef<[u8]>>>,
    as_json: bool,
) -> Result {
    let print = |bytes: Vec<u8>| match as_json {
        true if bytes.is_empty() => Ok(()),
        true => print::json(&serde_json::json!({ "data": String::from_utf8_lossy(&bytes) }), true),
        false => print::drawn(bytes),
    };
    let mut output = pin!(output);
    let mut interrupt = interrupts()?;
    loop {
        let chunk = tokio::select! {
            chunk = output.next() => chunk,
            _ = interrupt.recv() => return Ok(ExitCode::from(130)),
        };
        let Some(chunk) = chunk else {
            print(view.finish())?;
            return Ok(DONE);
        };
        print(view.add(chunk?.as_ref()))?;
    }
}

/// The command that prints what an attempt of a task said.
pub(crate) fn command(run: &Run, task: &Task, attempt: u32) -> String {
    let number = run.tasks.iter().flatten().position(|other| other.id == task.id).map_or(1, |at| at + 1);
    let which = task.task_key.clone().unwrap_or_else(|| number.to_string());
    format!("ensemble output {} {which} --attempt {attempt}", run.reference)
}

/// Fails if the task has no such attempt.
fn check_attempt(run: &Run, task: &Task, attempt: Option<u32>) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let number = tasks.iter().position(|other| other.id == task.id).unwrap_or_default();
    let name = task.called(number);
    // An attempt that ended at the provider's limit is not counted, but has output.
    let newest = task.attempt + u32::from(task.waiting_for == Some(WaitingFor::Quota));
    match (attempt, newest) {
        (Some(wanted), 0) => Err(Failure::message(format!("{name} has no attempt {wanted}: it has not begun yet."))),
        (Some(wanted), 1) if wanted > 1 => {
            Err(Failure::message(format!("{name} has no attempt {wanted}. It has only attempt 1.")))
        }
        (Some(wanted), newest) if wanted > newest => {
            Err(Failure::message(format!("{name} has no attempt {wanted}. It has the attempts 1 to {newest}.")))
        }
        _ => Ok(()),
    }
}
