//! The machine's heartbeat, with the state of the runner for people to see.

use std::sync::Arc;

use ensemble_host::drain::Phase;
use ensemble_host::wake;
use ensemble_types::machines::Activity;
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::attempt::Context;
use crate::offers::Offer;

/// The state of the runner, sent as the machine's `activity`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Runner<'a> {
    version: &'a str,
    capacity: u32,
    running: u32,
    draining: bool,
    providers: Vec<OfferState<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worktrees: Option<Worktrees>,
}

/// Worktrees that are kept until their owner discards them, and how many the machine keeps at most.
#[derive(Serialize)]
struct Worktrees {
    kept: usize,
    most: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferState<'a> {
    provider: &'a str,
    offered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// Sends heartbeats until `ending` is closed, also while the runner drains. A heartbeat that is on its way is waited for.
pub(crate) async fn run(
    context: Context,
    mut offers: watch::Receiver<Vec<Offer>>,
    slots: Arc<Semaphore>,
    mut ending: oneshot::Receiver<()>,
) {
    let timing = context.config.timing;
    let mut backoff = timing.backoff();
    let mut woken = context.woken.clone();
    let mut was_unavailable = false;
    loop {
        let places = context.workplaces.places().await;
        let activity = activity(&context, &offers.borrow_and_update(), &slots, places);
        let pause = match activity {
            Ok(activity) => match context.server.machine_heartbeat(&context.config.machine, activity).await {
                Ok(()) => {
                    if std::mem::take(&mut was_unavailable) {
                        tracing::info!("The machine's heartbeat succeeds again");
                    }
                    backoff.reset();
                    timing.machine_beat
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_unavailable, true) {
                        tracing::warn!("The machine's heartbeat failed: {error}");
                    }
                    backoff.pause(error.retry_after()).min(timing.machine_beat)
                }
            },
            Err(error) => {
                tracing::error!("Cannot describe the machine's activity: {error}");
                timing.machine_beat
            }
        };
        let was_draining = context.drain.phase() > Phase::Serving;
        tokio::select! {
            _ = &mut ending => return,
            () = tokio::time::sleep(pause) => {}
            () = wake::next(&mut woken) => {}
            // What people wait for is reported at once.
            () = context.drain.reached(Phase::Draining), if !was_draining => {}
            Ok(()) = offers.changed() => {}
        }
    }
}

/// Says that the machine is offline from now on.
pub(crate) async fn sign_off(context: &Context, offers: &watch::Receiver<Vec<Offer>>, slots: &Semaphore) {
    let places = context.workplaces.places().await;
    let Ok(activity) = activity(context, &offers.borrow(), slots, places) else { return };
    if let Err(error) = context.server.sign_off(&context.config.machine, activity).await {
        tracing::debug!("The server did not get the sign-off of this runner: {error}");
    }
}

fn activity(
    context: &Context,
    offers: &[Offer],
    slots: &Semaphore,
    places: Option<(usize, usize)>,
) -> Result<Activity, serde_json::Error> {
    let free = u32::try_from(slots.available_permits()).unwrap_or(0);
    let runner = Runner {
        version: env!("CARGO_PKG_VERSION"),
        capacity: context.config.capacity,
        running: context.config.capacity.saturating_sub(free),
        draining: context.drain.phase() > Phase::Serving,
        providers: offers
            .iter()
            .map(|offer| OfferState {
                provider: offer.provider.as_str(),
                offered: offer.program.is_ok(),
                version: offer.version.as_deref(),
                signed_in: offer.signed_in,
                reason: offer.program.as_ref().err().map(|not| not.reason.as_str()),
            })
            .collect(),
        worktrees: places.map(|(kept, most)| Worktrees { kept, most }),
    };
    Activity::from_text(serde_json::json!({ "runner": runner }).to_string())
}
