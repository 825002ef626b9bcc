//! The heartbeat of one lease: the first at once, then every few seconds, until the report is delivered or the lease is
//! lost. An order to cancel and the provider's session are answered and sent at once.

use std::time::{Duration, Instant};

use ensemble_client::HeldLease;
use ensemble_host::wake;
use ensemble_types::changes::LeaseWaitsFor;
use ensemble_types::ids::SessionId;
use ensemble_types::leases::{LeaseBeat, LeaseHeartbeat};
use ensemble_types::text::Text;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Context;
use super::held::Holding;
use crate::server::ServerError;

const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a lease, from the server's answers to the heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeaseState {
    /// No answer yet.
    Unknown,
    Held,
    CancelRequested,
    /// Another runner may have the task.
    Lost,
}

/// What a heartbeat reports to the server.
#[derive(Clone, Debug, Default)]
struct News {
    provider_session: Option<String>,
    waiting_for: Option<LeaseWaitsFor>,
    session: Option<SessionId>,
}

/// The heartbeat task. Stops when dropped.
pub(super) struct Heartbeat {
    state: watch::Receiver<LeaseState>,
    news: watch::Sender<News>,
    task: JoinHandle<()>,
}

impl Heartbeat {
    pub(super) fn start(context: &Context, lease: HeldLease) -> Self {
        let (sender, state) = watch::channel(LeaseState::Unknown);
        let (news, known) = watch::channel(News::default());
        let holding = context.held.hold(lease.id);
        Self { state, news, task: tokio::spawn(run(context.clone(), lease, holding, known, sender)) }
    }

    /// Reports the provider's session to the server, so that the next attempt can resume it even if this machine is lost.
    pub(super) fn set_session(&self, id: &str) {
        self.news.send_modify(|news| news.provider_session = Some(id.to_owned()));
    }

    /// Reports to the server what the attempt waits for.
    pub(super) fn set_waiting(&self, waiting_for: Option<LeaseWaitsFor>) {
        self.news.send_if_modified(|news| std::mem::replace(&mut news.waiting_for, waiting_for) != waiting_for);
    }

    /// Reports the live session of the task to the server.
    pub(super) fn set_live_session(&self, session: SessionId) {
        self.news.send_modify(|news| news.session = Some(session));
    }

    /// Waits for the first answer, but no longer than `timeout`: an attempt also runs while the server is unavailable.
    pub(super) async fn first(&self, timeout: Duration) -> LeaseState {
        // Without an answer in time the state stays as it was.
        let _ = tokio::time::timeout(timeout, self.reached(LeaseState::Held)).await;
        *self.state.borrow()
    }

    /// Waits until the state is at least `wanted`.
    pub(super) async fn reached(&self, wanted: LeaseState) {
        if self.state.clone().wait_for(|state| *state >= wanted).await.is_err() {
            // The heartbeats have ended without reaching this state.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    context: Context,
    lease: HeldLease,
    mut holding: Holding,
    mut news: watch::Receiver<News>,
    state: watch::Sender<LeaseState>,
) {
    let timing = context.config.timing;
    let mut backoff = timing.backoff();
    let mut woken = context.woken.clone();
    let mut refused_since = None;
    loop {
        let known = news.borrow_and_update().clone();
        let pause = match send(&context, &lease, &known).await {
            Ok(beat) => {
                backoff.reset();
                refused_since = None;
                holding.beaten();
                advance(&state, if beat.cancel_requested { LeaseState::CancelRequested } else { LeaseState::Held });
                timing.lease_beat
            }
            Err(ServerError::LeaseLost) => return advance(&state, LeaseState::Lost),
            Err(error @ (ServerError::Refused(_) | ServerError::Gap(_))) => {
                tracing::warn!(lease.id = %lease.id, "The server refused the heartbeat, so the lease is lost: {error}");
                return advance(&state, LeaseState::Lost);
            }
            Err(error @ ServerError::Unauthorized(_)) => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= timing.refused_grace {
                    tracing::error!(lease.id = %lease.id, "Ending an attempt because its lease can no longer be renewed: {error}");
                    return advance(&state, LeaseState::Lost);
                }
                backoff.pause(error.retry_after())
            }
            Err(error @ ServerError::Unavailable { .. }) => {
                tracing::debug!(lease.id = %lease.id, "A heartbeat failed: {error}");
                backoff.pause(error.retry_after()).min(timing.lease_beat)
            }
        };
        let is_cancelled = *state.borrow() >= LeaseState::CancelRequested;
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake::next(&mut woken) => {}
            // The heartbeat confirms to the server that the order has arrived.
            () = holding.cancelled(), if !is_cancelled => advance(&state, LeaseState::CancelRequested),
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}

/// Sends one heartbeat. Its timeout is short: after a sleep of the machine the pooled connections are dead.
async fn send(context: &Context, lease: &HeldLease, news: &News) -> Result<LeaseBeat, ServerError> {
    let timeout = (context.config.timing.lease_beat / 2).max(SHORTEST_TIMEOUT);
    let beat = LeaseHeartbeat {
        fence: lease.fence,
        provider_session_id: news.provider_session.as_deref().and_then(|id| Text::new(id).ok()),
        waiting_for: news.waiting_for,
        session_id: news.session,
    };
    match tokio::time::timeout(timeout, context.server.heartbeat(lease, &beat)).await {
        Ok(answer) => answer,
        Err(_) => {
            Err(ServerError::Unavailable { reason: format!("no response within {timeout:?}"), retry_after: None })
        }
    }
}

fn advance(state: &watch::Sender<LeaseState>, to: LeaseState) {
    state.send_if_modified(|now| {
        let higher = to > *now;
        *now = to.max(*now);
        higher
    });
}
