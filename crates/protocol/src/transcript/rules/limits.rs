//! How many commands a person may send in a minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

const WINDOW: Duration = Duration::from_secs(60);
/// Commands a minute and person.
pub(super) const MOST_COMMANDS: usize = 30;
/// Interrupts among them.
pub(super) const MOST_INTERRUPTS: usize = 5;
/// Commands a minute of all keys together that are in no list.
pub(super) const MOST_UNKNOWN: usize = 10;
const MOST_USERS: usize = 256;

/// The times of the last commands of each person.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    people: BTreeMap<UserId, Recent>,
    /// Of keys that are in no list.
    unknown: VecDeque<Timestamp>,
}

#[derive(Clone, Debug, Default)]
struct Recent {
    commands: VecDeque<Timestamp>,
    interrupts: VecDeque<Timestamp>,
}

impl Limits {
    /// Counts a command. False: it is one too many.
    pub(super) fn take(&mut self, user: UserId, is_interrupt: bool, now: Timestamp) -> bool {
        if self.people.len() >= MOST_USERS && !self.people.contains_key(&user) {
            self.people.retain(|_, recent| recent.commands.back().is_some_and(|last| now.since(*last) < WINDOW));
            if self.people.len() >= MOST_USERS {
                return false;
            }
        }
        let recent = self.people.entry(user).or_default();
        forget(&mut recent.commands, now);
        forget(&mut recent.interrupts, now);
        let is_free =
            recent.commands.len() < MOST_COMMANDS && (!is_interrupt || recent.interrupts.len() < MOST_INTERRUPTS);
        if is_free {
            recent.commands.push_back(now);
            if is_interrupt {
                recent.interrupts.push_back(now);
            }
        }
        is_free
    }

    /// Counts a command of a key that is in no list. False: it is one too many.
    pub(super) fn take_unknown(&mut self, now: Timestamp) -> bool {
        forget(&mut self.unknown, now);
        let is_free = self.unknown.len() < MOST_UNKNOWN;
        if is_free {
            self.unknown.push_back(now);
        }
        is_free
    }
}

fn forget(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    // After a step of the clock backwards the times are in the future; they must not last for ever.
    while times.front().is_some_and(|first| now.since(*first) >= WINDOW || first.since(now) >= WINDOW) {
        times.pop_front();
    }
}
