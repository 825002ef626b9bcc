//! Sends what a session says to the server, in its order and once.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_process::disk::on_disk;
use ensemble_protocol::seal::{self, KeyRing, Purpose};
use ensemble_protocol::transcript::{Envelope, Frame};
use ensemble_types::ids::SessionId;
use ensemble_types::live::LiveFrame;
use ensemble_types::messages::AppendMessage;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use tokio::sync::{Notify, mpsc, watch};

use super::behind::{Behind, LONGEST_PAUSE, Lacks};
use super::kept::Outgoing;
use super::keys::{Keys, NoKey};
use super::receive::READ_AGAIN;
use super::shown::{self, Newest};
use super::spool::Spool;
use super::{Host, Pause};

/// Messages of one request.
const MOST_AT_ONCE: usize = 100;
/// The bytes of their bodies. A longer message goes alone.
const MOST_BYTES: usize = 512 << 10;

/// A server that has answered within this time was not restored since.
const NOT_RESTORED_WITHIN: Duration = Duration::from_secs(5);

/// Messages that are on disk and not yet at the server. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<(Mutex<VecDeque<Outgoing>>, Notify)>);

/// The results of the deliveries.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// The server has all messages up to this count.
    Upto(u64),
    /// The server was restored.
    Behind(Lacks),
    /// It has again what it lacked at this time.
    Again(Timestamp),
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

/// The session is gone, or nothing waits for the results.
struct Over;

/// Sends what one session says.
struct Sender {
    host: Arc<Host>,
    keys: Keys,
    session: SessionId,
    deliveries: mpsc::Sender<Delivered>,
    pause: Pause,
    /// What the session has written down about a server that was restored.
    behind: watch::Receiver<Option<Behind>>,
    /// The time of that when this step began. The reader may notice the same restore meanwhile.
    known: Option<Timestamp>,
    returns: watch::Receiver<()>,
    /// The server may have been restored since it was asked last.
    doubts: bool,
    /// The server has confirmed the messages up to this count.
    confirmed: u64,
    /// The one that it got last. With a count of 0 it is not known.
    newest: Newest,
    /// When the server was known to have all of them.
    answered: Timestamp,
    /// The count up to which messages were sent again, since the server was behind at this time.
    again: Option<(Timestamp, u64)>,
}

/// Sends until the session is gone. `confirmed` is the count up to which the server has had all messages, and `newest` the last of
/// them that it was seen to have.
pub(crate) async fn run(
    (host, keys, session): (Arc<Host>, Keys, SessionId),
    outbox: Outbox,
    (confirmed, newest): (u64, Newest),
    behind: watch::Receiver<Option<Behind>>,
    deliveries: mpsc::Sender<Delivered>,
) {
    let (pause, returns) = (Pause::new(&host), host.wakers.returns());
    let mut sender = Sender {
        host,
        keys,
        session,
        deliveries,
        pause,
        behind,
        known: None,
        returns,
        doubts: newest.n < confirmed,
        confirmed,
        newest,
        answered: Timestamp::from_micros(0),
        again: None,
    };
    while sender.step(&outbox).await.is_ok() {}
}

impl Sender {
    async fn step(&mut self, outbox: &Outbox) -> Result<(), Over> {
        let behind = self.behind.borrow_and_update().clone();
        self.known = behind.as_ref().map(|behind| behind.from);
        if let Some((upto, from)) = behind.and_then(|behind| Some((behind.upto?, behind.from))) {
            return self.send_again(upto, from).await;
        }
        if std::mem::take(&mut self.doubts) {
            return self.look(self.confirmed).await;
        }
        // What the server lacks cannot be seen any more when something new was sent.
        tokio::select! {
            biased;
            changed = self.returns.changed() => {
                self.doubts = true;
                changed.map_err(|_| Over)
            }
            changed = self.behind.changed() => changed.map_err(|_| Over),
            messages = outbox.next() => self.send_new(outbox, &messages).await,
        }
    }

    async fn send_new(&mut self, outbox: &Outbox, messages: &[Outgoing]) -> Result<(), Over> {
        let messages = self.keys.under_one(messages);
        let Some((first, last)) = messages.first().zip(messages.last()) else { return Ok(()) };
        if self.may_be_restored().await {
            self.doubts = true;
            return Ok(());
        }
        let Some(seqs) = self.send(messages).await? else { return Ok(()) };
        // An earlier message had this number, so what the server lacks comes late, and readers say so.
        if *seqs.start() <= self.newest.seq {
            self.look(first.n.saturating_sub(1)).await?;
        }
        (self.newest, self.confirmed, self.answered) = (got(last, &seqs), last.n, self.host.now());
        outbox.remove(last.n);
        self.tell(Delivered::Upto(last.n)).await
    }

    /// Whether the server lacks the message that it got last, or cannot be asked. Another one may have its number.
    async fn may_be_restored(&self) -> bool {
        let is_recent = self.host.now().since(self.answered) < NOT_RESTORED_WITHIN;
        !is_recent && !shown::has(&self.host, &self.keys, self.session, self.newest).await.unwrap_or(false)
    }

    /// Looks whether the server has what it has confirmed, up to this count.
    async fn look(&mut self, upto: u64) -> Result<(), Over> {
        if let Some(found) = self.newest_own(upto).await? {
            if found.n < upto {
                return self.is_behind(upto, &found).await;
            }
            self.newest = found;
        }
        self.answered = self.host.now();
        Ok(())
    }

    /// Returns when the session has written it down.
    async fn is_behind(&mut self, upto: u64, found: &Newest) -> Result<(), Over> {
        let known = self.known;
        let after = found.seq.saturating_sub(READ_AGAIN).max(0);
        self.tell(Delivered::Behind(Lacks { upto, after, last: found.last, known })).await?;
        self.behind.changed().await.map_err(|_| Over)
    }

    /// The newest own message at the server, as soon as it can be asked. `None`: it cannot be found.
    async fn newest_own(&mut self, upto: u64) -> Result<Option<Newest>, Over> {
        if upto == 0 {
            return Ok(None);
        }
        loop {
            match shown::newest_own(&self.host, &self.keys, self.session, upto).await {
                Ok(found) => return Ok(found),
                Err(error) if error.is_not_found() => return self.is_gone().await,
                Err(error) => {
                    self.pause.note(self.session, "Messages wait", &error);
                    self.pause.wait().await;
                }
            }
        }
    }

    /// Sends what the server lacks. It begins with what the server has, whenever something goes wrong.
    async fn send_again(&mut self, upto: u64, from: Timestamp) -> Result<(), Over> {
        let wait = from.since(self.host.now()).min(LONGEST_PAUSE);
        if !wait.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = self.behind.changed() => return changed.map_err(|_| Over),
            }
        }
        let found = self.newest_own(upto).await?.unwrap_or_default();
        let sent = self.again.filter(|(at, _)| *at == from).map_or(0, |(_, n)| n);
        if found.n < sent {
            return self.is_behind(upto, &found).await;
        }
        let (sessions, session) = (self.host.sessions.clone(), self.session);
        let mut history = match on_disk(move || Spool::history(&sessions, session, found.n, upto)).await {
            Ok(history) => history,
            Err(error) => return self.unread(&error).await,
        };
        let mut next = found.n + 1;
        while !self.behind.has_changed().map_err(|_| Over)? {
            let read = on_disk(move || Ok((history.next(MOST_AT_ONCE, MOST_BYTES)?, history))).await;
            let messages = match read {
                Ok((messages, rest)) => {
                    history = rest;
                    messages
                }
                Err(error) => return self.unread(&error).await,
            };
            let Some((first, last)) = messages.first().zip(messages.last()) else {
                if next <= upto {
                    tracing::warn!(session.id = %session, "Messages from {next} to {upto} are kept nowhere any more");
                }
                self.tell(Delivered::Again(from)).await?;
                return self.behind.changed().await.map_err(|_| Over);
            };
            if first.n > next {
                tracing::warn!(session.id = %session, "Messages from {next} to {} are kept nowhere any more", first.n - 1);
            }
            let Some(seqs) = self.send(&messages).await? else { return Ok(()) };
            (self.newest, self.again) = (got(last, &seqs), Some((from, last.n)));
            next = last.n + 1;
        }
        Ok(())
    }

    /// What was kept cannot be read now.
    async fn unread(&mut self, error: &std::io::Error) -> Result<(), Over> {
        self.pause.say(&format!("Session {}: what the server lacks cannot be read now: {error}", self.session));
        self.pause.wait().await;
        Ok(())
    }

    /// Sends these once. Returns the `seq` of the first and the last one. `None`: it did not work, and a pause is over.
    async fn send(&mut self, messages: &[Outgoing]) -> Result<Option<RangeInclusive<i64>>, Over> {
        let (host, session) = (self.host.clone(), self.session);
        let last = messages.last().map_or(u64::MAX, |message| message.n);
        let ring = match self.keys.ring_for(last).await {
            Ok(ring) => ring,
            Err(NoKey::Client(error)) if error.is_not_found() => return self.is_gone().await,
            Err(NoKey::Soon) => {
                self.pause.wait().await;
                return Ok(None);
            }
            Err(why) => {
                tracing::warn!(session.id = %session, "Messages wait for a new key: {why}");
                self.pause.wait().await;
                return Ok(None);
            }
        };
        let sealed = match seal_all(&host, &ring, session, messages) {
            Ok(sealed) => sealed,
            Err(why) => {
                tracing::error!(session.id = %session, "A message cannot be sealed: {why}");
                self.pause.wait().await;
                return Ok(None);
            }
        };
        let sent = match &*sealed {
            [one] => host.client.append_message(session, one).await.map(|(stored, _)| vec![stored]),
            _ => host.client.append_messages(session, sealed).await,
        };
        match sent {
            Ok(stored) => {
                self.pause.reset();
                self.keys.has_written();
                Ok(stored.first().zip(stored.last()).map(|(first, last)| first.seq..=last.seq))
            }
            Err(error) if error.is_not_found() => self.is_gone().await,
            Err(error) if error.is(Code::KeyEpochOld) => {
                let before = self.keys.ring().epoch();
                if let Err(why) = self.keys.refresh().await {
                    tracing::warn!(session.id = %session, "Messages wait: {why}");
                    self.keys.cannot_write_as(&why);
                }
                if self.keys.ring().epoch() == before {
                    self.pause.wait().await;
                }
                Ok(None)
            }
            Err(error) => {
                self.doubts = true;
                self.pause.note(session, "Messages wait", &error);
                self.pause.wait().await;
                Ok(None)
            }
        }
    }

    async fn is_gone<T>(&self) -> Result<T, Over> {
        let _ = self.deliveries.send(Delivered::Gone).await;
        Err(Over)
    }

    async fn tell(&self, what: Delivered) -> Result<(), Over> {
        self.deliveries.send(what).await.map_err(|_| Over)
    }
}

/// What the server got last.
fn got(last: &Outgoing, seqs: &RangeInclusive<i64>) -> Newest {
    Newest { n: last.n, seq: *seqs.end(), last: *seqs.end() }
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

#[cfg(test)]
pub(super) mod double;
#[cfg(test)]
mod tests;
