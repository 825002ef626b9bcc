//! Which commands have come, so that none is taken twice and none that was rejected later, and how old a command may be.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use crate::transcript::body::{Content, Control};
use crate::transcript::words::ReceiptCode;

/// How far a signer's clock may be from the host's.
pub(super) const CLOCK: Duration = Duration::from_secs(5 * 60);
/// The age of a prompt.
pub(super) const PROMPT_AGE: Duration = Duration::from_secs(24 * 3_600);
/// The age of a control other than `access`.
pub(super) const CONTROL_AGE: Duration = Duration::from_secs(10 * 60);
/// A command is remembered until it would be too old in any case, by a clock that is late.
const KEPT: Duration = Duration::from_secs(24 * 3_600 + 3 * 5 * 60);
/// The commands of one person that are remembered at most. Beyond it the oldest are forgotten, and all of that person's that is
/// as old is rejected. So no person makes the host forget what others have sent.
pub const MOST_TAKEN: usize = 4_000;
/// Commands of one person from the future that are remembered at most: they keep their places until long after that time.
pub(super) const MOST_EARLY: usize = 100;
const MOST_USERS: usize = 256;

/// A command that got its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whose it is. `None`: its key is in no list, or there was no place for another person.
    pub user: Option<UserId>,
    pub key: String,
    pub local_id: String,
    /// By the signer's clock.
    pub at: Timestamp,
    /// By the host's clock.
    pub taken: Timestamp,
    /// Why it was not done.
    pub rejected: Option<ReceiptCode>,
}

/// The commands of the last 24 hours.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// `None`: of all keys that are in no list. They share one place, so they take none from people.
    people: BTreeMap<Option<UserId>, Person>,
    /// What is older than this is rejected, of any person.
    lost: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct Person {
    known: HashSet<(String, String)>,
    /// By the time of the signer, so that one from the future is not forgotten before it would be taken.
    order: BTreeMap<(Timestamp, String, String), Taken>,
    /// What is older than this is rejected.
    floor: Option<Timestamp>,
}

impl Memory {
    /// After the loss of what was remembered.
    pub fn lost(at: Timestamp) -> Self {
        Self { lost: Some(at), ..Self::default() }
    }

    /// From what the spool has kept, with the time of the last loss.
    pub fn of_taken(taken: impl IntoIterator<Item = Taken>, lost: Option<Timestamp>) -> Self {
        let mut memory = Self { lost, ..Self::default() };
        for one in taken {
            memory.people.entry(one.user).or_default().remember(one);
        }
        memory
    }

    /// What is remembered: of each person, oldest first.
    pub fn taken(&self) -> impl Iterator<Item = &Taken> {
        self.people.values().flat_map(|person| person.order.values())
    }

    /// Whether commands of this person can be remembered.
    pub(super) fn has_place(&mut self, user: UserId, now: Timestamp) -> bool {
        if self.people.contains_key(&Some(user)) || self.count() < MOST_USERS {
            return true;
        }
        self.people.retain(|_, person| {
            person.forget(now);
            !person.order.is_empty()
        });
        self.count() < MOST_USERS
    }

    /// Whether another command of this person from the future can be remembered. Without a bound, one device with a wrong clock, or in
    /// wrong hands, could fill all places of its person, and nothing older than those would be taken.
    pub(super) fn has_place_for_early(&self, user: UserId, now: Timestamp) -> bool {
        let first = (now.plus(CLOCK), String::new(), String::new());
        self.people.get(&Some(user)).is_none_or(|person| person.order.range(first..).count() < MOST_EARLY)
    }

    /// Whether another command of a key that is in no list can be remembered. None is forgotten before its time: there is no floor that
    /// strangers could move.
    pub(super) fn has_place_for_unknown(&mut self, now: Timestamp) -> bool {
        self.people.get_mut(&None).is_none_or(|unknown| {
            unknown.forget(now);
            unknown.order.len() < MOST_TAKEN
        })
    }

    fn count(&self) -> usize {
        self.people.keys().flatten().count()
    }

    /// Why a command is not taken: it came before, or it comes too late or too early.
    pub(super) fn check(&self, command: &Content, one: &Taken) -> Result<(), ReceiptCode> {
        let now = one.taken;
        let id = (one.key.clone(), one.local_id.clone());
        // Its key may have been in no list when it came.
        if [one.user, None].iter().any(|user| self.people.get(user).is_some_and(|person| person.known.contains(&id))) {
            return Err(ReceiptCode::Repeated);
        }
        // The versions of `access` that were known are lost too.
        let is_access = matches!(command, Content::Control(Control::Access(_)));
        if is_access && self.lost.is_some_and(|lost| one.at < lost) {
            return Err(ReceiptCode::Stale);
        }
        if let Some(age) = most_age(command) {
            let is_late = one.at.plus(age).plus(CLOCK) < now;
            let floor = self.people.get(&one.user).and_then(|person| person.floor).max(self.lost);
            if is_early(one.at, now) || is_late || floor.is_some_and(|floor| one.at < floor) {
                return Err(ReceiptCode::Stale);
            }
        }
        Ok(())
    }

    /// Remembers a command. False: it is remembered already.
    pub(super) fn remember(&mut self, one: Taken) -> bool {
        let person = self.people.entry(one.user).or_default();
        person.forget(one.taken);
        person.remember(one)
    }
}

/// Whether the time of a command is in the future.
pub(super) fn is_early(at: Timestamp, now: Timestamp) -> bool {
    at > now.plus(CLOCK)
}

impl Person {
    fn remember(&mut self, one: Taken) -> bool {
        if !self.known.insert((one.key.clone(), one.local_id.clone())) {
            return false;
        }
        self.order.insert((one.at, one.key.clone(), one.local_id.clone()), one);
        while self.order.len() > MOST_TAKEN {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            // It is forgotten before its time, so nothing that is as old is taken any more.
            self.floor = self.floor.max(Some(Timestamp::from_micros(oldest.at.micros().saturating_add(1))));
            self.known.remove(&(oldest.key, oldest.local_id));
        }
        true
    }

    fn forget(&mut self, now: Timestamp) {
        let Self { known, order, .. } = self;
        order.retain(|_, one| {
            let is_kept = now.since(one.taken.max(one.at)) <= KEPT;
            if !is_kept {
                known.remove(&(one.key.clone(), one.local_id.clone()));
            }
            is_kept
        });
    }
}

/// The time by which a command is remembered. Whatever has no age is not rejected for its time, so its signer's clock counts only
/// for the past.
pub(super) fn remembered_at(command: &Content, at: Timestamp, now: Timestamp) -> Timestamp {
    if most_age(command).is_some() { at } else { at.min(now) }
}

/// How old a command may be. An answer is bound to its request and an `access` to its version: they have no age.
fn most_age(command: &Content) -> Option<Duration> {
    match command {
        Content::Answer(_) | Content::Control(Control::Access(_)) => None,
        Content::Prompt(_) => Some(PROMPT_AGE),
        _ => Some(CONTROL_AGE),
    }
}
