//! Reads what people send to a session, and finds out who has signed it.

use std::pin::pin;
use std::sync::Arc;

use ensemble_client::seal::{self, Purpose, SealError};
use ensemble_client::{Error, SessionEvent};
use ensemble_transcript::Envelope;
use ensemble_transcript::body::Writer;
use ensemble_transcript::body::{AccessGrant, Message};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::Message as Stored;
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};

use super::core::Command;
use super::keys::Keys;
use super::{Host, Pause};

/// What has come. The next one is looked at when this one was dealt with, because it may change what people may do.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) what: What,
    pub(crate) done: oneshot::Sender<()>,
}

#[derive(Debug)]
pub(crate) enum What {
    /// The message with this `seq`: a command, or something that is none.
    Message { seq: i64, command: Option<Box<Command>> },
    /// The session does not exist any more.
    Gone,
}

/// Reads a session from the message after `after`, until it is gone.
pub(crate) async fn run(
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    after: i64,
    grants: watch::Receiver<Vec<AccessGrant>>,
    received: mpsc::Sender<Received>,
) {
    let reader = Reader { host, keys, session, grants };
    let (mut after, mut pause) = (after, Pause::new(&reader.host));
    loop {
        let mut events = pin!(reader.host.client.follow_session(session, Some(after)));
        while let Some(event) = events.next().await {
            let what = match event {
                Ok(SessionEvent::Message(message)) => {
                    pause.reset();
                    if message.seq <= after {
                        continue;
                    }
                    after = message.seq;
                    What::Message { seq: message.seq, command: reader.command(&message).await.map(Box::new) }
                }
                Ok(SessionEvent::Changed(_)) => {
                    // The owner may have made a new key. Without it, what is written next does not open.
                    if let Err(why) = reader.keys.refresh().await {
                        tracing::debug!(session.id = %session, "No newer key: {why}");
                    }
                    continue;
                }
                Ok(SessionEvent::Live(_)) => continue,
                Err(error) if error.is_not_found() => What::Gone,
                Err(error) => {
                    pause.note(session, "Commands of people cannot be read now", &error);
                    break;
                }
            };
            let is_gone = matches!(what, What::Gone);
            let (done, is_done) = oneshot::channel();
            if received.send(Received { what, done }).await.is_err() || is_done.await.is_err() || is_gone {
                return;
            }
        }
        pause.wait().await;
    }
}

struct Reader {
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    grants: watch::Receiver<Vec<AccessGrant>>,
}

impl Reader {
    /// The command in a message. Whatever is none, or is not signed, is shown by clients as what it is and not answered.
    async fn command(&self, stored: &Stored) -> Option<Command> {
        if stored.sender_machine_id.as_ref() == Some(&self.host.config.machine) {
            return None;
        }
        let (opened, epoch) = self.open(stored).await?;
        let envelope = Envelope::open(self.session, &opened).ok()?;
        let message: Message = envelope.message().ok()?;
        if message.content.writer() != Writer::Client || message.local_id != stored.local_id {
            return None;
        }
        let grants = self.grants.borrow().clone();
        let grant = grants.iter().find(|grant| grant.user == envelope.user);
        let mut pause = Pause::new(&self.host);
        loop {
            match self.host.lists.signer(envelope.user, &envelope.key, grant).await {
                Ok(signer) => return Some(Command { message, signer, epoch }),
                Err(error) => {
                    pause.note(self.session, "A command waits until its signer is known", &error);
                    pause.wait().await;
                }
            }
        }
    }

    async fn open(&self, stored: &Stored) -> Option<(Vec<u8>, u32)> {
        let epoch = seal::epoch_of(&stored.content).ok()?;
        let mut pause = Pause::new(&self.host);
        loop {
            let opened = seal::open(&self.keys.ring(), Purpose::Message(self.session), &stored.content);
            match opened {
                Ok(opened) => return Some((opened, epoch)),
                Err(SealError::UnknownEpoch(_)) if i64::from(epoch) <= stored.key_epoch.unwrap_or_default() => {
                    match self.keys.refresh().await {
                        Ok(()) if self.keys.ring().epoch() >= epoch => {}
                        // The server says that there is no such key, so nobody can read it.
                        Ok(()) => return None,
                        Err(super::keys::NoKey::Client(error)) if is_for_now(&error) => {
                            pause.note(self.session, "A command waits for a key", &error);
                            pause.wait().await;
                        }
                        Err(why) => {
                            tracing::warn!(session.id = %self.session, "A command is left out: {why}");
                            return None;
                        }
                    }
                }
                Err(_) => return None,
            }
        }
    }
}

/// Whether trying again may help.
fn is_for_now(error: &Error) -> bool {
    !error.is_not_found()
}
