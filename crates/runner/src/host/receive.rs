//! Reads what people send to a session, and finds out who has signed it.

use std::pin::pin;
use std::sync::Arc;

use ensemble_client::{Error, SessionEvent};
use ensemble_protocol::seal::{self, Purpose, SealError};
use ensemble_protocol::transcript::Envelope;
use ensemble_protocol::transcript::body::Writer;
use ensemble_protocol::transcript::body::{AccessGrant, KnownList, Message};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message as Stored;
use futures_util::{Stream, StreamExt};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::account::Found;
use super::core::Command;
use super::keys::{Keys, NoKey, Seen};
use super::{Host, Pause};

/// So many of the newest messages are read again after a restore. What was done is known by its id and not done twice.
const READ_AGAIN: i64 = 1_000;

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
    /// The server has nothing after the message `last`, and had before: its database was restored. The messages after `after` come again.
    Restored { after: i64, last: i64 },
    /// The session does not exist any more.
    Gone,
}

/// Reads a session from the message after `after`, until it is gone. While its agent runs it has a stream; else it is read when the
/// account's hints name it.
pub(crate) async fn run(
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    after: i64,
    (grants, mut runs, woken, beat): (
        watch::Receiver<Vec<AccessGrant>>,
        watch::Receiver<bool>,
        Arc<Notify>,
        Arc<Notify>,
    ),
    received: mpsc::Sender<Received>,
) {
    let mut reader = Reader { host, keys, session, after, grants, received, beat };
    let mut pause = Pause::new(&reader.host);
    loop {
        // The owner may have made a new key.
        match reader.keys.refresh().await {
            Ok(Seen { last_seq: last, .. }) if last < reader.after => {
                // People may have written before this was noticed.
                let after = (last - READ_AGAIN).max(0);
                if !reader.pass_on(What::Restored { after, last }).await {
                    return;
                }
                reader.after = after;
            }
            Ok(_) => {}
            Err(why) => tracing::debug!(session.id = %session, "No newer key: {why}"),
        }
        let end = if *runs.borrow_and_update() {
            let events = reader.host.client.follow_session(session, Some(reader.after));
            reader.read(events, Some(&mut runs)).await
        } else {
            let client = reader.host.client.clone();
            let messages = client.messages_after(session, reader.after);
            let events = messages.map(|message| message.map(|message| SessionEvent::Message(Box::new(message))));
            reader.read(events, None).await
        };
        match end {
            End::Gone => return,
            End::Failed(error) => {
                pause.note(session, "Commands of people cannot be read now", &error);
                pause.wait().await;
            }
            End::Over => {
                pause.reset();
                if *runs.borrow() {
                    continue;
                }
                tokio::select! {
                    () = woken.notified() => reader.beat.notify_one(),
                    changed = runs.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
        }
    }
}

/// Why the server ends the stream of a session that was deleted.
const DELETED: &str = "session_deleted";

/// Why reading has ended.
enum End {
    /// The stream is not needed any more, or all messages were read.
    Over,
    /// The session is gone, or nobody wants its messages.
    Gone,
    Failed(Error),
}

struct Reader {
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    /// The `seq` of the last message that was dealt with.
    after: i64,
    grants: watch::Receiver<Vec<AccessGrant>>,
    received: mpsc::Sender<Received>,
    /// Another process may host the session now, which the next beat shows.
    beat: Arc<Notify>,
}

impl Reader {
    async fn read(
        &mut self,
        events: impl Stream<Item = Result<SessionEvent, Error>>,
        mut runs: Option<&mut watch::Receiver<bool>>,
    ) -> End {
        let mut events = pin!(events);
        loop {
            let stopped = async {
                match runs.as_mut() {
                    Some(runs) => drop(runs.wait_for(|runs| !runs).await),
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                event = events.next() => event,
                () = stopped => return End::Over,
            };
            let what = match event {
                Some(Ok(SessionEvent::Message(message))) if message.seq <= self.after => continue,
                Some(Ok(SessionEvent::Message(message))) => {
                    What::Message { seq: message.seq, command: self.command(&message).await.map(Box::new) }
                }
                Some(Ok(SessionEvent::Changed(_))) => {
                    self.beat.notify_one();
                    // The owner may have made a new key. Without it, what is written next does not open.
                    if let Err(why) = self.keys.refresh().await {
                        tracing::debug!(session.id = %self.session, "No newer key: {why}");
                    }
                    continue;
                }
                Some(Ok(SessionEvent::Live(_))) => continue,
                Some(Err(error)) if error.is_not_found() => What::Gone,
                Some(Err(Error::StreamEnded { reason })) if reason == DELETED => What::Gone,
                Some(Err(error)) => return End::Failed(error),
                None => return End::Over,
            };
            let seq = match &what {
                What::Message { seq, .. } => Some(*seq),
                What::Restored { .. } | What::Gone => None,
            };
            if !self.pass_on(what).await {
                return End::Gone;
            }
            match seq {
                Some(seq) => self.after = seq,
                None => return End::Gone,
            }
        }
    }

    /// Whether it was dealt with. `false`: nobody wants it.
    async fn pass_on(&self, what: What) -> bool {
        let (done, is_done) = oneshot::channel();
        self.received.send(Received { what, done }).await.is_ok() && is_done.await.is_ok()
    }

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
        let said = message.list.clone();
        let Found { signer, list_is_withheld } =
            find_signer(&self.host, self.session, (envelope.user, &envelope.key), grant, &said).await;
        Some(Command { message, signer, epoch, list_is_withheld })
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
                        Ok(_) if self.keys.ring().epoch() >= epoch => {}
                        // The server says that there is no such key, so nobody can read it.
                        Ok(_) => return None,
                        Err(NoKey::List(error)) => {
                            pause.note(self.session, "A command waits for the owner's device list", &error);
                            pause.wait().await;
                        }
                        Err(NoKey::Client(error)) if is_for_now(&error) => {
                            pause.note(self.session, "A command waits for a key", &error);
                            pause.wait().await;
                        }
                        // The owner's program gives it when it has made it.
                        Err(NoKey::NotGiven) => {
                            pause.say("A command waits for the session's new key");
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

/// Finds who has signed a command, as soon as the server can be asked. `said` is the newest list that the signer knows.
pub(crate) async fn find_signer(
    host: &Host,
    session: SessionId,
    who: (UserId, &str),
    grant: Option<&AccessGrant>,
    said: &KnownList,
) -> Found {
    let mut pause = Pause::new(host);
    loop {
        match host.lists.signer(who, grant, said).await {
            Ok(found) => return found,
            Err(error) => {
                pause.note(session, "A command waits until its signer is known", &error);
                pause.wait().await;
            }
        }
    }
}

/// Whether trying again may help.
fn is_for_now(error: &Error) -> bool {
    !error.is_not_found()
}
