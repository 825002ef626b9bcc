//! Wakes sessions whose agents do not run when something has changed in them: one stream of the account's hints for all.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ensemble_types::hints::HintKind;
use ensemble_types::ids::SessionId;
use ensemble_types::problem::Code;
use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Host, Pause};

/// The sessions of this host.
#[derive(Default)]
pub(crate) struct Wakers {
    known: Mutex<HashMap<SessionId, Arc<Notify>>>,
    /// Marked when the server is there again after it was not.
    returns: watch::Sender<()>,
}

impl Wakers {
    /// What wakes this session.
    pub(crate) fn of(&self, session: SessionId) -> Arc<Notify> {
        self.lock().entry(session).or_default().clone()
    }

    pub(crate) fn forget(&self, session: SessionId) {
        self.lock().remove(&session);
    }

    /// False: it is not hosted.
    pub(crate) fn wake(&self, session: SessionId) -> bool {
        let known = self.lock();
        let waker = known.get(&session);
        waker.into_iter().for_each(|waker| waker.notify_one());
        waker.is_some()
    }

    /// The server may have been restored before it is there again.
    pub(crate) fn returns(&self) -> watch::Receiver<()> {
        self.returns.subscribe()
    }

    pub(crate) fn wake_all(&self) {
        self.returns.send_replace(());
        self.lock().values().for_each(|waker| waker.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Notify>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads hints for as long as the host runs.
pub(crate) async fn run(host: Arc<Host>) {
    let (mut pause, mut refused) = (Pause::new(&host), None::<Instant>);
    // A runner notices it too, and says to who has started it that it was refused.
    let runners = if host.is_for_sessions_only() { 1 } else { 2 };
    let grace = host.config.timing.refused_grace * runners;
    loop {
        let mut hints = pin!(host.client.follow_hints());
        while let Some(hint) = hints.next().await {
            match hint {
                Ok(hint) => {
                    refused = None;
                    pause.reset();
                    match (hint.kind, hint.id.and_then(|id| id.parse().ok())) {
                        (HintKind::Session, Some(session)) => host.wake(session).await,
                        // What is written next must not be readable by a device that was removed.
                        (HintKind::Device, _) => host.lists.reread().await,
                        (HintKind::All, _) => {
                            host.lists.reread().await;
                            host.lists.say_again();
                            if let Err(error) = host.wake_all().await {
                                pause.say(&format!("Sessions that have ended do not get commands now: {error}"));
                                break;
                            }
                        }
                        _ => {}
                    }
                }
                Err(error) => {
                    let is_refused = error.is(Code::Unauthenticated) || error.is(Code::DeviceRemoved);
                    refused = refused.or(Some(Instant::now())).filter(|_| is_refused);
                    if refused.is_some_and(|since| since.elapsed() > grace) {
                        tracing::error!("The server does not accept this machine any more, so its sessions end here");
                        host.drain.hurry();
                    }
                    pause.say(&format!("Sessions without a running agent do not get commands now: {error}"));
                    break;
                }
            }
        }
        pause.wait().await;
    }
}
