//! The heartbeat of one lease: at once, then every few seconds, until the report is taken or the lease is lost.

use std::time::{Duration, Instant};

use ensemble_client::HeldLease;
use ensemble_types::leases::LeaseBeat;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Context;
use crate::backoff::Backoff;
use crate::server::ServerError;
use crate::wake;

const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// What the server's answers to the heartbeats mean for the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pulse {
    /// No answer yet.
    Silent,
    Beating,
    CancelRequested,
    /// Somebody else may be making the attempt.
    Lost,
}

/// Stops when it is dropped.
pub(super) struct Heart {
    pulse: watch::Receiver<Pulse>,
    task: JoinHandle<()>,
}

impl Heart {
    pub(super) fn start(context: &Context, lease: HeldLease) -> Self {
        let (sender, pulse) = watch::channel(Pulse::Silent);
        Self { pulse, task: tokio::spawn(beat(context.clone(), lease, sender)) }
    }

    /// Waits for the first answer, but not for ever: work is also done while the server is away.
    pub(super) async fn first(&self, timeout: Duration) -> Pulse {
        // Without an answer in time the pulse is what it was.
        let _ = tokio::time::timeout(timeout, self.reached(Pulse::Beating)).await;
        *self.pulse.borrow()
    }

    /// Waits until the pulse is at least this.
    pub(super) async fn reached(&self, wanted: Pulse) {
        if self.pulse.clone().wait_for(|pulse| *pulse >= wanted).await.is_err() {
            // It has beaten its last, and it was not that.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(context: Context, lease: HeldLease, pulse: watch::Sender<Pulse>) {
    let timing = context.config.timing;
    let mut backoff = Backoff::of(&timing);
    let mut woken = context.woken.clone();
    let mut refused_since = None;
    loop {
        let pause = match ask(&context, &lease).await {
            Ok(beat) => {
                backoff.reset();
                refused_since = None;
                raise(&pulse, if beat.cancel_requested { Pulse::CancelRequested } else { Pulse::Beating });
                timing.lease_beat
            }
            Err(ServerError::LeaseLost) => return raise(&pulse, Pulse::Lost),
            Err(error @ (ServerError::Refused(_) | ServerError::Gap(_))) => {
                tracing::warn!(lease.id = %lease.id, "The server does not know this lease: {error}");
                return raise(&pulse, Pulse::Lost);
            }
            Err(error @ ServerError::Unauthorized(_)) => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= timing.refused_grace {
                    tracing::error!(lease.id = %lease.id, "Ends an attempt: {error}");
                    return raise(&pulse, Pulse::Lost);
                }
                backoff.pause(&error)
            }
            Err(error @ ServerError::Away { .. }) => {
                tracing::debug!(lease.id = %lease.id, "A heartbeat did not arrive: {error}");
                backoff.pause(&error).min(timing.lease_beat)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake::next(&mut woken) => {}
        }
    }
}

/// One heartbeat. It waits less long than other calls: after a sleep the first connections that are tried are dead.
async fn ask(context: &Context, lease: &HeldLease) -> Result<LeaseBeat, ServerError> {
    let timeout = (context.config.timing.lease_beat / 2).max(SHORTEST_TIMEOUT);
    match tokio::time::timeout(timeout, context.server.heartbeat(lease)).await {
        Ok(answer) => answer,
        Err(_) => Err(ServerError::Away { reason: format!("no answer within {timeout:?}"), retry_after: None }),
    }
}

fn raise(pulse: &watch::Sender<Pulse>, to: Pulse) {
    pulse.send_if_modified(|now| {
        let higher = to > *now;
        *now = to.max(*now);
        higher
    });
}
