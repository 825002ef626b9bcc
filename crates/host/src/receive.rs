//! Reads what people send to a session, and finds the signers.

mod marks;

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
use tokio::time::{Instant, sleep_until};

use self::marks::Marks;
use super::account::Found;
use super::core::Command;
use super::keys::{Keys, NoKey};
use super::{Host, Pause};

/// How many of the newest messages are read again after a restore. What was done is known by its id and not done twice.
pub(super) const READ_AGAIN: i64 = 1_000;

/// What has come. The next one is looked at when this one was dealt with, because it may change what people may do.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) what: What,
    pub(crate) done: oneshot::Sender<()>,
}

#[derive(Debug)]
pub(crate) enum What {
    /// The message with this `seq`: a command, or something else. All messages up to `upto` are dealt with then.
    Message { seq: i64, upto: i64, command: Option<Box<Command>> },
    /// A message waits for a key that this machine does not have.
    NoKey,
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
    let marks = Marks::new(after);
    let mut reader = Reader { host, keys, session, marks, tries: None, has_said: false, grants, received, beat };
    let mut pause = Pause::new(&reader.host);
    loop {
        // The owner may have made a new key.
        match reader.keys.refresh().await {
            Ok(seen) => {
                if let Err(why) = reader.keys.offer(&seen).await {
                    tracing::debug!(session.id = %session, "The server lacks a newer key of this session: {why}");
                }
                let last = seen.last_seq;
                if last < reader.marks.looked() {
                    reader.tries = None;
                    if let Some(after) = reader.marks.restored(last)
                        && !reader.pass_on(What::Restored { after, last }).await
                    {
                        return;
                    }
                }
                let newest = reader.keys.ring().epoch();
                if reader.marks.missing().is_some_and(|missing| newest >= missing) {
                    reader.go_back();
                }
            }
            Err(why) => tracing::debug!(session.id = %session, "No newer key: {why}"),
        }
        let end = if *runs.borrow_and_update() {
            let events = reader.host.client.follow_session(session, Some(reader.marks.looked()));
            reader.read(events, Some(&mut runs)).await
        } else {
            let client = reader.host.client.clone();
            let messages = client.messages_after(session, reader.marks.looked());
            let events = messages.map(|message| message.map(|message| SessionEvent::Message(Box::new(message))));
            reader.read(events, None).await
        };
        match end {
            End::Gone => return,
            End::Again => {}
            End::Failed(error) => {
                pause.note(session, "Commands of people cannot be read now", &error);
                pause.wait().await;
            }
            End::Over => {
                pause.reset();
                if *runs.borrow() {
                    continue;
                }
                let again = reader.tries.as_ref().map(|tries| tries.again);
                tokio::select! {
                    () = woken.notified() => reader.beat.notify_one(),
                    () = reach(again) => drop(reader.tries_key().await),
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
    /// A key that messages waited for has come.
    Again,
    /// The session is gone, or its messages are no longer wanted.
    Gone,
    Failed(Error),
}

struct Reader {
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    marks: Marks,
    /// For the key that is missing.
    tries: Option<Tries>,
    /// That a key is missing.
    has_said: bool,
    grants: watch::Receiver<Vec<AccessGrant>>,
    received: mpsc::Sender<Received>,
    /// Another process may host the session now, which the next beat shows.
    beat: Arc<Notify>,
}

/// When the server is asked for a key again.
struct Tries {
    pause: Pause,
    again: Instant,
}

/// What is inside a message.
enum Opened {
    Command(Box<Command>),
    /// No command, or an unreadable one.
    Nothing,
    /// It waits for the key of this epoch.
    Waits(u32),
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
            let again = self.tries.as_ref().map(|tries| tries.again);
            let event = tokio::select! {
                event = events.next(), if !self.marks.is_full() => event,
                () = stopped => return End::Over,
                () = reach(again) => match self.tries_key().await {
                    true => return End::Again,
                    false => continue,
                },
            };
            match event {
                Some(Ok(SessionEvent::Message(message))) if message.seq <= self.marks.looked() => {}
                Some(Ok(SessionEvent::Message(message))) => {
                    if !self.look_at(&message).await {
                        return End::Gone;
                    }
                }
                Some(Ok(SessionEvent::Changed(_))) => {
                    self.beat.notify_one();
                    // The owner may have made a new key. Without it, what is written next does not open.
                    if self.tries_key().await {
                        return End::Again;
                    }
                }
                Some(Ok(SessionEvent::Live(_))) => {}
                Some(Err(error)) if error.is_not_found() => return self.gone().await,
                Some(Err(Error::StreamEnded { reason })) if reason == DELETED => return self.gone().await,
                Some(Err(error)) => return End::Failed(error),
                None => return End::Over,
            }
        }
    }

    async fn gone(&self) -> End {
        self.pass_on(What::Gone).await;
        End::Gone
    }

    /// Deals with a message, or has it wait for its key. `false`: the receiver is gone.
    async fn look_at(&mut self, stored: &Stored) -> bool {
        let seq = stored.seq;
        let opened = if self.marks.is_judged(seq) { Opened::Nothing } else { self.open(stored).await };
        let command = match opened {
            Opened::Command(command) => Some(command),
            Opened::Nothing => None,
            Opened::Waits(epoch) => {
                self.marks.waits(seq, epoch);
                let mut pause = Pause::new(&self.host);
                let again = Instant::now() + pause.next();
                self.tries.get_or_insert(Tries { pause, again });
                return true;
            }
        };
        if !self.marks.looked_at(seq, command.is_some()) {
            return true;
        }
        self.pass_on(What::Message { seq, upto: self.marks.after(), command }).await
    }

    /// What has waited for its key is read again.
    fn go_back(&mut self) {
        self.marks.go_back();
        self.tries = None;
    }

    /// Asks for the session's newest key. Whether messages that have waited for it are to be read again.
    async fn tries_key(&mut self) -> bool {
        let Some(missing) = self.marks.missing() else {
            if let Err(why) = self.keys.refresh().await {
                tracing::debug!(session.id = %self.session, "No newer key: {why}");
            }
            return false;
        };
        if self.has_key(missing).await.is_some() {
            self.go_back();
            return true;
        }
        let Some(tries) = &mut self.tries else { return false };
        tries.again = Instant::now() + tries.pause.next();
        if !std::mem::replace(&mut self.has_said, true) {
            tracing::warn!(session.id = %self.session, "Commands wait for a key that this machine does not have yet");
            self.pass_on(What::NoKey).await;
        }
        false
    }

    /// Whether it was dealt with. `false`: the receiver is gone.
    async fn pass_on(&self, what: What) -> bool {
        let (done, is_done) = oneshot::channel();
        self.received.send(Received { what, done }).await.is_ok() && is_done.await.is_ok()
    }

    /// The command in a message. What is no command, or is not signed, is shown by clients as what it is and not answered.
    async fn open(&self, stored: &Stored) -> Opened {
        if stored.sender_machine_id.as_ref() == Some(&self.host.settings.machine) {
            return Opened::Nothing;
        }
        let Ok(epoch) = seal::epoch_of(&stored.content) else { return Opened::Nothing };
        let unseal = || seal::open(&self.keys.ring(), Purpose::Message(self.session), &stored.content);
        let opened = match unseal() {
            Err(SealError::UnknownEpoch(_)) if i64::from(epoch) <= stored.key_epoch.unwrap_or_default() => {
                let waits_already = self.marks.missing().is_some_and(|missing| epoch >= missing);
                if waits_already || self.has_key(epoch).await.is_none() {
                    return Opened::Waits(epoch);
                }
                unseal()
            }
            opened => opened,
        };
        let Ok(opened) = opened else { return Opened::Nothing };
        match self.command(stored, &opened, epoch).await {
            Some(command) => Opened::Command(Box::new(command)),
            None => Opened::Nothing,
        }
    }

    async fn command(&self, stored: &Stored, opened: &[u8], epoch: u32) -> Option<Command> {
        let envelope = Envelope::open(self.session, opened).ok()?;
        let message: Message = envelope.message().ok()?;
        if message.content.writer() != Writer::Client || message.local_id != stored.local_id {
            return None;
        }
        let grants = self.grants.borrow().clone();
        let grant = grants.iter().find(|grant| grant.user == envelope.user);
        let said = message.list.clone();
        let Found { signer, list_is_withheld, .. } =
            find_signer(&self.host, self.session, (envelope.user, &envelope.key), grant, &said).await;
        Some(Command { message, signer, epoch, list_is_withheld, key_is_missing: self.marks.missing().is_some() })
    }

    /// Whether the key of this epoch is here. `None`: it may come later.
    async fn has_key(&self, epoch: u32) -> Option<bool> {
        match self.keys.refresh().await {
            // A message whose key the server does not know cannot be read by anyone. It is not waited for: the server takes messages of
            // newer keys than it has, as after a restore, so a guest could stop the session with one.
            Ok(_) => Some(self.keys.ring().epoch() >= epoch),
            Err(NoKey::Client(error)) if error.is_not_found() => Some(false),
            // The owner's program gives it when it has made it. Its maker may be in a list that the server does not show yet.
            Err(why) => {
                tracing::debug!(session.id = %self.session, "A command waits for a key: {why}");
                None
            }
        }
    }
}

/// Finds the signer of a command, as soon as the server can be asked. `said` is the newest list that the signer knows.
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

pub(super) async fn reach(deadline: Option<Instant>) {
    match deadline {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
