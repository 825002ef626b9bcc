//! Which commands were taken, so that none is taken twice, and how old a command may be.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use crate::body::{Content, Control};
use crate::words::ReceiptCode;

/// How far a signer's clock may be from the host's.
pub(super) const CLOCK: Duration = Duration::from_secs(5 * 60);
/// The age of a prompt.
pub(super) const PROMPT_AGE: Duration = Duration::from_secs(24 * 3_600);
/// The age of a control other than `access`.
pub(super) const CONTROL_AGE: Duration = Duration::from_secs(10 * 60);
/// A command is remembered until it would be too old in any case, by a clock that is late.
const KEPT: Duration = Duration::from_secs(24 * 3_600 + 3 * 5 * 60);
/// The commands of one person that are remembered at most. Beyond it the oldest are forgotten, and all of that person's that is
/// as old is rejected. So nobody makes the host forget what others have sent.
pub const MOST_TAKEN: usize = 4_000;
const MOST_USERS: usize = 256;

/// A command that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub user: UserId,
    pub key: String,
    pub local_id: String,
    /// By the signer's clock.
    pub at: Timestamp,
    /// By the host's clock.
    pub taken: Timestamp,
}

/// The commands of the last 24 hours.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    people: BTreeMap<UserId, Person>,
    /// What is older than this is rejected, of any person.
    lost: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct Person {
    known: HashSet<(String, String)>,
    order: VecDeque<Taken>,
    /// What is older than this is rejected.
    floor: Option<Timestamp>,
}

impl Memory {
    /// After the loss of what was remembered.
    pub fn lost(at: Timestamp) -> Self {
        Self { lost: Some(at), ..Self::default() }
    }

    /// From what the spool has kept, oldest first, with the time of the last loss.
    pub fn of_taken(taken: impl IntoIterator<Item = Taken>, lost: Option<Timestamp>) -> Self {
        let mut memory = Self { lost, ..Self::default() };
        for one in taken {
            memory.people.entry(one.user).or_default().remember(one);
        }
        memory
    }

    /// What is remembered: of each person, oldest first.
    pub fn taken(&self) -> impl Iterator<Item = &Taken> {
        self.people.values().flat_map(|person| &person.order)
    }

    /// When the memory was lost last.
    pub fn lost_at(&self) -> Option<Timestamp> {
        self.lost
    }

    /// Remembers a command, or says why it is not taken.
    pub(super) fn take(&mut self, command: &Content, one: Taken) -> Result<(), ReceiptCode> {
        let now = one.taken;
        if !self.people.contains_key(&one.user) && self.people.len() >= MOST_USERS {
            self.people.retain(|_, person| {
                person.forget(now);
                !person.order.is_empty()
            });
            if self.people.len() >= MOST_USERS {
                return Err(ReceiptCode::Busy);
            }
        }
        let person = self.people.entry(one.user).or_default();
        person.forget(now);
        if person.known.contains(&(one.key.clone(), one.local_id.clone())) {
            return Err(ReceiptCode::Repeated);
        }
        // The versions of `access` that were known are lost too.
        let is_access = matches!(command, Content::Control(Control::Access(_)));
        if is_access && self.lost.is_some_and(|lost| one.at < lost) {
            return Err(ReceiptCode::Stale);
        }
        if let Some(age) = most_age(command) {
            let is_early = one.at > now.plus(CLOCK);
            let is_late = one.at.plus(age).plus(CLOCK) < now;
            if is_early || is_late || person.floor.max(self.lost).is_some_and(|floor| one.at < floor) {
                return Err(ReceiptCode::Stale);
            }
        }
        person.remember(one);
        Ok(())
    }
}

impl Person {
    fn remember(&mut self, one: Taken) {
        if !self.known.insert((one.key.clone(), one.local_id.clone())) {
            return;
        }
        self.order.push_back(one);
        while self.order.len() > MOST_TAKEN {
            let Some(oldest) = self.order.pop_front() else { break };
            // It is forgotten before its time, so nothing that is as old is taken any more.
            self.floor = self.floor.max(Some(Timestamp::from_micros(oldest.at.micros().saturating_add(1))));
            self.known.remove(&(oldest.key, oldest.local_id));
        }
    }

    fn forget(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|oldest| now.since(oldest.taken) > KEPT) {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&(oldest.key, oldest.local_id));
            }
        }
    }
}

/// How old a command may be. An answer is bound to its request and an `access` to its version: they have no age.
fn most_age(command: &Content) -> Option<Duration> {
    match command {
        Content::Answer(_) | Content::Control(Control::Access(_)) => None,
        Content::Prompt(_) => Some(PROMPT_AGE),
        _ => Some(CONTROL_AGE),
    }
}
