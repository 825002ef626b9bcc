//! Watches a run to its end, and reports how it ended.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ensemble_account::Account;
use ensemble_client::Error;
use ensemble_screen::lines::progress::{Place, Progress, is_asking};
use ensemble_screen::lines::{denials, ended};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::{ChangesState, Permission, Provider, Run, RunStatus, Task, TaskStatus};
use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::Signal;

use crate::context::{Context, interrupts, now};
use crate::failure::Result;
use crate::last_lines::LastLines;
use crate::machines::Machines;
use crate::{asking, changes, print};

/// The exit codes other than 0 and 1.
pub(crate) const CANCELLED: u8 = 3;
pub(crate) const DENIED: u8 = 4;
pub(crate) const UNKNOWN_CHANGES: u8 = 5;
/// An order waits for a machine that is offline.
pub(crate) const WAITS_FOR_MACHINE: u8 = 6;
pub(crate) const INTERRUPTED: u8 = 130;

/// After a change the run is read again, because a change has no costs and machines: at most this often.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// While nothing runs it is read without a change, because reasons for waiting change without one: once in this many ticks.
const WAITING: u32 = 5;
/// Runs with more tasks are read whole only every [`SELDOM`] times.
const MANY_TASKS: usize = 500;
const SELDOM: u32 = 5;

/// What was asked for, so that a difference can be reported.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) machines: Option<Machines>,
    /// The permission of each task.
    pub(crate) permissions: Vec<Option<Permission>>,
    /// The providers that could have been taken as well.
    pub(crate) others: Vec<Provider>,
    /// The task that the exit code is about, if it is not about all.
    pub(crate) about: Option<TaskId>,
    /// Whether it was said that the run waits, and how to leave it.
    pub(crate) is_said_to_wait: bool,
}

/// Whether refused commands matter.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct AllowDenials {
    /// Exit with 0, not 4, when the run completed although agents were refused commands
    #[arg(long)]
    allow_denials: bool,
}

impl AllowDenials {
    /// The exit code for how a run ended.
    pub(crate) fn code(self, run: &Run) -> ExitCode {
        let denied = denials::count(run.tasks.as_deref().unwrap_or_default());
        match run.status {
            RunStatus::Completed if denied > 0 && !self.allow_denials => ExitCode::from(DENIED),
            RunStatus::Completed if run.tasks.iter().flatten().any(is_unknown) => ExitCode::from(UNKNOWN_CHANGES),
            RunStatus::Completed => ExitCode::SUCCESS,
            RunStatus::Cancelled => ExitCode::from(CANCELLED),
            _ => ExitCode::FAILURE,
        }
    }

    /// The exit code for how one task ended.
    pub(crate) fn code_of(self, task: &Task) -> ExitCode {
        let denied = denials::count(std::slice::from_ref(task));
        match task.status {
            TaskStatus::Completed if denied > 0 && !self.allow_denials => ExitCode::from(DENIED),
            TaskStatus::Completed if is_unknown(task) => ExitCode::from(UNKNOWN_CHANGES),
            TaskStatus::Completed => ExitCode::SUCCESS,
            TaskStatus::Cancelled => ExitCode::from(CANCELLED),
            _ => ExitCode::FAILURE,
        }
    }
}

/// What the task changed could not be read.
fn is_unknown(task: &Task) -> bool {
    task.changes.as_ref().is_some_and(|changes| changes.unknown && changes.state != ChangesState::None)
}

/// Shows the progress of a run until it has ended. The exit code says how it ended.
pub(crate) async fn watch(context: &Context, me: &Account, id: RunId, asked: Asked, allow: AllowDenials) -> Result {
    let mut interrupt = interrupts()?;
    let run = me.run(id).await?;
    me.use_run(id);
    let machines = match asked.machines {
        Some(machines) => machines,
        None => Machines::if_available(me).await,
    };
    let count = run.tasks.as_ref().map_or(0, Vec::len);
    let place = Place { size: print::screen, is_coloured: print::is_coloured(), now };
    let mut progress = Progress::new(run.tasks.as_deref().unwrap_or_default(), machines.clone(), place);
    if !context.json {
        print::drawn(progress.begin())?;
        advise(me, &mut progress).await?;
    }
    let mut cursor = run.version.to_string();
    let mut clock = tokio::time::interval(Duration::from_millis(500));
    let mut renewals = tokio::time::interval(RENEW_EVERY);
    renewals.tick().await;
    let mut ticks = 0_u32;
    let mut is_stale = true;
    let mut last_lines = LastLines::default();
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
                    is_stale = true;
                    cursor.clone_from(&change.cursor);
                    if context.json {
                        print::json(&event("changed", named(&machines, &change)), true)?;
                        continue;
                    }
                    print::drawn(progress.change(&change.changed_tasks))?;
                    if change.more || is_asking(&change.changed_tasks) {
                        print::drawn(progress.renew(me.run(id).await?.tasks.as_deref().unwrap_or_default()))?;
                    }
                    advise(me, &mut progress).await?;
                }
            },
            _ = renewals.tick(), if !context.json && (progress.is_live() || progress.is_waiting()) => {
                ticks = ticks.wrapping_add(1);
                is_stale |= progress.is_waiting() && ticks.is_multiple_of(WAITING);
                let is_due = is_stale && (count <= MANY_TASKS || ticks.is_multiple_of(SELDOM));
                // While the server does not respond, the other branch reports it.
                if is_due && let Ok(run) = me.run(id).await {
                    is_stale = false;
                    print::drawn(progress.renew(run.tasks.as_deref().unwrap_or_default()))?;
                }
                if progress.is_live() {
                    last_lines.follow(me, id, &progress);
                }
            }
            Some((task, last)) = last_lines.lines.next() => progress.set_last(task, last),
            _ = clock.tick(), if !context.json && progress.is_live() => print::drawn(progress.draw())?,
            _ = interrupt.recv() => {
                progress.leave();
                if !interrupted(context, me, &run, &mut interrupt).await? {
                    return Ok(ExitCode::from(INTERRUPTED));
                }
            }
        }
    }
    let run = me.run(id).await?;
    if context.json {
        print::json(&event("ended", named(&machines, &run)), true)?;
    } else {
        if progress.is_live() {
            print::drawn(progress.renew(run.tasks.as_deref().unwrap_or_default()))?;
        }
        conclude(context, &run, &machines, &asked.permissions)?;
        asking::sessions(me, &run).await?;
    }
    let about = asked.about.and_then(|about| run.tasks.iter().flatten().find(|task| task.id == about));
    Ok(about.map_or_else(|| allow.code(&run), |task| allow.code_of(task)))
}

/// Says where a person is asked, once for each task that waits for one.
async fn advise(me: &Account, progress: &mut Progress<Machines>) -> Result<()> {
    for (task, session) in progress.asking() {
        print::drawn(progress.advise(task, asking::advice(me, session).await))?;
    }
    Ok(())
}

/// A line of a stream for programs, with a mark that tells changes from the run at its end.
fn event(name: &str, mut document: serde_json::Value) -> serde_json::Value {
    if let Some(members) = document.as_object_mut() {
        members.insert("event".to_owned(), name.into());
    }
    document
}

/// A document for programs, with the names of machines.
pub(crate) fn named(machines: &Machines, value: &impl serde::Serialize) -> serde_json::Value {
    machines.with_names(serde_json::to_value(value).unwrap_or_default())
}

/// How long the server may be unavailable while a run is watched. The run continues meanwhile.
#[derive(Default)]
pub(crate) struct RetryBudget {
    since: Option<Instant>,
}

impl RetryBudget {
    pub(crate) async fn wait(&mut self, error: Error) -> Result<()> {
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

/// Asks what to do about the interruption. `true`: continue to watch.
pub(crate) async fn interrupted(context: &Context, me: &Account, run: &Run, again: &mut Signal) -> Result<bool> {
    let leave = || {
        let run = run.reference;
        print::note(format!("The run continues. `ensemble show {run}` shows it, `ensemble cancel {run}` cancels it."));
    };
    if context.json || !io::stdin().is_terminal() {
        leave();
        return Ok(false);
    }
    print::ask("\nCancel the run? [y = cancel, n = leave it running, Enter = continue watching]")?;
    let mut answer = String::new();
    let mut input = BufReader::new(tokio::io::stdin());
    let answered = tokio::select! {
        read = input.read_line(&mut answer) => read.is_ok_and(|length| length > 0),
        _ = again.recv() => false,
    };
    // It may have ended while the question was open.
    if me.client.run(run.id).await.is_ok_and(|run| run.status.is_terminal()) {
        return Ok(true);
    }
    match answer.trim() {
        "y" | "Y" | "yes" => {
            me.client.cancel_run(run.id, Some("cancelled at the terminal")).await?;
            print::note("Cancelling. Running tasks end within seconds.");
            Ok(true)
        }
        "" if answered => Ok(true),
        "n" | "N" | "no" | "" => {
            leave();
            Ok(false)
        }
        _ => {
            print::note("Continuing to watch. Press Ctrl-C again to be asked again.");
            Ok(true)
        }
    }
}

/// The result of a run: the results that no other task used, the errors, and how to see more.
fn conclude(context: &Context, run: &Run, machines: &Machines, asked: &[Option<Permission>]) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    let taken: std::collections::HashSet<TaskId> =
        tasks.iter().flat_map(|task| task.depends_on.iter().copied()).collect();
    for (number, task) in tasks.iter().enumerate() {
        let result = task.output_summary.as_deref().filter(|_| task.status == TaskStatus::Completed);
        if let Some(result) = result.filter(|_| !taken.contains(&task.id)) {
            print::line(format!("\n── {} ──", task.called(number)))?;
            print::markdown(result.trim_end())?;
        }
    }
    for (number, task) in tasks.iter().enumerate() {
        print::lines(ended::failed(run, task, number, tasks, machines))?;
    }
    end(context, run, machines, asked, false)
}

/// What was refused, the counts, the time and the cost.
/// `is_shown`: what changed was printed before.
pub(crate) fn end(
    context: &Context,
    run: &Run,
    machines: &Machines,
    asked: &[Option<Permission>],
    is_shown: bool,
) -> Result<()> {
    let tasks = run.tasks.as_deref().unwrap_or_default();
    if denials::count(tasks) > 0 {
        print::line("")?;
        print::lines(denials::report(tasks, machines))?;
    }
    print::lines(denials::report_less(tasks, asked, machines))?;
    changes::report(context, run, is_shown)?;
    let (summary, retry) = ended::summary(run);
    print::line(format!("\n{summary}"))?;
    retry.iter().for_each(print::note);
    Ok(())
}

/// The same for one task of a run that may have others.
pub(crate) fn end_of(context: &Context, run: &Run, (number, task): (usize, &Task), machines: &Machines) -> Result<()> {
    // Alone it would be called by another number.
    let called = task.called(number);
    let alone = Run { tasks: Some(vec![Task { title: Some(called.clone()), ..task.clone() }]), ..run.clone() };
    let tasks = alone.tasks.as_deref().unwrap_or_default();
    if denials::count(tasks) > 0 {
        print::line("")?;
        print::lines(denials::report(tasks, machines))?;
    }
    changes::report(context, &alone, false)?;
    print::line(format!("\n{}", ended::summary_of(run, task, &called)))
}
