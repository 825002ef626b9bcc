//! Sends what a session says to the server, in its order and once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ensemble_protocol::seal::{self, KeyRing, Purpose};
use ensemble_protocol::transcript::{Envelope, Frame};
use ensemble_types::ids::SessionId;
use ensemble_types::live::LiveFrame;
use ensemble_types::messages::AppendMessage;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use tokio::sync::{Notify, mpsc};

use super::kept::Outgoing;
use super::keys::{Keys, NoKey};
use super::{Host, Pause};

/// Messages of one request.
const MOST_AT_ONCE: usize = 100;
/// The bytes of their bodies. A longer message goes alone.
const MOST_BYTES: usize = 512 << 10;

/// Messages that are on disk and not yet at the server. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<(Mutex<VecDeque<Outgoing>>, Notify)>);

/// What became of the deliveries.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// The server has all messages up to this count.
    Upto(u64),
    /// The session does not exist any more.
    Gone,
}

impl Outbox {
    pub(crate) fn add(&self, messages: impl IntoIterator<Item = Outgoing>) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).extend(messages);
        self.0.1.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The first messages, when there are some.
    async fn next(&self) -> Vec<Outgoing> {
        loop {
            let added = self.0.1.notified();
            {
                let waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                let mut bytes = 0;
                let fits = |message: &&Outgoing| {
                    bytes += message.body.len();
                    bytes <= MOST_BYTES
                };
                let some: Vec<Outgoing> = waiting.iter().take(MOST_AT_ONCE).take_while(fits).cloned().collect();
                let first = waiting.front().cloned();
                if let Some(first) = first {
                    return if some.is_empty() { vec![first] } else { some };
                }
            }
            added.await;
        }
    }

    fn remove(&self, upto: u64) {
        let mut waiting = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.front().is_some_and(|message| message.n <= upto) {
            waiting.pop_front();
        }
    }
}

/// Sends until the session is gone.
pub(crate) async fn run(
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    outbox: Outbox,
    told: mpsc::Sender<Delivered>,
) {
    let mut pause = Pause::new(&host);
    loop {
        let messages = outbox.next().await;
        let Some(last) = messages.last().map(|message| message.n) else { continue };
        let ring = match keys.writing_ring().await {
            Ok(ring) => ring,
            Err(NoKey::Client(error)) if error.is_not_found() => {
                let _ = told.send(Delivered::Gone).await;
                return;
            }
            Err(why) => {
                tracing::warn!(session.id = %session, "Messages wait for a new key: {why}");
                pause.wait().await;
                continue;
            }
        };
        let sealed = match seal_all(&host, &ring, session, &messages) {
            Ok(sealed) => sealed,
            Err(why) => {
                tracing::error!(session.id = %session, "A message cannot be sealed: {why}");
                pause.wait().await;
                continue;
            }
        };
        let sent = match sealed {
            mut one if one.len() == 1 => match one.pop() {
                Some(one) => host.client.append_message(session, &one).await.map(drop),
                None => Ok(()),
            },
            several => host.client.append_messages(session, several).await.map(drop),
        };
        match sent {
            Ok(()) => {
                pause.reset();
                outbox.remove(last);
                if told.send(Delivered::Upto(last)).await.is_err() {
                    return;
                }
            }
            Err(error) if error.is_not_found() => {
                let _ = told.send(Delivered::Gone).await;
                return;
            }
            Err(error) if error.is(Code::KeyEpochOld) => {
                let before = keys.ring().epoch();
                if let Err(why) = keys.refresh().await {
                    tracing::warn!(session.id = %session, "Messages wait: {why}");
                }
                if keys.ring().epoch() == before {
                    pause.wait().await;
                }
            }
            Err(error) => {
                pause.note(session, "Messages wait", &error);
                pause.wait().await;
            }
        }
    }
}

fn seal_all(
    host: &Host,
    ring: &KeyRing,
    session: SessionId,
    messages: &[Outgoing],
) -> Result<Vec<AppendMessage>, String> {
    let seal_one = |message: &Outgoing| {
        let signed = Envelope::sign(session, host.owner, message.body.clone(), host.key.signing_key());
        let text = signed.and_then(|signed| signed.write()).map_err(|error| error.to_string())?;
        let sealed = seal::seal(ring, Purpose::Message(session), &text).map_err(|error| error.to_string())?;
        Ok(AppendMessage {
            content: Blob::new(sealed).map_err(|error| error.to_string())?,
            local_id: Text::new(message.local_id()).map_err(|error| error.to_string())?,
            key_epoch: Some(ring.epoch().into()),
        })
    };
    messages.iter().map(seal_one).collect()
}

/// Sends live frames. What does not arrive is made up for by the next one.
pub(crate) async fn send_frames(host: &Host, keys: &Keys, session: SessionId, frames: Vec<Frame>) -> Result<(), NoKey> {
    let ring = keys.writing_ring().await?;
    let sealed = frames.iter().filter_map(|frame| {
        let content = seal::seal_json(&ring, Purpose::LiveFrame(session), frame).ok()?;
        Some(LiveFrame { session_id: session, content: Blob::new(content).ok()? })
    });
    let sealed: Vec<LiveFrame> = sealed.collect();
    if sealed.is_empty() {
        return Ok(());
    }
    Ok(host.client.send_live_frames(sealed).await.map(drop)?)
}
