//! `ensemble say`: says something more to the agent of a task that has ended.

use std::io;
use std::process::ExitCode;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::tasks::Wanted;
use ensemble_client::idempotency_key;
use ensemble_plan::read_text;
use ensemble_types::runs::{Run, Signed, Task, TaskMessage};
use ensemble_types::text::Text;

use super::DONE;
use super::output::command;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::following::Following;
use crate::machines::Machines;
use crate::named::{Which, find};
use crate::print;
use crate::watching::{AllowDenials, Asked, INTERRUPTED, end_of, named, watch};

/// Longer than any text that the server takes.
const LONGEST: u64 = 512 * 1024;

/// Says something more to the agent of a task that has ended. It resumes its conversation, on the same machine, and its
/// output is shown live. The exit code says how this task ended.
#[derive(Debug, Args)]
pub(crate) struct Say {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task, if the run has several (its key, its ref or id, or its number from 1 on), and the text (`-`: standard
    /// input)
    #[arg(required = true, num_args = 1..=2, value_names = ["TASK", "TEXT"], add = complete::tasks())]
    words: Vec<String>,
    /// Do not wait for the task to end
    #[arg(long, short)]
    detach: bool,
    /// Show the results of tools in full
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    allow: AllowDenials,
}

impl Say {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let (task, text) = match self.words.as_slice() {
            [text] => (None, text),
            [task, text] => (Some(task.as_str()), text),
            _ => return Err(Failure::message("Put the text into quotes: `ensemble say last \"and now the tests\"`.")),
        };
        let text = if text == "-" {
            read_text(io::stdin(), LONGEST)
                .map_err(|error| Failure::message(format!("Cannot read the text: {error}.")))?
        } else {
            text.clone()
        };
        if text.trim().is_empty() {
            return Err(Failure::message("The text is empty. Say what to do next: `ensemble say last \"…\"`."));
        }
        let text = Text::new(text).map_err(|error| Failure::message(format!("The text {error}.")))?;
        let message_id =
            Text::new(idempotency_key()).map_err(|error| Failure::message(format!("The message's id {error}.")))?;
        let me = context.me().await?;
        let run = self.run.get(&me).await?;
        if let ([only], true) = (self.words.as_slice(), run.tasks.as_ref().is_some_and(|tasks| tasks.len() > 1))
            && find(&run, Some(only)).is_ok()
        {
            return Err(Failure::message(format!(
                "Say something to {only}: `ensemble say {} {only} \"…\"`.",
                run.reference
            )));
        }
        let task = find(&run, task)?;
        let earlier = command(&run, task, task.attempt);
        let Signed { signature, signed_body } = me.order(&run, task, Wanted::Message(text.to_string()))?;
        let (signature, signed_body) = (Some(signature), Some(signed_body));
        let message = TaskMessage { text, message_id, signature, signed_body };
        let task = me.client.say(run.id, task.id, &message).await?;
        me.use_run(run.id);
        if self.detach {
            if context.json {
                print::json(&named(&Machines::if_available(&me).await, &task), false)?;
            } else {
                let run = run.reference;
                print::line(format!(
                    "Run {run} continues: `ensemble show {run} --watch` watches it. What the task has said so far stays: `{earlier}`."
                ))?;
            }
            return Ok(DONE);
        }
        if context.json {
            let asked = Asked { about: Some(task.id), ..Asked::default() };
            return watch(context, &me, run.id, asked, self.allow).await;
        }
        print::note(format!("What the task has said so far stays: `{earlier}` prints it."));
        self.follow(context, &me, run, task).await
    }

    async fn follow(&self, context: &Context, me: &Account, run: Run, task: Task) -> Result {
        let machines = Machines::if_available(me).await;
        let number = run.tasks.iter().flatten().position(|other| other.id == task.id).unwrap_or_default();
        let on = task.machine_id.as_ref().map_or(String::new(), |id| format!(" on {}", machines.called(id)));
        print::note(format!("Run {}, {} with {}{on}", run.reference, task.called(number), task.provider));
        let mut following = Following::new(context, me, &machines, (run, task), !self.full, false);
        if !following.until_end().await? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let run = me.run(following.run()).await?;
        following.conclude(&run)?;
        let Some((number, task)) = following.find(&run) else { return Ok(ExitCode::FAILURE) };
        end_of(context, &run, (number, task), &machines)?;
        Ok(self.allow.code_of(task))
    }
}
