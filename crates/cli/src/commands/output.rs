//! `ensemble output`: prints the output of a task, once or live.

use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use ensemble_client::OutputOf;
use ensemble_types::runs::{Run, Task};
use futures_util::{Stream, StreamExt};

use super::DONE;
use super::runs::Which;
use crate::context::{Context, interrupts};
use crate::failure::{Failure, Result};
use crate::print;

/// Prints the output of a task's program.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// The run's id, or `last`
    run: Which,
    /// The task: its key, its id, or its number from 1 on [default: the only one]
    task: Option<String>,
    /// Continue until the attempt has ended
    #[arg(long, short)]
    follow: bool,
    /// The number of the attempt [default: the latest]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
}

impl Output {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let id = self.run.find(&me).await?;
        let run = me.client.run(id).await?;
        let task = find(&run, self.task.as_deref())?.id;
        let of = OutputOf { run: id, task, attempt: self.attempt, from: 0 };
        if self.follow {
            return print_all(context, me.client.follow_output(of)).await;
        }
        print_all(context, me.client.output(of).await?).await
    }
}

async fn print_all(context: &Context, output: impl Stream<Item = ensemble_client::Result<impl AsRef<[u8]>>>) -> Result {
    let mut output = pin!(output);
    let mut whole = Whole::default();
    let mut interrupt = interrupts()?;
    loop {
        let chunk = tokio::select! {
            chunk = output.next() => chunk,
            _ = interrupt.recv() => return Ok(ExitCode::from(130)),
        };
        let Some(chunk) = chunk else {
            whole.rest(context)?;
            return Ok(DONE);
        };
        whole.print(context, chunk?.as_ref())?;
    }
}

/// Holds back an incomplete character until the rest of it arrives.
#[derive(Default)]
struct Whole(Vec<u8>);

impl Whole {
    fn print(&mut self, context: &Context, chunk: &[u8]) -> Result<()> {
        self.0.extend_from_slice(chunk);
        let end = match std::str::from_utf8(&self.0) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.0.len(),
        };
        let rest = self.0.split_off(end);
        let ready = std::mem::replace(&mut self.0, rest);
        show(context, &ready)
    }

    fn rest(&mut self, context: &Context) -> Result<()> {
        show(context, &std::mem::take(&mut self.0))
    }
}

fn show(context: &Context, bytes: &[u8]) -> Result<()> {
    match bytes {
        [] => Ok(()),
        bytes if context.json => print::json(&serde_json::json!({ "data": String::from_utf8_lossy(bytes) }), true),
        bytes => print::raw(bytes),
    }
}

/// Finds the task that the argument names.
fn find<'r>(run: &'r Run, named: Option<&str>) -> Result<&'r Task> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let keys = || {
        let names: Vec<_> = tasks.iter().take(20).filter_map(|task| task.task_key.as_deref()).collect();
        if names.is_empty() { format!("1 to {}", tasks.len()) } else { names.join(", ") }
    };
    let Some(named) = named else {
        return match tasks {
            [only] => Ok(only),
            _ => Err(Failure::message(format!("This run has {} tasks. Name one of them: {}.", tasks.len(), keys()))),
        };
    };
    let by_key = tasks.iter().find(|task| task.task_key.as_deref() == Some(named));
    let by_id = || tasks.iter().find(|task| task.id.to_string() == named);
    let by_number = || named.parse::<usize>().ok().and_then(|number| tasks.get(number.checked_sub(1)?));
    by_key
        .or_else(by_id)
        .or_else(by_number)
        .ok_or_else(|| Failure::message(format!("This run has no task {named}. It has: {}.", keys())))
}
