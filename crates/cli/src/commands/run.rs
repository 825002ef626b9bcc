//! `ensemble run`: submits a plan and watches the run to its end.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ensemble_client::{Error, idempotency_key};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::{Provider, Run as Record, RunStatus, Task, TaskStatus};
use ensemble_types::text::Text;
use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::Signal;

use super::DONE;
use crate::context::{Context, Me, interrupts};
use crate::failure::{Failure, Result};
use crate::plan::{self, LONGEST_PLAN, Overrides, PromptFiles};
use crate::print;
use crate::progress::{Progress, name};

/// The exit codes other than 0 and 1.
const CANCELLED: u8 = 3;
const INTERRUPTED: u8 = 130;

/// Submits the tasks of a plan (YAML or JSON) and shows their progress. Ctrl-C offers to cancel the run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The plan (`-`: from standard input)
    plan: PathBuf,
    /// Submit the plan, print the run's id and do not wait
    #[arg(long, short)]
    detach: bool,
    /// The provider of tasks that do not name one: claude, codex or gemini
    #[arg(long, value_parser = provider)]
    provider: Option<Provider>,
    /// The model of tasks that do not name one
    #[arg(long)]
    model: Option<String>,
    /// The title, overrides of that of the plan
    #[arg(long)]
    title: Option<String>,
    /// How many tasks may run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    max_concurrency: Option<u32>,
    /// Accept a promptFile outside the plan's directory. Its content is sent to the server
    #[arg(long)]
    allow_outside: bool,
    /// Submit only once: the same key (16 to 128 characters) again returns the same run
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl Run {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let mut plan = self.read()?;
        if let Some(title) = self.title {
            plan.title = Some(Text::new(title).map_err(|error| Failure::message(format!("The title {error}.")))?);
        }
        plan.max_concurrency = self.max_concurrency.or(plan.max_concurrency);
        let me = context.me().await?;
        let key = self.idempotency_key.unwrap_or_else(idempotency_key);
        let run = me.client.create_run(&plan, &key).await?;
        if self.detach {
            if context.json {
                print::json(&run, false)?;
            } else {
                print::line(run.id.to_string())?;
            }
            return Ok(DONE);
        }
        if !context.json {
            print::note(format!("Run {}", run.id));
        }
        watch(context, &me, run.id).await
    }

    fn read(&self) -> Result<ensemble_types::runs::CreateRun> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::message(format!("The current directory cannot be read: {error}.")))?;
        let overrides = Overrides { provider: self.provider, model: self.model.clone() };
        let (name, folder, text) = if self.plan.as_os_str() == "-" {
            ("The plan".to_owned(), here.clone(), plan::read_text(io::stdin(), LONGEST_PLAN))
        } else {
            let folder = here.join(self.plan.parent().unwrap_or(Path::new(".")));
            (self.plan.display().to_string(), folder, plan::read_file(&self.plan, LONGEST_PLAN))
        };
        let text = text.map_err(|error| Failure::message(format!("Cannot read {}: {error}.", self.plan.display())))?;
        plan::read(&text, &name, &PromptFiles::new(&folder, self.allow_outside), &here, overrides)
    }
}

fn provider(text: &str) -> Result<Provider, &'static str> {
    Provider::ALL.into_iter().find(|provider| provider.as_str() == text).ok_or("must be claude, codex or gemini")
}

/// Shows the progress of a run until it has ended. The exit code tells how it ended.
pub(crate) async fn watch(context: &Context, me: &Me, id: RunId) -> Result {
    let mut interrupt = interrupts()?;
    let run = me.client.run(id).await?;
    let mut progress = Progress::new(run.tasks.as_deref().unwrap_or_default());
    if !context.json {
        progress.begin()?;
    }
    let mut cursor = run.version.to_string();
    let mut clock = tokio::time::interval(Duration::from_millis(500));
    let mut budget = RetryBudget::default();
    // A run that had ended before the watch began still produces one response.
    let mut changes = Box::pin(me.client.watch_run(id, cursor.clone()));
    loop {
        tokio::select! {
            change = changes.next() => match change {
                None => break,
                Some(Err(error)) => {
                    budget.wait(error).await?;
                    changes.set(me.client.watch_run(id, cursor.clone()));
                }
                Some(Ok(change)) => {
                    budget = RetryBudget::default();
                    cursor.clone_from(&change.cursor);
                    if context.json {
                        print::json(&change, true)?;
                    } else if change.more {
                        progress.replace(me.client.run(id).await?.tasks.as_deref().unwrap_or_default())?;
                    } else {
                        progress.change(&change.changed_tasks)?;
                    }
                }
            },
            _ = clock.tick(), if !context.json && progress.is_live() => progress.draw()?,
            _ = interrupt.recv() => {
                progress.leave();
                if !interrupted(context, me, id, &mut interrupt).await? {
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            }
        }
    }
    let run = me.client.run(id).await?;
    if context.json {
        print::json(&run, true)?;
    } else {
        conclude(&run)?;
    }
    Ok(code(run.status))
}

/// How long the server may be unavailable while a run is watched. The run continues meanwhile.
#[derive(Default)]
struct RetryBudget {
    since: Option<Instant>,
}

impl RetryBudget {
    async fn wait(&mut self, error: Error) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(300);
        let is_first = self.since.is_none();
        let since = *self.since.get_or_insert_with(Instant::now);
        if !error.may_pass() || since.elapsed() > LONGEST {
            return Err(error.into());
        }
        if is_first {
            print::note("The server does not respond. Waiting for it.");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }
}

/// The exit code for the final status of a run.
pub(crate) fn code(status: RunStatus) -> ExitCode {
    match status {
        RunStatus::Completed => DONE,
        RunStatus::Cancelled => ExitCode::from(CANCELLED),
        _ => ExitCode::FAILURE,
    }
}

/// Asks what to do about the interruption. `true`: continue to watch.
async fn interrupted(context: &Context, me: &Me, id: RunId, again: &mut Signal) -> Result<bool> {
    let leave =
        || print::note(format!("The run continues. `ensemble show {id}` shows it, `ensemble cancel {id}` cancels it."));
    if context.json || !io::stdin().is_terminal() {
        leave();
        return Ok(false);
    }
    write!(io::stderr(), "\nCancel the run? [y = cancel, n = leave it running, Enter = continue watching] ")?;
    let mut answer = String::new();
    let mut input = BufReader::new(tokio::io::stdin());
    let answered = tokio::select! {
        read = input.read_line(&mut answer) => read.is_ok_and(|length| length > 0),
        _ = again.recv() => false,
    };
    match answer.trim() {
        "y" | "Y" | "yes" => {
            me.client.cancel_run(id, Some("cancelled at the terminal")).await?;
            print::note("Cancelling. Running tasks end within seconds.");
            Ok(true)
        }
        "" if answered => Ok(true),
        _ => {
            leave();
            Ok(false)
        }
    }
}

/// The result of a run: the results that no other task used, the errors, and how to see more.
fn conclude(run: &Record) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let taken: std::collections::HashSet<TaskId> =
        tasks.iter().flat_map(|task| task.depends_on.iter().copied()).collect();
    for (number, task) in tasks.iter().enumerate() {
        let result = task.output_summary.as_deref().filter(|_| task.status == TaskStatus::Completed);
        if let Some(result) = result.filter(|_| !taken.contains(&task.id)) {
            print::line(format!("\n── {} ──\n{}", name(task, number), result.trim_end()))?;
        }
    }
    for (number, task) in tasks.iter().enumerate().filter(|(_, task)| task.status == TaskStatus::Failed) {
        failed(run.id, task, number)?;
    }
    let summary = &run.summary;
    let counts = [(summary.completed, "completed"), (summary.failed, "failed"), (summary.cancelled, "cancelled")];
    let counts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    print::line(format!("\nRun {} {}: {}.", run.id, run.status.as_str(), counts.join(", ")))?;
    if run.status == RunStatus::Failed {
        print::note(format!("`ensemble retry {}` retries the failed tasks.", run.id));
    }
    Ok(())
}

fn failed(run: RunId, task: &Task, number: usize) -> Result<()> {
    let why = task.error.as_ref().map_or_else(String::new, |error| format!("{} ({})", error.message, error.code));
    print::line(format!("\n✗ {}: {}", name(task, number), print::short(&why, 2_000)))?;
    let which = task.task_key.clone().unwrap_or_else(|| task.id.to_string());
    print::line(format!("  ensemble output {run} {which}"))
}
