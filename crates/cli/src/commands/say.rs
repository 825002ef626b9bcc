//! `ensemble say`: says something more to the agent of a task that has ended.

use std::io;

use clap::Args;
use ensemble_client::idempotency_key;
use ensemble_types::runs::TaskMessage;
use ensemble_types::text::Text;

use super::DONE;
use super::output::find;
use super::runs::Which;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::plan::read_text;
use crate::print;
use crate::watching::{AllowDenials, Asked, watch};

/// Longer than any text that the server takes.
const LONGEST: u64 = 512 * 1024;

/// Says something more to the agent of a task that has ended. It goes on with its conversation, on the same machine.
#[derive(Debug, Args)]
pub(crate) struct Say {
    /// The run's ref or id, or `last`
    #[arg(add = complete::runs())]
    run: Which,
    /// The task, if the run has several (its key, its ref or id, or its number from 1 on), and the text (`-`: standard
    /// input)
    #[arg(required = true, num_args = 1..=2, value_names = ["TASK", "TEXT"])]
    words: Vec<String>,
    /// Do not wait for the run to end
    #[arg(long, short)]
    detach: bool,
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
        let task = find(&run, task)?;
        let task = me.client.say(run.id, task.id, &TaskMessage { text, message_id }).await?;
        if !self.detach {
            return watch(context, &me, run.id, Asked::default(), self.allow).await;
        }
        if context.json {
            print::json(&task, false)?;
        } else {
            print::line(format!(
                "Run {} goes on: `ensemble show {} --watch` watches it.",
                run.reference, run.reference
            ))?;
        }
        Ok(DONE)
    }
}
