//! Runs one attempt: checks, starts the program, and ends it at the first reason to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_process::disk::on_disk;
use ensemble_process::{Directory, EXIT_STAGE, Exit, Process, Start};
use ensemble_types::ids::RunId;
use ensemble_types::leases::{Lease, LeaseFinish};
use ensemble_types::runs::Permission;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Context;
use super::enter::{self, NotEntered};
use super::heartbeat::{Heartbeat, LeaseState};
use super::pump::{self, Shared};
use super::slash::protected;
use super::slot::Slot;
use crate::directory;
use crate::drain::Phase;
use crate::provider::{
    Call, CostBounds, NotOffered, Offer, Outcome, Stop, Transcript, invocation, is_model, is_session, judge,
    lost_session, takes_tools,
};
use crate::spool::{OutputSpool, Record};

/// How long to read the pipes at most after the guard has ended. An answer of many megabytes needs some time.
const PIPES_GRACE: Duration = Duration::from_secs(60);

/// The prompt of an attempt that resumes the session of an earlier one. The session has the task's own prompt.
const CONTINUE: &str = "You were interrupted before you had finished this task. Look at what is done already, do not repeat \
                        it, and finish the task.";

/// How often to look whether the program has named its session. A runner that dies before that cannot resume it.
const LOOK_FOR_SESSION: Duration = Duration::from_millis(250);

/// How long the server has to confirm the lease before the program starts.
pub(super) const FIRST_BEAT: Duration = Duration::from_secs(2);

/// Runs the attempt and returns its report. `None`: the lease is lost, and no process of the attempt runs any more.
pub(super) async fn run_attempt(
    context: &Context,
    lease: &Lease,
    offer: Option<Offer>,
    record: &Record,
    (output, heartbeat, slot): (&Arc<OutputSpool>, &Heartbeat, &mut Slot),
) -> Option<LeaseFinish> {
    let mut prepared = match prepare(context, lease, offer).await {
        Ok(prepared) => prepared,
        Err(outcome) => return Some(outcome.report(lease.fence, None)),
    };
    // If the machine slept after it received the lease, another runner may already have the task.
    match heartbeat.first(FIRST_BEAT).await {
        LeaseState::Lost => return None,
        LeaseState::CancelRequested => return Some(Outcome::cancelled().report(lease.fence, None)),
        LeaseState::Unknown | LeaseState::Held => {}
    }
    let place = match enter::enter(context, lease, prepared.directory.clone(), (heartbeat, slot)).await {
        Ok(place) => place,
        Err(NotEntered::Lost) => return None,
        Err(NotEntered::Ended(outcome)) => return Some(outcome.report(lease.fence, None)),
    };
    prepared.directory = place.directory.clone();
    let deadline = Instant::now() + Duration::from_millis(lease.timeout_ms);
    let mut resume = lease.resume.as_deref().filter(|session| is_session(session));
    if lease.follow_up && resume.is_none() {
        return Some(session_lost().report(lease.fence, None));
    }
    // The person may be at another machine, and only the output gets there. A resumed conversation has said it already.
    if resume.is_none() {
        for sentence in place.absent().await {
            pump::append(output, format!("[worktree] {sentence}\n")).await;
        }
    }
    let mut has_begun = false;
    loop {
        let begun = match context.workplaces.forget_shown(&place) {
            Ok(()) => Execution::begin(context, lease, (prepared.start(lease, resume), resume.is_some()), output).await,
            Err(error) => Err(error),
        };
        let mut execution = match begun {
            Ok(execution) => execution,
            Err(error) => {
                if !has_begun {
                    context.workplaces.show_again(&place);
                }
                return Some(spawn_failed(lease, &error.to_string()).report(lease.fence, None));
            }
        };
        has_begun = true;
        let (exit, reason) = execution.supervise(context, heartbeat, record, deadline).await;
        execution.drain_pipes(output).await;
        execution.remember_session(context, record).await;
        let stop = match reason {
            StopReason::LeaseLost => return None,
            StopReason::Stopped(stop) => Some(stop),
            StopReason::Exited => None,
        };
        let exit = match exit {
            Ok(exit) => exit,
            Err(reason) => return Some(spawn_failed(lease, &reason).report(lease.fence, None)),
        };
        let stderr = String::from_utf8_lossy(&execution.stderr.lock()).into_owned();
        if stop.is_none() && resume.is_some() && lost_session(lease.provider, &execution.transcript.lock(), &stderr) {
            if lease.follow_up {
                return Some(session_lost().report(lease.fence, None));
            }
            tracing::info!(lease.id = %lease.id, "The provider's session no longer exists; starting a new session");
            resume = None;
            continue;
        }
        let handed_back = matches!(stop, Some(Stop::HandBack));
        let outcome = outcome_of(lease, &execution.transcript.lock(), exit, stop, &stderr);
        if outcome.error.is_some() && stop.is_none() && !stderr.trim().is_empty() {
            pump::append(output, format!("\n[standard error]\n{}\n", stderr.trim().replace('\0', "\u{fffd}"))).await;
        }
        let report = outcome.report(lease.fence, Some(&execution.transcript.lock()));
        // The next attempt continues from what a handed-back one has left, and the runner is about to end.
        let changes = if handed_back { None } else { enter::save_changes(context, &place, record).await };
        return Some(LeaseFinish { permission: Some(prepared.permission), changes, ..report });
    }
}

fn outcome_of(lease: &Lease, transcript: &Transcript, exit: Exit, stop: Option<Stop>, stderr: &str) -> Outcome {
    // The stage prints the reason why it could not start the program.
    if exit == Exit::Code(EXIT_STAGE) && stop.is_none() && transcript.session_id().is_none() {
        return spawn_failed(lease, stderr.trim());
    }
    judge(lease.provider, transcript, exit, stop, stderr)
}

/// A follow-up to a conversation means nothing in a new one.
fn session_lost() -> Outcome {
    let message =
        "The agent's conversation no longer exists on this machine, so nothing can be added to it. Submit a new run.";
    Outcome::not_startable("SESSION_LOST", message)
}

fn spawn_failed(lease: &Lease, reason: &str) -> Outcome {
    Outcome::refused("SPAWN_FAILED", format!("{} could not be started: {reason}", lease.provider))
}

/// The parts that stay the same when the program has to be started a second time.
struct Prepared<'a> {
    program: PathBuf,
    version: Option<String>,
    directory: Directory,
    model: Option<&'a str>,
    config: &'a crate::config::Config,
    provider: crate::config::ProviderConfig,
    permission: Permission,
}

async fn prepare<'a>(context: &'a Context, lease: &'a Lease, offer: Option<Offer>) -> Result<Prepared<'a>, Outcome> {
    let refused = |why: NotOffered| {
        let reason = why.reason.trim_end_matches('.');
        Outcome::refused(why.code, format!("{} cannot run on this machine: {reason}.", lease.provider))
    };
    let offer = offer.ok_or_else(|| refused(NotOffered::unavailable("the runner does not offer it")))?;
    let program = offer.program.map_err(refused)?;
    let config = &*context.config;
    let provider = config
        .programs()
        .providers
        .get(&lease.provider)
        .cloned()
        .ok_or_else(|| refused(NotOffered::unavailable("it is not configured")))?;
    let model = lease.model.as_deref().filter(|model| *model != "default");
    if model.is_some_and(|model| !is_model(model)) {
        return Err(Outcome::not_startable(
            "INVALID_MODEL",
            "The model name contains characters that are not allowed. Correct the task's model.",
        ));
    }
    let (blocking, wanted, run) = (context.clone(), lease.working_directory.clone(), lease.run_id);
    let directory = on_disk(move || Ok(working_directory(&blocking, wanted.as_deref(), run)))
        .await
        .unwrap_or_else(|error| Err(no_directory(&error)))?;
    check_tools(lease, &provider)?;
    if lease.max_cost_usd.is_some_and(|max| max <= 0.0) {
        let message = "The attempts of the task have cost as much as it may.";
        return Err(Outcome::not_startable("COST_LIMIT_REACHED", message));
    }
    let permission =
        lease.permission.unwrap_or(provider.permission).min(provider.permission_limit.max(provider.permission));
    if permission == Permission::Bypass {
        let text =
            "This attempt runs without permission checks, because its task asks for it and the configuration allows it";
        let (lease_id, task_id, provider) = (lease.id, lease.task_id, lease.provider);
        if context.unchecked.is_first(provider) {
            tracing::warn!(lease.id = %lease_id, task.id = %task_id, %provider, "{text}. Further ones of this agent are logged at the level DEBUG");
        } else {
            tracing::debug!(lease.id = %lease_id, task.id = %task_id, %provider, "{text}");
        }
    }
    Ok(Prepared { program, version: offer.version, directory, model, config, provider, permission })
}

/// The machine's owner says in the configuration which tools tasks may name.
fn check_tools(lease: &Lease, provider: &crate::config::ProviderConfig) -> Result<(), Outcome> {
    if !lease.allowed_tools.is_empty() && !takes_tools(lease.provider) {
        let message = format!("{} takes no allowedTools. Leave them out, or use another provider.", lease.provider);
        return Err(Outcome::refused("TOOLS_NOT_ALLOWED", message));
    }
    // Where a task may run everything, it may also ask for less. The host has refused what only a primary device may ask for.
    let is_allowed = |tool: &&String| provider.allows_all() || provider.names(tool);
    match lease.allowed_tools.iter().find(|tool| !is_allowed(tool)) {
        None => Ok(()),
        Some(tool) => Err(Outcome::refused(
            "TOOLS_NOT_ALLOWED",
            format!(
                "This runner does not allow the tool {tool:?}. Add it to providers.{}.allowedTools in the runner's \
                 configuration (runner.yaml).",
                lease.provider
            ),
        )),
    }
}

fn working_directory(context: &Context, wanted: Option<&str>, run: RunId) -> Result<Directory, Outcome> {
    let workspaces = context.spool.workspaces();
    match wanted {
        Some(wanted) => {
            let mut roots = context.config.roots.clone();
            roots.push(workspaces);
            directory::find(Path::new(wanted), &roots)
        }
        None => {
            let path = context.spool.workspace(run).map_err(|error| no_directory(&error))?;
            directory::find(&path, &[workspaces])
        }
    }
}

fn no_directory(error: &std::io::Error) -> Outcome {
    Outcome::refused("RUNNER_DISK", format!("The runner cannot create a working directory: {error}."))
}

impl Prepared<'_> {
    fn start(&self, lease: &Lease, resume: Option<&str>) -> Start {
        let call = Call {
            model: self.model,
            resume,
            permission: self.permission,
            allowed_tools: &lease.allowed_tools,
            extra: &self.provider.args,
            costs: costs(lease, resume.is_some()),
            version: self.version.as_deref(),
            as_root: nix::unistd::geteuid().is_root(),
        };
        let invocation = invocation(lease.provider, &call);
        let mut env = invocation
            .env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<std::collections::BTreeMap<_, _>>();
        env.extend(self.config.program_env(&self.provider));
        if let Some(traceparent) = &lease.traceparent {
            env.insert("TRACEPARENT".to_owned(), traceparent.clone());
        }
        Start {
            program: self.program.clone(),
            args: invocation.args,
            env,
            directory: self.directory.clone(),
            prompt: if resume.is_some() && !lease.follow_up {
                CONTINUE.to_owned()
            } else {
                let directory = self.directory.root.join(&self.directory.below);
                protected(lease.provider, &lease.prompt, &directory, &self.config.environment)
            },
            interactive: false,
            door: None,
        }
    }
}

/// A session that is resumed may have cost something before.
fn costs(lease: &Lease, is_resumed: bool) -> CostBounds {
    let before = lease.resume_cost_usd.filter(|_| is_resumed).unwrap_or_default();
    CostBounds { max: lease.max_cost_usd, before }
}

/// Why the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    Exited,
    Stopped(Stop),
    LeaseLost,
}

/// One start of the program.
struct Execution {
    process: Process,
    transcript: Shared<Transcript>,
    stderr: Shared<Vec<u8>>,
    pumps: Vec<tokio::task::JoinHandle<()>>,
    /// Tells the pumps that the program has ended.
    ended: watch::Sender<bool>,
    /// Notified when the program has cost more than it may.
    expensive: Arc<Notify>,
}

impl Execution {
    async fn begin(
        context: &Context,
        lease: &Lease,
        (start, is_resumed): (Start, bool),
        output: &Arc<OutputSpool>,
    ) -> std::io::Result<Self> {
        let (process, stdout, stderr_pipe) = Process::start(&context.config.process(), lease.id.uuid(), start).await?;
        let transcript = Shared::new(Transcript::with_costs(costs(lease, is_resumed)));
        let expensive = Arc::new(Notify::new());
        let stderr = Shared::new(Vec::new());
        let (ended, has_ended) = watch::channel(false);
        let pumps = vec![
            tokio::spawn(pump::output(
                lease.provider,
                stdout,
                has_ended.clone(),
                (transcript.clone(), expensive.clone()),
                output.clone(),
            )),
            tokio::spawn(pump::stderr_tail(stderr_pipe, has_ended, stderr.clone())),
        ];
        Ok(Self { process, transcript, stderr, pumps, ended, expensive })
    }

    /// Waits until the program ends, and stops it at the first reason to do so. A lost lease overrides every other
    /// reason.
    async fn supervise(
        &mut self,
        context: &Context,
        heartbeat: &Heartbeat,
        record: &Record,
        deadline: Instant,
    ) -> (Result<Exit, String>, StopReason) {
        let timing = &context.config.timing;
        let mut reason = StopReason::Exited;
        let mut saved_session: Option<String> = None;
        let mut check = tokio::time::interval(LOOK_FOR_SESSION);
        loop {
            let running = reason == StopReason::Exited;
            let (next, grace) = tokio::select! {
                exit = self.process.ended() => return (exit, reason),
                () = heartbeat.reached(LeaseState::Lost), if reason != StopReason::LeaseLost => (StopReason::LeaseLost, timing.lost_grace),
                () = heartbeat.reached(LeaseState::CancelRequested), if running => (StopReason::Stopped(Stop::Cancel), timing.term_grace),
                () = tokio::time::sleep_until(deadline), if running => (StopReason::Stopped(Stop::Timeout), timing.term_grace),
                () = self.expensive.notified(), if running => (StopReason::Stopped(Stop::Cost), timing.term_grace),
                () = context.drain.reached(Phase::HandingBack), if running => (StopReason::Stopped(Stop::HandBack), timing.term_grace),
                _ = check.tick(), if saved_session.is_none() => {
                    saved_session = self.save_session(record).await;
                    if let Some(session) = &saved_session {
                        self.remember_session(context, record).await;
                        heartbeat.set_session(session);
                    }
                    continue;
                }
            };
            reason = next;
            self.process.stop(grace).await;
        }
    }

    /// Saves the id of the provider's session as soon as it is known, so that a later runner can report it.
    async fn save_session(&self, record: &Record) -> Option<String> {
        let id = self.transcript.lock().session_id()?.to_owned();
        let (session, record) = (id.clone(), record.clone());
        let lease = record.lease();
        if let Err(error) = on_disk(move || record.save_session(&session)).await {
            tracing::warn!(lease.id = %lease, "Cannot save the provider's session: {error}");
        }
        Some(id)
    }

    /// The next attempt resumes only a conversation in which this machine has worked on the task.
    async fn remember_session(&self, context: &Context, record: &Record) {
        let session = self.transcript.lock().session_id().map(str::to_owned);
        let host = context.host.borrow().clone();
        if let (Some(session), Some(host)) = (session, host) {
            host.worked_in(record.task(), &session).await;
        }
    }

    async fn drain_pipes(&mut self, output: &Arc<OutputSpool>) {
        output.lift_bound();
        self.ended.send_replace(true);
        let deadline = Instant::now() + PIPES_GRACE;
        for pump in &mut self.pumps {
            if tokio::time::timeout_at(deadline, &mut *pump).await.is_err() {
                pump.abort();
            }
        }
    }
}
