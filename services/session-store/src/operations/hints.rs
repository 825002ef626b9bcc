//! Hints for the readers of an account, on this replica. Every replica is notified of each change of a session (`session:…`) and of
//! each other hint (`hint:…`), and works out for whom of its own readers it is.
//!
//! A hint is not the truth and may be lost: a reader that reconnects reads its lists again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ensemble_store_kit::{Db, Published, Topic, hints};
use ensemble_types::hints::{AccountHint, Hint, HintKind};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::looks::LookAsked;
use tokio::sync::Notify;

use super::SESSION_TOPICS;
use crate::domain::access::{Access, Actor};
use crate::domain::hint::{Pacer, Waiting};
use crate::domain::look::Asked;
use crate::error::Error;
use crate::store;

/// The most looks that wait for a stream.
const MOST_LOOKS: usize = 32;

/// The readers on this replica. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct HintReaders(Arc<Mutex<HashMap<UserId, Vec<Arc<Mailbox>>>>>);

/// The hints for one reader.
struct Mailbox {
    reader: Actor,
    waiting: Mutex<Waiting>,
    looks: Mutex<VecDeque<LookAsked>>,
    added: Notify,
}

/// A reader of the hints of an account; or of a machine's own sessions, and of its owner's devices.
pub(crate) struct HintReader {
    mailbox: Arc<Mailbox>,
    readers: HintReaders,
}

/// What there may be a hint about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    /// Whose it is has to be looked up.
    Session(SessionId),
    /// A thing of a user, and of the user's machine that made it, if one did.
    Of { user: UserId, machine: Option<String>, kind: HintKind, id: String },
}

/// The hints that were not given yet, because there was one for the same subject a moment ago.
pub(crate) type Subjects = Pacer<Subject>;

/// A hint for one user, and for a machine of the user. It is published after the commit, to every replica.
pub(super) fn hint_topic(user: UserId, machine: Option<&str>, kind: HintKind, id: SessionId, revision: i64) -> Topic {
    let machine = machine.map(ToOwned::to_owned);
    hints::topic(&AccountHint { user, machine, kind, id: id.to_string(), revision })
}

/// Gives hints of other services to the readers on every replica.
pub(crate) fn publish(db: &Db, given: &[AccountHint]) {
    db.notifier().publish(given.iter().map(hints::topic));
}

impl HintReaders {
    /// Begins to read.
    pub(crate) fn open(&self, reader: Actor) -> HintReader {
        let user = reader.user;
        let mailbox =
            Arc::new(Mailbox { reader, waiting: Mutex::default(), looks: Mutex::default(), added: Notify::new() });
        self.lock().entry(user).or_default().push(Arc::clone(&mailbox));
        HintReader { mailbox, readers: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, Vec<Arc<Mailbox>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn of(&self, user: UserId) -> Vec<Arc<Mailbox>> {
        self.lock().get(&user).cloned().unwrap_or_default()
    }

    /// Whether this machine of the user reads here.
    pub(super) fn has_machine(&self, owner: UserId, machine: &str) -> bool {
        self.lock().get(&owner).is_some_and(|of_user| of_user.iter().any(|mailbox| mailbox.is_of(machine)))
    }

    /// Gives a look to the newest stream of its machine: an older one may be dead. One that does not read misses it.
    pub(super) fn give_look(&self, asked: Asked) {
        let machine = asked.whose.machine.clone();
        let readers = self.of(asked.whose.owner);
        let Some(newest) = readers.iter().rev().find(|mailbox| mailbox.is_of(machine.as_str())) else { return };
        let mut looks = newest.looks();
        if looks.len() < MOST_LOOKS {
            looks.push_back(asked.event());
            newest.added.notify_one();
        }
    }

    fn add_any_to_all(&self) {
        for mailbox in self.lock().values().flatten() {
            mailbox.change(Waiting::add_any);
        }
    }
}

impl Mailbox {
    fn is_of(&self, machine: &str) -> bool {
        self.reader.machine.as_ref().is_some_and(|reading| reading.as_str() == machine)
    }

    fn looks(&self) -> MutexGuard<'_, VecDeque<LookAsked>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.added.notify_one();
    }
}

impl HintReader {
    pub(crate) fn take(&self) -> Option<Hint> {
        self.mailbox.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn take_look(&self) -> Option<LookAsked> {
        self.mailbox.looks().pop_front()
    }

    /// Completes when there may be a hint or a look.
    pub(crate) async fn added(&self) {
        self.mailbox.added.notified().await;
    }
}

impl Drop for HintReader {
    fn drop(&mut self) {
        let mut readers = self.readers.lock();
        let user = self.mailbox.reader.user;
        if let Some(of_user) = readers.get_mut(&user) {
            of_user.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if of_user.is_empty() {
                readers.remove(&user);
            }
        }
    }
}

/// Notes what was published.
pub(crate) fn note(readers: &HintReaders, subjects: &mut Subjects, published: &Published) {
    let topic = match published {
        _ if readers.is_empty() => return,
        Published::Any => return readers.add_any_to_all(),
        Published::Topic(topic) => topic,
    };
    if let Some((subject, revision)) = subject(topic)
        && !subjects.add(subject, revision, Instant::now())
    {
        readers.add_any_to_all();
    }
}

fn subject(topic: &Topic) -> Option<(Subject, i64)> {
    if topic.kind() == SESSION_TOPICS {
        return Some((Subject::Session(topic.id().parse().ok()?), 0));
    }
    let AccountHint { user, machine, kind, id, revision } = hints::read(topic)?;
    Some((Subject::Of { user, machine, kind, id }, revision))
}

/// Gives the hints that are due.
pub(crate) async fn give(db: &Db, readers: &HintReaders, subjects: &mut Subjects) -> Result<(), Error> {
    let mut sessions = BTreeSet::new();
    for (subject, revision) in subjects.pass(Instant::now()) {
        match subject {
            Subject::Session(session) => drop(sessions.insert(session)),
            Subject::Of { user, machine, kind, id } => {
                // A machine obeys the devices of its owner, and gives keys to them.
                let is_for = |reader: &Actor| {
                    kind == HintKind::Device
                        || reader.machine.as_ref().is_none_or(|reading| machine.as_deref() == Some(reading.as_str()))
                };
                for mailbox in readers.of(user).iter().filter(|mailbox| is_for(&mailbox.reader)) {
                    mailbox.change(|waiting| waiting.add(kind, &id, revision));
                }
            }
        }
    }
    if sessions.is_empty() || readers.is_empty() {
        return Ok(());
    }
    let changed =
        db.read("find whom hints are for", move |c| Ok::<_, Error>(store::hints::changed(c, &sessions)?)).await;
    match changed {
        Ok(changed) => changed.iter().for_each(|changed| give_session(readers, changed)),
        // It is not known whom these were for.
        Err(error) => {
            readers.add_any_to_all();
            return Err(error);
        }
    }
    Ok(())
}

fn give_session(readers: &HintReaders, changed: &store::hints::Changed) {
    for user in std::iter::once(&changed.owner).chain(changed.levels.keys()) {
        for mailbox in readers.of(*user) {
            let level = changed.levels.get(user).copied();
            if Access::of(changed.ownership(), &mailbox.reader, level).is_ok() {
                mailbox.change(|waiting| waiting.add(HintKind::Session, &changed.id.to_string(), changed.revision));
            }
        }
    }
}
