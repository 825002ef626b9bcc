//! `ensemble do`: one prompt in this directory, with its output live.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ensemble_plan::{Draft, Overrides};
use ensemble_types::runs::Isolation;

use super::run::here;
use super::submit::{Choice, Options, names};
use super::{DONE, diff};
use crate::asking;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::following::Following;
use crate::piped;
use crate::print;
use crate::watching::{INTERRUPTED, end, watch};

/// Lets an agent do one thing in this directory, on this machine, and shows its output live.
#[derive(Debug, Args)]
pub(crate) struct Do {
    /// What to do (`-`: from standard input)
    #[arg(required = true)]
    prompt: Vec<String>,
    /// The directory [default: the current one]
    #[arg(long, short = 'C', alias = "dir", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Work in a separate git worktree and branch. `ensemble apply` brings the changes in
    #[arg(long, short)]
    worktree: bool,
    /// Show the results of tools in full
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    options: Options,
}

impl Do {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let prompt = self.prompt()?;
        let directory = here()?.join(self.directory.as_deref().unwrap_or(".".as_ref()));
        let is_local = self.directory.as_ref().is_none_or(|directory| !directory.is_absolute());
        let isolation = self.worktree.then_some(Isolation::Worktree);
        let overrides = Overrides { isolation, ..self.options.overrides() };
        let draft = Draft::of_prompt(&prompt, &directory, is_local, overrides)?;
        let me = context.me().await?;
        let (run, asked) = self.options.submit(context, &me, draft, Choice::First).await?;
        if self.options.detach {
            Options::detached(context, &run, &asked)?;
            return Ok(DONE);
        }
        if context.json {
            return watch(context, &me, run.id, asked, self.options.allow).await;
        }
        let machines = asked.machines.unwrap_or_default();
        let Some(task) = run.tasks.as_deref().unwrap_or_default().first().cloned() else {
            return Err(Failure::message(
                "The server returned a run without its task. Update `ensemble` and the server.",
            ));
        };
        let on = run.machine_id.as_ref().map_or(String::new(), |id| format!(" on {}", machines.called(id)));
        let others = match asked.others.as_slice() {
            [] => String::new(),
            others => format!(" (also there: {}; --provider chooses)", names(others)),
        };
        print::note(format!("Run {} with {}{others}{on}", run.reference, task.provider));
        let (is_folded, waits) = (!self.full, asked.is_said_to_wait);
        let mut following = Following::new(context, &me, &machines, (run, task), is_folded, waits);
        if !following.until_end().await? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let run = me.run(following.run()).await?;
        following.conclude(&run)?;
        let is_shown = diff::show_short(context, &me, &run).await?;
        end(context, &run, &machines, &asked.permissions, is_shown)?;
        asking::sessions(&me, &run).await?;
        Ok(self.options.allow.code(&run))
    }

    fn prompt(&self) -> Result<String> {
        let prompt = match self.prompt.as_slice() {
            [dash] if dash == "-" => piped::prompt()?,
            words => words.join(" "),
        };
        if prompt.trim().is_empty() {
            return Err(Failure::message("The prompt is empty. Say what to do: `ensemble do \"fix the tests\"`."));
        }
        Ok(prompt)
    }
}
