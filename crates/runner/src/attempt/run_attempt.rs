//! Making an attempt: the checks, the program, and the first reason for it to end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_types::ids::RunId;
use ensemble_types::leases::{Lease, LeaseFinish};
use tokio::time::Instant;

use super::Context;
use super::heart::{Heart, Pulse};
use super::process::{Process, Start};
use super::pump::{self, Shared};
use crate::directory;
use crate::disk::on_disk;
use crate::drain::Phase;
use crate::guard::{Directory, EXIT_STAGE};
use crate::provider::{Call, Exit, Outcome, Permission, Stop, Transcript, invocation, is_model, is_session, judge};
use crate::spool::{OutputSpool, Record};

/// How long to read on when the guard has ended. Only a process that escaped it can hold a pipe open then.
const PIPES_GRACE: Duration = Duration::from_secs(2);

/// How long the server has to say that the lease still holds before the program is started.
const FIRST_BEAT: Duration = Duration::from_secs(2);

/// Makes the attempt and says what it came to. `None`: the lease is lost, and nothing of the attempt runs any more.
pub(super) async fn make(
    context: &Context,
    lease: &Lease,
    program: Result<PathBuf, String>,
    record: &Record,
    output: &Arc<OutputSpool>,
    heart: &Heart,
) -> Option<LeaseFinish> {
    let prepared = match prepare(context, lease, program).await {
        Ok(prepared) => prepared,
        Err(outcome) => return Some(outcome.report(lease.fence, None)),
    };
    // A machine that slept since it got the lease would start what another one is doing already.
    match heart.first(FIRST_BEAT).await {
        Pulse::Lost => return None,
        Pulse::CancelRequested => return Some(Outcome::cancelled().report(lease.fence, None)),
        Pulse::Silent | Pulse::Beating => {}
    }
    let deadline = Instant::now() + Duration::from_millis(lease.timeout_ms);
    let mut resume = lease.resume.as_deref().filter(|session| is_session(session));
    loop {
        let start = prepared.start(lease, resume);
        let mut turn = match Turn::begin(context, lease, start, output).await {
            Ok(turn) => turn,
            Err(error) => return Some(not_started(lease, &error.to_string()).report(lease.fence, None)),
        };
        let (exit, why) = turn.supervise(context, heart, record, deadline).await;
        turn.drain_pipes(output).await;
        let stop = match why {
            Why::Lost => return None,
            Why::Stopped(stop) => Some(stop),
            Why::ByItself => None,
        };
        let exit = match exit {
            Ok(exit) => exit,
            Err(reason) => return Some(not_started(lease, &reason).report(lease.fence, None)),
        };
        let stderr = String::from_utf8_lossy(&turn.stderr.lock()).into_owned();
        if stop.is_none() && resume.is_some() && turn.transcript.lock().lost_session(&stderr) {
            tracing::info!(lease.id = %lease.id, "The provider's session is gone; the attempt starts afresh");
            resume = None;
            continue;
        }
        let outcome = judge_turn(lease, &turn.transcript.lock(), exit, stop, &stderr);
        if outcome.error.is_some() && stop.is_none() && !stderr.trim().is_empty() {
            pump::append(output, format!("\n[standard error]\n{}\n", stderr.trim().replace('\0', "\u{fffd}"))).await;
        }
        let report = outcome.report(lease.fence, Some(&turn.transcript.lock()));
        return Some(report);
    }
}

fn judge_turn(lease: &Lease, transcript: &Transcript, exit: Exit, stop: Option<Stop>, stderr: &str) -> Outcome {
    // The stage says in its own words why it could not become the program.
    if exit == Exit::Code(EXIT_STAGE) && stop.is_none() && transcript.session_id().is_none() {
        return not_started(lease, stderr.trim());
    }
    judge(lease.provider, transcript, exit, stop, stderr)
}

fn not_started(lease: &Lease, reason: &str) -> Outcome {
    Outcome::not_made("SPAWN_FAILED", format!("{} could not be started: {reason}", lease.provider))
}

/// What stays the same when an attempt has to start a second time.
struct Prepared<'a> {
    program: PathBuf,
    directory: Directory,
    model: Option<&'a str>,
    config: &'a crate::config::Config,
    provider: &'a crate::config::ProviderConfig,
}

async fn prepare<'a>(
    context: &'a Context,
    lease: &'a Lease,
    program: Result<PathBuf, String>,
) -> Result<Prepared<'a>, Outcome> {
    let unavailable = |why: String| {
        Outcome::not_made("PROVIDER_NOT_AVAILABLE", format!("{} cannot run here: {why}.", lease.provider))
    };
    let program = program.map_err(unavailable)?;
    let config = &*context.config;
    let provider =
        config.providers.get(&lease.provider).ok_or_else(|| unavailable("it is not configured".to_owned()))?;
    let model = lease.model.as_deref().filter(|model| *model != "default");
    if model.is_some_and(|model| !is_model(model)) {
        return Err(Outcome::not_made("INVALID_MODEL", "The model's name has characters that are not allowed."));
    }
    let (finds, wanted, run) = (context.clone(), lease.working_directory.clone(), lease.run_id);
    let directory = on_disk(move || Ok(working_directory(&finds, wanted.as_deref(), run)))
        .await
        .unwrap_or_else(|error| Err(disk(&error)))?;
    if provider.permission == Permission::Bypass {
        tracing::warn!(lease.id = %lease.id, task.id = %lease.task_id, provider = %lease.provider,
            "This attempt may do all that this account may do: the configuration bypasses permissions");
    }
    Ok(Prepared { program, directory, model, config, provider })
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
            let made = context.spool.workspace(run).map_err(|error| disk(&error))?;
            directory::find(&made, &[workspaces])
        }
    }
}

fn disk(error: &std::io::Error) -> Outcome {
    Outcome::not_made("RUNNER_DISK", format!("The runner cannot make a working directory: {error}."))
}

impl Prepared<'_> {
    fn start(&self, lease: &Lease, resume: Option<&str>) -> Start {
        let call = Call {
            model: self.model,
            resume,
            permission: self.provider.permission,
            extra: &self.provider.args,
            as_root: nix::unistd::geteuid().is_root(),
        };
        let invocation = invocation(lease.provider, &call);
        let mut env = invocation
            .env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<std::collections::BTreeMap<_, _>>();
        env.extend(self.config.program_env(self.provider));
        if let Some(traceparent) = &lease.traceparent {
            env.insert("TRACEPARENT".to_owned(), traceparent.clone());
        }
        Start {
            program: self.program.clone(),
            args: invocation.args,
            env,
            directory: self.directory.clone(),
            prompt: lease.prompt.clone(),
        }
    }
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    ByItself,
    Stopped(Stop),
    Lost,
}

/// One start of the program.
struct Turn {
    process: Process,
    transcript: Shared<Transcript>,
    stderr: Shared<Vec<u8>>,
    pumps: Vec<tokio::task::JoinHandle<()>>,
}

impl Turn {
    async fn begin(context: &Context, lease: &Lease, start: Start, output: &Arc<OutputSpool>) -> std::io::Result<Self> {
        let (process, stdout, stderr_pipe) = Process::start(&context.config, lease.id, start).await?;
        let transcript = Shared::new(Transcript::of(lease.provider));
        let stderr = Shared::new(Vec::new());
        let pumps = vec![
            tokio::spawn(pump::output(stdout, transcript.clone(), output.clone())),
            tokio::spawn(pump::last_words(stderr_pipe, stderr.clone())),
        ];
        Ok(Self { process, transcript, stderr, pumps })
    }

    /// Waits for the end, and orders it at the first reason to. A lost lease outdoes every other reason.
    async fn supervise(
        &mut self,
        context: &Context,
        heart: &Heart,
        record: &Record,
        deadline: Instant,
    ) -> (Result<Exit, String>, Why) {
        let timing = &context.config.timing;
        let mut why = Why::ByItself;
        let mut session_noted: Option<String> = None;
        let mut look = tokio::time::interval(Duration::from_secs(1));
        loop {
            let running = why == Why::ByItself;
            let (next, grace) = tokio::select! {
                exit = self.process.ended() => return (exit, why),
                () = heart.reached(Pulse::Lost), if why != Why::Lost => (Why::Lost, timing.lost_grace),
                () = heart.reached(Pulse::CancelRequested), if running => (Why::Stopped(Stop::Cancel), timing.term_grace),
                () = tokio::time::sleep_until(deadline), if running => (Why::Stopped(Stop::Timeout), timing.term_grace),
                () = context.drain.reached(Phase::HandingBack), if running => (Why::Stopped(Stop::HandBack), timing.term_grace),
                _ = look.tick(), if session_noted.is_none() => {
                    session_noted = self.note_session(record).await;
                    continue;
                }
            };
            why = next;
            self.process.stop(grace).await;
        }
    }

    /// Puts the provider's session down as soon as it is known, so that it survives this runner.
    async fn note_session(&self, record: &Record) -> Option<String> {
        let id = self.transcript.lock().session_id()?.to_owned();
        let (noted, record) = (id.clone(), record.clone());
        let lease = record.lease();
        if let Err(error) = on_disk(move || record.note_session(&noted)).await {
            tracing::warn!(lease.id = %lease, "Cannot note the provider's session: {error}");
        }
        Some(id)
    }

    async fn drain_pipes(&mut self, output: &Arc<OutputSpool>) {
        output.lift_bound();
        let deadline = Instant::now() + PIPES_GRACE;
        for pump in &mut self.pumps {
            if tokio::time::timeout_at(deadline, &mut *pump).await.is_err() {
                pump.abort();
            }
        }
    }
}
