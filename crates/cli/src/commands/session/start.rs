//! `ensemble session start`: a live session with an agent on another machine of the account. What the machine is to do is sealed for it
//! and signed here, so the server in between can neither read nor change it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ensemble_account::Account;
use ensemble_account::live::Live;
use ensemble_account::live::names::title;
use ensemble_account::tasks::SessionTask;
use ensemble_client::idempotency_key;
use ensemble_types::ids::{MachineId, RunId, SessionId, TaskId};
use ensemble_types::runs::{CreateRun, CreateTask, Pend, Provider, SealedTask, Task, TaskSession, TaskStatus, WaitFor};
use ensemble_types::text::Text;

use crate::agreed::{self, Where, Work};
use crate::commands::agent::{Choice, first_prompt, sent};
use crate::commands::run::here;
use crate::commands::submit::{DRAWN_AGAIN, Draws, max_cost};
use crate::complete;
use crate::context::{Context, interrupts, now};
use crate::failure::{Failure, Result};
use crate::live;
use crate::machines::Machines;
use crate::print;

/// The title of the run that starts a session.
pub(crate) const START_TITLE: &str = "Start of a session";
/// A machine that is offline for longer does not begin it any more.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3_600);
/// A program may be closed while it waits, and its session is not wanted then. Clocks may differ by some minutes.
const GOOD_FOR_A_PROGRAM: Duration = Duration::from_secs(600);
/// What the machine may take to begin it.
const TIMEOUT_MS: u64 = 120_000;
/// What a program waits for the machine.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// What to do first
    prompt: Vec<String>,
    /// The machine: its name, its ref or id
    #[arg(long, value_name = "NAME", add = complete::machines())]
    machine: String,
    /// The directory there: an absolute path
    #[arg(long, short = 'C', alias = "directory", value_name = "DIR")]
    dir: PathBuf,
    /// The agent: claude, codex, or another that the machine offers
    #[arg(long, add = complete::agents())]
    provider: Provider,
    /// The model [default: the agent's own]
    #[arg(long)]
    model: Option<String>,
    /// What it may do without asking
    #[arg(long, value_enum, default_value_t = Choice::Ask)]
    mode: Choice,
    /// The title of the session; it is encrypted
    #[arg(long, short)]
    title: Option<String>,
    /// Ask before another turn begins when it has cost this many US dollars
    #[arg(long, value_name = "USD", value_parser = max_cost)]
    max_cost: Option<f64>,
    /// Start it and print its ref
    #[arg(long, short)]
    detach: bool,
    /// Say yes: this machine is meant, and the agent may do everything where the mode is bypass
    #[arg(long, short)]
    yes: bool,
}

impl Start {
    /// For a program: without a prompt, and with a bound on how long it waits for the machine.
    pub(crate) fn quietly(
        machine: String,
        dir: PathBuf,
        provider: Provider,
        model: Option<String>,
        (mode, yes): (Choice, bool),
    ) -> Self {
        let (prompt, title, max_cost) = (Vec::new(), None, None);
        Self { prompt, machine, dir, provider, model, mode, title, max_cost, detach: true, yes }
    }

    pub(super) async fn run(self, context: &Context, me: &Account) -> Result {
        let text = first_prompt(&self.prompt)?;
        let live = self.start(context, me, title(&text), None).await?;
        // Without a terminal no one watches it.
        let is_watched = std::io::IsTerminal::is_terminal(&std::io::stdout());
        sent(context, live, (text, None), self.detach || !is_watched).await
    }

    /// Begins the session within two minutes, or not at all.
    pub(crate) async fn begin(&self, context: &Context, me: &Account) -> Result<SessionId> {
        Ok(self.start(context, me, None, Some(BEGINS_WITHIN)).await?.session.id)
    }

    async fn start<'a>(
        &self,
        context: &'a Context,
        me: &'a Account,
        title: Option<String>,
        within: Option<Duration>,
    ) -> Result<Live> {
        let machines = Machines::load(me).await?;
        let machine = machines.find(&self.machine)?;
        let directory = match machines.this() {
            Some(this) if this == machine => here()?.join(&self.dir),
            _ => self.dir.clone(),
        };
        let is_there = |path: &&str| path.starts_with('/') || path.starts_with("~/") || *path == "~";
        let directory = directory.to_str().filter(is_there).ok_or_else(|| {
            Failure::message("The directory must be a path on the machine: --dir /srv/project, or --dir '~/project'.")
        })?;
        let work = Work {
            directory,
            on: Where::of(Some(machine), &machines),
            is_bypass: self.mode == Choice::Bypass,
            is_said: self.yes || machine.as_str() == self.machine,
            is_quiet: within.is_some(),
        };
        agreed::agree(context, me, work)?;
        let at = now();
        let mut task = SessionTask {
            run_id: RunId::generate(),
            task_id: TaskId::generate(),
            session: TaskSession::Start,
            prompt: None,
            session_id: SessionId::generate(),
            provider: self.provider,
            working_directory: directory.to_owned(),
            mode: self.mode.permission(),
            model: self.model.clone(),
            title: self.title.clone().or(title),
            max_cost_usd: self.max_cost,
            nonce: SessionTask::nonce(),
            at,
            expires: at.plus(if within.is_some() { GOOD_FOR_A_PROGRAM } else { GOOD_FOR }),
        };
        let mut draws = Draws::default();
        let run = loop {
            let sealed = me.seal_task(&task, machine, &machines)?;
            match me.client.create_run(&plan(&task, machine, sealed), &idempotency_key()).await {
                Err(error) if draws.may_draw_again(&error) => {
                    print::note(DRAWN_AGAIN);
                    (task.run_id, task.task_id, task.nonce) =
                        (RunId::generate(), TaskId::generate(), SessionTask::nonce());
                }
                made => break made?,
            }
        };
        let begun_task = wait(context, me, run.id, &machines, within).await?;
        // Another session is not the one that was asked for, whatever the server says.
        if begun_task.session_id != Some(task.session_id) {
            return Err(Failure::message(
                "The server names another session than the one that was asked for. Nothing was sent to it. Do not trust the server.",
            ));
        }
        let live = live::open(context, me, task.session_id).await?;
        if live.session.owner_id != me.id || live.session.machine_id.as_ref() != Some(machine) {
            return Err(Failure::message(
                "The session is not on the machine that was asked for. Nothing was sent to it.",
            ));
        }
        Ok(live)
    }
}

fn plan(task: &SessionTask, machine: &MachineId, sealed: SealedTask) -> CreateRun {
    let id = Some(task.run_id);
    let task = CreateTask {
        id: Some(task.task_id),
        machine_id: Some(machine.clone()),
        timeout_ms: Some(TIMEOUT_MS),
        sealed: Some(sealed),
        session: Some(task.session),
        ..CreateTask::of(task.provider)
    };
    // The server knows that it is one; the session's own title is sealed.
    CreateRun { id, tasks: vec![task], title: Text::new(START_TITLE).ok(), ..CreateRun::default() }
}

/// Waits until the machine has begun the session. Ctrl-C takes the task back, and so does the end of `within`.
async fn wait(
    context: &Context,
    me: &Account,
    run: RunId,
    machines: &Machines,
    within: Option<Duration>,
) -> Result<Task> {
    let mut interrupt = interrupts()?;
    let begun = Instant::now();
    let mut is_first = true;
    loop {
        // Why it waits is said after a moment.
        let timeout_ms = Some(if is_first || within.is_some() { 3_000 } else { 30_000 });
        let pend = Pend { cursor: None, wait_for: Some(WaitFor::Terminal), timeout_ms };
        let pended = tokio::select! {
            pended = me.client.pend(run, &pend) => pended?,
            _ = interrupt.recv() => {
                me.client.cancel_run(run, Some("interrupted")).await?;
                return Err(Failure::message("It was taken back. A session that the machine has begun meanwhile is in `ensemble sessions`."));
            }
        };
        let task = me.client.run(run).await?.tasks.and_then(|tasks| tasks.into_iter().next());
        let task = task.ok_or_else(|| Failure::message("The server has lost the task."))?;
        if !pended.terminal {
            if within.is_some_and(|within| begun.elapsed() >= within) {
                me.client.cancel_run(run, Some("not begun in time")).await?;
                let why = task.waiting_reason.as_deref().map(|why| print::inline(&machines.explain(why)));
                return Err(Failure::message(format!(
                    "The machine has not begun the session within {} s, so it was taken back. {}",
                    begun.elapsed().as_secs(),
                    why.unwrap_or_default()
                )));
            }
            if std::mem::take(&mut is_first) && !context.json && within.is_none() {
                let why = task.waiting_reason.as_deref().map(|why| machines.explain(why));
                let why = why.map_or_else(String::new, |why| format!(" {}", print::inline(&why)));
                print::note(format!("The machine has not begun the session yet.{why} Ctrl-C takes it back."));
            }
            continue;
        }
        return match task.error {
            Some(error) => Err(Failure::message(format!(
                "The machine did not begin the session: {} ({})",
                print::inline(&machines.explain(&error.message)),
                print::inline(&error.code)
            ))),
            None if task.status == TaskStatus::Completed => Ok(task),
            None => Err(Failure::message("It was cancelled before the machine had begun the session.")),
        };
    }
}
