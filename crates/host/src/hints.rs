//! Wakes sessions whose agents do not run when something has changed in them: one stream of the account's hints for all.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ensemble_client::AccountNews;
use ensemble_types::hints::HintKind;
use ensemble_types::ids::SessionId;
use ensemble_types::problem::Code;
use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Host, Pause, look};

/// The sessions of this host.
#[derive(Default)]
pub(crate) struct Wakers {
    known: Mutex<HashMap<SessionId, Arc<Notify>>>,
    /// Marked by [`Self::is_back`].
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

    /// The server is there again after it was not.
    pub(crate) fn is_back(&self) {
        self.returns.send_replace(());
    }

    pub(crate) fn wake_all(&self) {
        self.lock().values().for_each(|waker| waker.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Notify>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Questions that are dealt with at once, of all askers together.
const MOST_LOOKS: usize = 16;

/// Reads hints for as long as the host runs.
pub(crate) async fn run(host: Arc<Host>) {
    let (mut pause, mut refused) = (Pause::new(&host), None::<Instant>);
    // What it has was read when the sessions were opened.
    let mut may_be_restored = false;
    // A runner notices it too, and reports it to the person who started it.
    let runners = if host.is_for_sessions_only() { 1 } else { 2 };
    let grace = host.settings.timing.refused_grace * runners;
    let mut looks = JoinSet::new();
    loop {
        let mut events = pin!(host.client.follow_account());
        while let Some(event) = events.next().await {
            while looks.try_join_next().is_some() {}
            match event {
                // A device that gets no answer in time asks again.
                Ok(AccountNews::Look(_)) if looks.len() >= MOST_LOOKS => {}
                Ok(AccountNews::Look(asked)) => drop(looks.spawn(look::serve(host.clone(), asked))),
                Ok(AccountNews::Hint(hint)) => {
                    refused = None;
                    pause.reset();
                    match (hint.kind, hint.id.and_then(|id| id.parse().ok())) {
                        (HintKind::Session, Some(session)) => host.wake(session).await,
                        // What is written next must not be readable by a device that was removed.
                        (HintKind::Device, _) => host.lists.reread().await,
                        (HintKind::All, _) => {
                            host.lists.reread().await;
                            host.lists.say_again();
                            if std::mem::replace(&mut may_be_restored, true) {
                                host.wakers.is_back();
                            }
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
        may_be_restored = true;
        pause.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deliver::double::Double;

    #[tokio::test]
    async fn only_a_server_that_was_away_is_back() {
        let double = Double::new().await;
        let (mut returns, mut requests) = (double.host.wakers.returns(), double.server.requests.subscribe());
        let running = tokio::spawn(run(double.host.clone()));
        // Each connection is followed by this question.
        let asked = |requests: &Vec<(String, _)>| requests.iter().any(|(line, _)| line.starts_with("get /v1/sessions"));
        tokio::time::timeout(Duration::from_secs(60), requests.wait_for(asked)).await.unwrap().unwrap();
        assert!(!returns.has_changed().unwrap(), "what the server has was read a moment before");
        tokio::time::timeout(Duration::from_secs(60), returns.changed()).await.unwrap().unwrap();
        running.abort();
    }
}
