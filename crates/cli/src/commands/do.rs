//! `ensemble do`: one prompt in this directory, with its output live.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ensemble_client::OutputOf;
use ensemble_types::runs::{Isolation, Run, Task, TaskStatus};
use futures_util::{Stream, StreamExt};

use super::DONE;
use super::run::here;
use super::submit::{Choice, Options};
use crate::agent_output::AgentOutput;
use crate::context::{Context, Me, interrupts};
use crate::failure::{Failure, Result};
use crate::machines::Machines;
use crate::plan::{self, Draft, Overrides};
use crate::print;
use crate::watching::{INTERRUPTED, RetryBudget, end, failed, interrupted, watch};

/// The longest prompt in bytes, as it is read. The server has a limit of its own in characters.
const LONGEST_PROMPT: u64 = 256 << 10;

/// Lets an agent do one thing in this directory, on this machine, and shows its output live.
#[derive(Debug, Args)]
pub(crate) struct Do {
    /// What to do (`-`: from standard input)
    #[arg(required = true)]
    prompt: Vec<String>,
    /// The directory [default: the current one]
    #[arg(long, short = 'C', value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Work in a git worktree and on a branch of its own. `ensemble apply` brings the changes in
    #[arg(long, short)]
    worktree: bool,
    /// Show the results of tools whole
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
        print::note(format!("Run {} with {}{on}", run.reference, task.provider));
        let mut following = Following {
            context,
            me: &me,
            machines: &machines,
            run: run.clone(),
            task,
            is_folded: !self.full,
            output: None,
            followed: 0,
            view: AgentOutput::default(),
            said: None,
        };
        if !following.until_end().await? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let run = me.client.run(run.id).await?;
        conclude(&run, &machines, &following.view)?;
        end(&run, &machines, &asked.permissions)?;
        Ok(self.options.allow.code(&run))
    }

    fn prompt(&self) -> Result<String> {
        let prompt = match self.prompt.as_slice() {
            [dash] if dash == "-" => plan::read_text(io::stdin(), LONGEST_PROMPT)
                .map_err(|error| Failure::message(format!("Cannot read the prompt: {error}.")))?,
            words => words.join(" "),
        };
        if prompt.trim().is_empty() {
            return Err(Failure::message("The prompt is empty. Say what to do: `ensemble do \"fix the tests\"`."));
        }
        Ok(prompt)
    }
}

type Chunks = Pin<Box<dyn Stream<Item = ensemble_client::Result<Vec<u8>>> + Send>>;

/// Follows the one task of a run.
struct Following<'a> {
    context: &'a Context,
    me: &'a Me,
    machines: &'a Machines,
    run: Run,
    task: Task,
    is_folded: bool,
    output: Option<Chunks>,
    /// The attempt whose output is, or was, followed last.
    followed: u32,
    view: AgentOutput,
    said: Option<String>,
}

impl Following<'_> {
    /// `false`: the user left while the run goes on.
    async fn until_end(&mut self) -> Result<bool> {
        let mut interrupt = interrupts()?;
        let id = self.run.id;
        let mut cursor = self.run.version.to_string();
        let mut changes = Box::pin(self.me.client.watch_run(id, cursor.clone()));
        let mut budget = RetryBudget::default();
        let mut clock = tokio::time::interval(Duration::from_secs(2));
        clock.tick().await;
        let mut has_ended = false;
        while !has_ended || self.output.is_some() {
            tokio::select! {
                change = changes.next(), if !has_ended => match change {
                    None => has_ended = true,
                    Some(Err(error)) => {
                        budget.wait(error).await?;
                        changes.set(self.me.client.watch_run(id, cursor.clone()));
                    }
                    Some(Ok(change)) => {
                        budget = RetryBudget::default();
                        cursor.clone_from(&change.cursor);
                        if let Some(changed) = change.changed_tasks.iter().find(|task| task.id == self.task.id) {
                            (self.task.status, self.task.attempt) = (changed.status, changed.attempt);
                            self.task.waiting_for = changed.waiting_for;
                            // An attempt that did not count: the next one has its number.
                            self.followed = self.followed.min(changed.attempt);
                            self.follow();
                        }
                    }
                },
                chunk = next(&mut self.output) => self.print(chunk)?,
                _ = clock.tick(), if !has_ended && self.waits() => self.say_why().await,
                _ = interrupt.recv() => {
                    if !interrupted(self.context, self.me, &self.run, &mut interrupt).await? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn waits(&self) -> bool {
        self.task.status == TaskStatus::Queued || self.task.waiting_for.is_some()
    }

    /// Begins to follow the output of an attempt that is not yet followed.
    fn follow(&mut self) {
        let attempt = self.task.attempt;
        if self.output.is_some() || attempt <= self.followed || self.task.status == TaskStatus::Dispatching {
            return;
        }
        if attempt > 1 {
            print::note(format!("Attempt {attempt}"));
        }
        self.followed = attempt;
        self.view = AgentOutput::new(false, self.is_folded);
        let of = OutputOf { run: self.run.id, task: self.task.id, attempt: Some(attempt), from: 0 };
        let chunks = self.me.client.follow_output(of);
        self.output = Some(Box::pin(chunks.map(|chunk| chunk.map(|bytes| bytes.to_vec()))));
    }

    fn print(&mut self, chunk: Option<ensemble_client::Result<Vec<u8>>>) -> Result<()> {
        match chunk {
            Some(Ok(chunk)) => return self.view.print(&chunk),
            Some(Err(error)) => {
                print::note(format!("The output cannot be followed any further: {}", Failure::from(error)))
            }
            None => {}
        }
        self.output = None;
        self.view.finish()?;
        if !self.view.is_at_line_start() {
            print::line("")?;
        }
        // The next attempt may have begun.
        self.follow();
        Ok(())
    }

    /// Says why the task waits, once for each reason.
    async fn say_why(&mut self) {
        let Ok(run) = self.me.client.run(self.run.id).await else { return };
        let Some(task) = run.tasks.unwrap_or_default().into_iter().find(|task| task.id == self.task.id) else { return };
        if let Some(reason) = task.waiting_reason.filter(|reason| self.said.as_ref() != Some(reason)) {
            print::note(format!("Waiting: {}", self.machines.explain(&reason)));
            self.said = Some(reason);
        }
    }
}

/// The next part of the output. Never ready when nothing is followed.
async fn next(output: &mut Option<Chunks>) -> Option<ensemble_client::Result<Vec<u8>>> {
    match output {
        Some(output) => output.next().await,
        None => std::future::pending().await,
    }
}

/// The result, unless the output ended with it, or why there is none.
fn conclude(run: &Run, machines: &Machines, view: &AgentOutput) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    for (number, task) in tasks.iter().enumerate() {
        let result = task.output_summary.as_deref().filter(|_| task.status == TaskStatus::Completed);
        if let Some(result) = result.filter(|result| !view.ends_with(result)) {
            print::line(format!("\n{}", result.trim_end()))?;
        }
        failed(run, task, number, tasks, machines)?;
    }
    Ok(())
}
