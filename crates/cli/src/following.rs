//! One task that is followed to its end, with the output of its agent live.

use std::pin::Pin;
use std::time::Duration;

use ensemble_account::Account;
use ensemble_client::OutputOf;
use ensemble_screen::lines::{AgentOutput, ended};
use ensemble_types::ids::RunId;
use ensemble_types::runs::{Run, Task, TaskStatus};
use futures_util::{Stream, StreamExt};

use crate::context::{Context, interrupts};
use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::watching::{RetryBudget, interrupted};

type Chunks = Pin<Box<dyn Stream<Item = ensemble_client::Result<Vec<u8>>> + Send>>;

/// Follows one task of a run.
pub(crate) struct Following<'a> {
    context: &'a Context,
    me: &'a Account,
    machines: &'a Machines,
    run: Run,
    task: Task,
    is_folded: bool,
    output: Option<Chunks>,
    /// The attempt whose output was followed last, as long as it counts.
    followed: u32,
    /// The attempt of the open output, and how much of it was read.
    open: u32,
    read: u64,
    /// The attempt that need not be announced.
    first: u32,
    view: AgentOutput,
    said: Option<String>,
    /// Whether it was said how to leave a task that waits.
    is_said_to_wait: bool,
    budget: RetryBudget,
}

impl<'a> Following<'a> {
    /// Only attempts after the one that the task has had are followed.
    pub(crate) fn new(
        context: &'a Context,
        me: &'a Account,
        machines: &'a Machines,
        (run, task): (Run, Task),
        is_folded: bool,
        is_said_to_wait: bool,
    ) -> Self {
        Self {
            context,
            me,
            machines,
            run,
            followed: task.attempt,
            open: 0,
            first: task.attempt.saturating_add(1),
            task,
            is_folded,
            output: None,
            read: 0,
            view: AgentOutput::default(),
            said: None,
            is_said_to_wait,
            budget: RetryBudget::default(),
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.run.id
    }

    /// `false`: the user left while the run continues.
    pub(crate) async fn until_end(&mut self) -> Result<bool> {
        let mut interrupt = interrupts()?;
        let id = self.run.id;
        let mut cursor = self.run.version.to_string();
        let mut changes = Box::pin(self.me.client.watch_run(id, cursor.clone()));
        let mut clock = tokio::time::interval(Duration::from_secs(2));
        clock.tick().await;
        let mut has_ended = false;
        while !has_ended || self.output.is_some() {
            tokio::select! {
                change = changes.next(), if !has_ended => match change {
                    None => has_ended = true,
                    Some(Err(error)) => {
                        self.budget.wait(error).await?;
                        changes.set(self.me.client.watch_run(id, cursor.clone()));
                    }
                    Some(Ok(change)) => {
                        self.budget = RetryBudget::default();
                        cursor.clone_from(&change.cursor);
                        if let Some(changed) = change.changed_tasks.iter().find(|task| task.id == self.task.id) {
                            (self.task.status, self.task.attempt) = (changed.status, changed.attempt);
                            self.task.waiting_for = changed.waiting_for;
                            // An attempt that did not count: the next one has its number.
                            self.followed = self.followed.min(changed.attempt);
                            has_ended = changed.status.is_terminal();
                            self.follow();
                        }
                    }
                },
                chunk = next(&mut self.output) => self.print(chunk).await?,
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

    /// The task and its position in the run as it is now.
    pub(crate) fn find<'r>(&self, run: &'r Run) -> Option<(usize, &'r Task)> {
        run.tasks.iter().flatten().enumerate().find(|(_, task)| task.id == self.task.id)
    }

    /// The result, unless the output ended with it, or why it is missing.
    pub(crate) fn conclude(&self, run: &Run) -> Result<()> {
        let Some((number, task)) = self.find(run) else { return Ok(()) };
        let result = task.output_summary.as_deref().filter(|_| task.status == TaskStatus::Completed);
        if let Some(result) = result.filter(|result| !self.view.ends_with(result)) {
            print::line("")?;
            print::markdown(result.trim_end())?;
        }
        let tasks = run.tasks.as_deref().unwrap_or_default();
        print::lines(ended::failed(run, task, number, tasks, self.machines))
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
        if attempt > self.first {
            print::note(format!("Attempt {attempt}"));
        }
        (self.followed, self.open, self.read) = (attempt, attempt, 0);
        self.view = print::agent_output(self.is_folded);
        self.read_on();
    }

    fn read_on(&mut self) {
        let of = OutputOf { run: self.run.id, task: self.task.id, attempt: Some(self.open), from: self.read };
        let chunks = self.me.client.follow_output(of);
        self.output = Some(Box::pin(chunks.map(|chunk| chunk.map(|bytes| bytes.to_vec()))));
    }

    async fn print(&mut self, chunk: Option<ensemble_client::Result<Vec<u8>>>) -> Result<()> {
        match chunk {
            Some(Ok(chunk)) => {
                self.read += u64::try_from(chunk.len()).unwrap_or_default();
                return print::drawn(self.view.add(&chunk));
            }
            Some(Err(error)) if error.is_not_found() && self.read == 0 => {
                // The machine handed the task back before its agent began. The next attempt has the same number.
                self.output = None;
                self.followed = self.followed.min(self.open.saturating_sub(1));
                return Ok(());
            }
            Some(Err(error)) if error.may_pass() => {
                self.budget.wait(error).await?;
                self.read_on();
                return Ok(());
            }
            Some(Err(error)) => print::note(format!(
                "The output cannot be followed any further: {}",
                crate::failure::Failure::from(error)
            )),
            None => {}
        }
        self.output = None;
        print::drawn(self.view.finish())?;
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
        let Some((_, task)) = self.find(&run) else { return };
        if let Some(reason) = task.waiting_reason.as_ref().filter(|reason| self.said.as_ref() != Some(*reason)) {
            if !std::mem::replace(&mut self.is_said_to_wait, true) && task.status == TaskStatus::Queued {
                print::note("It waits. Ctrl-C offers to cancel it, or to leave it queued.");
            }
            print::note(format!("Waiting: {}", self.machines.explain(reason)));
            self.said = Some(reason.clone());
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
