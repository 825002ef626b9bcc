//! Only what a device of the owner has signed is done, where the runner's configuration says so.

use std::time::Duration;

use ensemble_client::Error;
use ensemble_host::Pause;
use ensemble_host::drain::Phase;
use ensemble_protocol::seal::TaskOrder;
use ensemble_types::changes::OrderResult;
use ensemble_types::leases::{Lease, LeaseFinish, Order};
use tokio::time::{Instant, sleep_until};

use super::Context;
use super::heartbeat::{Heartbeat, LeaseState};
use super::run_attempt::FIRST_BEAT;
use crate::config::Accept;
use crate::outcome::Outcome;
use crate::owner::{Owner, Refused, filled};
use crate::workplace::failed;

/// A runner that has just started asks the server for its owner.
const HOST_WITHIN: Duration = Duration::from_secs(60);
const AWAY: &str = "The machine could not ask the server for its owner's devices in time.";
const NO_LIST: &str = "The runner of the machine takes signed tasks only, and cannot read the list of its owner's devices. Its log says why.";

/// A lease that is not run.
pub(super) enum NotRun {
    Lost,
    Ended(Box<LeaseFinish>),
}

/// The lease with what was signed. Where the runner takes any task, the lease as it is.
pub(super) async fn as_signed(context: &Context, lease: &Lease, heartbeat: &Heartbeat) -> Result<Lease, NotRun> {
    if context.config.accepts() == Accept::Any && !is_checked(context, is_signed(lease)) {
        return filled_in(lease).map_err(|outcome| NotRun::Ended(Box::new(outcome.report(lease.fence))));
    }
    // If the machine slept after it received the lease, another runner may already have the task.
    if heartbeat.first(FIRST_BEAT).await == LeaseState::Lost {
        return Err(NotRun::Lost);
    }
    let deadline = Instant::now() + Duration::from_millis(lease.timeout_ms);
    let checked = tokio::select! {
        checked = check(context, lease) => checked,
        () = heartbeat.reached(LeaseState::Lost) => return Err(NotRun::Lost),
        () = heartbeat.reached(LeaseState::CancelRequested) => Err(Outcome::cancelled()),
        () = context.drain.reached(Phase::Draining) => Err(Outcome::handed_back()),
        () = sleep_until(deadline) => Err(Outcome::refused("HOST_BUSY", AWAY)),
    };
    checked.map_err(|outcome| NotRun::Ended(Box::new(outcome.report(lease.fence))))
}

/// Whether a runner that takes any task checks one: what is signed must be signed well, where the owner's devices are known.
fn is_checked(context: &Context, is_signed: bool) -> bool {
    is_signed && context.config.check_owner().is_ok()
}

fn is_signed(lease: &Lease) -> bool {
    lease.signed.is_some() && (!lease.follow_up || lease.signed_message.is_some())
}

/// A prompt that was signed comes with its placeholders, also to a runner that does not ask for the signature.
fn filled_in(lease: &Lease) -> Result<Lease, Outcome> {
    if lease.signed.is_none() || lease.follow_up {
        return Ok(lease.clone());
    }
    let prompt = filled(&lease.prompt, &lease.outputs);
    let too_long =
        || Outcome::not_startable("PROMPT_TOO_LARGE", "The prompt is too long with the outputs of other tasks.");
    Ok(Lease { prompt: prompt.ok_or_else(too_long)?, ..lease.clone() })
}

async fn check(context: &Context, lease: &Lease) -> Result<Lease, Outcome> {
    let mut pause = Pause::of(context.config.timing.backoff());
    let checked = match owner(context).await {
        Ok(owner) => loop {
            match owner.as_signed(lease).await {
                Ok(checked) => break checked,
                Err(error) => wait(&mut pause, &error).await,
            }
        },
        Err(why) => Err(why),
    };
    checked.map_err(|why| {
        tracing::warn!(lease.id = %lease.id, task.id = %lease.task_id, code = why.code, "A task is not done: {}", why.why);
        Outcome::refused(why.code, why.sentence)
    })
}

/// What the owner has signed of an order about a worktree. `None`: the runner takes orders that are not signed.
///
/// # Errors
/// It is not carried out, and this is its result.
pub(crate) async fn signed_order(context: &Context, order: &Order) -> Result<Option<TaskOrder>, OrderResult> {
    if context.config.accepts() == Accept::Any && !is_checked(context, order.signed.is_some()) {
        return Ok(None);
    }
    let mut pause = Pause::of(context.config.timing.backoff());
    let checked = match owner(context).await {
        Ok(owner) => loop {
            match owner.check_order(order).await {
                Ok(Ok(Some(wanted))) => match owner.result_of(&wanted).await {
                    Some(result) => return Err(result),
                    None => return Ok(Some(wanted)),
                },
                Ok(checked) => break checked,
                Err(error) => wait(&mut pause, &error).await,
            }
        },
        Err(why) => Err(why),
    };
    let why = match checked {
        Ok(wanted) => return Ok(wanted),
        Err(why) => why,
    };
    tracing::warn!(order.id = order.id, task.id = %order.task_id, code = why.code, "An order is not carried out: {}. {}", why.why, why.sentence);
    if why.sentence.contains(&why.why) {
        return Err(failed(&why.sentence));
    }
    Err(failed(&format!("{}. {}", why.why, why.sentence)))
}

/// A signed order was carried out, with this result.
pub(crate) async fn carried_out(context: &Context, order: &TaskOrder, result: &OrderResult) {
    if let Ok(owner) = owner(context).await {
        owner.carried_out(order, result).await;
    }
}

async fn owner(context: &Context) -> Result<std::sync::Arc<Owner>, Refused> {
    let mut owners = context.owner.clone();
    match tokio::time::timeout(HOST_WITHIN, owners.wait_for(Option::is_some)).await {
        Ok(Ok(owner)) => owner.clone().ok_or_else(|| Refused::no_list(NO_LIST)),
        Ok(Err(_)) | Err(_) => Err(Refused::no_list(NO_LIST)),
    }
}

/// Until the server is asked again for the owner's newest list.
async fn wait(pause: &mut Pause, error: &Error) {
    pause.say(&format!("A task waits for the device list of its owner: {error}"));
    pause.wait().await;
}
