//! The attempt of a sealed task: a live session begins or continues, or nothing is done. The server gets a code and a fixed sentence,
//! because a path or an error's text is none of its business.

use std::sync::Arc;
use std::time::Duration;

use ensemble_host::drain::Phase;
use ensemble_host::{Host, NotBegun, Pause};
use ensemble_process::Directory;
use ensemble_process::disk::on_disk;
use ensemble_protocol::seal::SessionTask;
use ensemble_types::ids::SessionId;
use ensemble_types::leases::{FinishStatus, Lease, LeaseFinish};
use ensemble_types::runs::{Provider, TaskSession};
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::heartbeat::{Heartbeat, LeaseState};
use super::run_attempt::FIRST_BEAT;
use super::session_turn;
use super::slot::Slot;
use crate::directory;
use crate::offers::Offer;
use crate::outcome::Outcome;
use crate::owner::Refused;

/// A host that has just started asks the server for its owner.
const HOST_WITHIN: Duration = Duration::from_secs(60);

/// What a machine may do, and where.
pub(super) struct Permitted {
    pub(super) host: Arc<Host>,
    pub(super) task: SessionTask,
    pub(super) directory: Directory,
}

/// Begins the session, or has it do the task, and returns the report. `None`: the lease is lost.
pub(super) async fn run_sealed(
    context: &Context,
    lease: &Lease,
    offer: Option<Offer>,
    (heartbeat, slot): (&Heartbeat, &mut Slot),
) -> Option<LeaseFinish> {
    // If the machine slept after it received the lease, another runner may already have the task.
    if heartbeat.first(FIRST_BEAT).await == LeaseState::Lost {
        return None;
    }
    let deadline = Instant::now() + Duration::from_millis(lease.timeout_ms);
    let permitted = tokio::select! {
        permitted = permit(context, lease, offer) => permitted,
        () = heartbeat.reached(LeaseState::Lost) => return None,
        () = heartbeat.reached(LeaseState::CancelRequested) => Err(Outcome::cancelled()),
        () = context.drain.reached(Phase::Draining) => Err(Outcome::handed_back()),
        () = sleep_until(deadline) => Err(Outcome::refused("HOST_BUSY", AWAY)),
    };
    let begun = match permitted {
        Ok(permitted) if permitted.task.session == TaskSession::Turn => {
            return session_turn::follow(context, lease, permitted, (heartbeat, slot), deadline).await;
        }
        // Not cut short: a half-made session would have no owner.
        Ok(permitted) => begin(context, lease, permitted).await,
        Err(outcome) => Err(outcome),
    };
    Some(match begun {
        Ok(session) => {
            tracing::info!(lease.id = %lease.id, session.id = %session, "A task has begun a session");
            let outcome = Outcome { status: FinishStatus::Completed, error: None, exit_code: None, resume_at: None };
            LeaseFinish { session_id: Some(session), ..outcome.report(lease.fence) }
        }
        Err(outcome) => outcome.report(lease.fence),
    })
}

const AWAY: &str = "The machine could not ask the server for its owner's devices in time.";

/// Whether the task may be done here.
async fn permit(context: &Context, lease: &Lease, offer: Option<Offer>) -> Result<Permitted, Outcome> {
    if lease.session.is_none() {
        return Err(refused(lease, Refused::unsupported("the server says that it is no session")));
    }
    let is_demo = lease.provider.as_str() == Provider::DEMO;
    // Its script is a part of this program.
    let program = if is_demo { Some(Ok(())) } else { offer.map(|offer| offer.program.map(drop)) };
    if let Some(Err(not)) = &program {
        tracing::warn!(lease.id = %lease.id, "A session cannot begin: {}", not.reason);
        return Err(Outcome::refused(not.code, "The provider's program cannot be used on this machine."));
    }
    if program.is_none() {
        return Err(Outcome::refused("PROVIDER_NOT_AVAILABLE", "The machine does not offer the provider."));
    }
    let mut owners = context.owner.clone();
    let owner = match tokio::time::timeout(HOST_WITHIN, owners.wait_for(Option::is_some)).await {
        Ok(Ok(owner)) => owner.clone(),
        Ok(Err(_)) => {
            let message = "The runner of the machine hosts no live sessions. It needs its own key in its owner's list of devices.";
            return Err(Outcome::refused("SESSIONS_NOT_HOSTED", message));
        }
        Err(_) => None,
    };
    let Some(owner) = owner else { return Err(Outcome::refused("HOST_BUSY", AWAY)) };
    let mut pause = Pause::of(context.config.timing.backoff());
    let task = loop {
        match owner.signed(lease).await {
            Ok(Ok(task)) => break task,
            Ok(Err(why)) => return Err(refused(lease, why)),
            Err(error) => {
                pause.say(&format!("A task waits for the device list of its owner: {error}"));
                pause.wait().await;
            }
        }
    };
    if is_demo && task.session != TaskSession::Start {
        return Err(refused(lease, Refused::unsupported("the demo does no tasks")));
    }
    let home = context.config.environment.get("HOME").map(String::as_str);
    // The demo works in a directory that is made for it.
    let wanted = if is_demo { context.spool.workspaces() } else { directory::from_home(&task.working_directory, home) };
    let mut roots = context.config.roots.clone();
    roots.push(context.spool.workspaces());
    let found = on_disk(move || Ok(directory::find(&wanted, &roots))).await;
    let directory = found.unwrap_or_else(|error| Err(Outcome::refused("RUNNER_DISK", error.to_string())));
    match directory {
        Ok(directory) => Ok(Permitted { host: owner.host.clone(), task, directory }),
        Err(outcome) => {
            let error = outcome.error.as_ref();
            tracing::warn!(lease.id = %lease.id, "A session cannot begin: {}", error.map_or("", |error| &*error.message));
            let code = error.map_or("WORKING_DIRECTORY_INVALID", |error| &*error.code);
            let sentence = "The working directory cannot be used: it must exist on the machine, below a directory that its runner allows.";
            Err(Outcome::refused(code, sentence))
        }
    }
}

async fn begin(
    context: &Context,
    lease: &Lease,
    Permitted { host, task, directory }: Permitted,
) -> Result<SessionId, Outcome> {
    // In a separate task: the session is begun to the end, even if the attempt ends.
    let begun = tokio::spawn(async move { host.begin_task(task, directory.root.join(directory.below)).await });
    match begun.await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(why)) => Err(not_started(context, lease, &why)),
        Err(error) => Err(not_started(context, lease, &NotBegun::Other(error.to_string()))),
    }
}

/// The session does not begin, or is not hosted.
pub(super) fn not_started(context: &Context, lease: &Lease, why: &NotBegun) -> Outcome {
    if context.drain.phase() > Phase::Serving {
        return Outcome::handed_back();
    }
    tracing::warn!(lease.id = %lease.id, "A session could not begin: {why}");
    if let NotBegun::Busy(who) = why {
        return Outcome::refused("HOST_BUSY", format!("{who}."));
    }
    Outcome::not_startable(
        "SESSION_NOT_STARTED",
        "The session could not be started. The log of the machine's runner says why.",
    )
}

fn refused(lease: &Lease, why: Refused) -> Outcome {
    tracing::warn!(lease.id = %lease.id, task.id = %lease.task_id, code = why.code, "A sealed task is not done: {}", why.why);
    Outcome::refused(why.code, why.sentence)
}
