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
const MOST_USERS: usize = 256;

/// The times of the last commands of each person.
#[derive(Clone, Debug, Default)]
pub struct Limits(BTreeMap<UserId, Recent>);

#[derive(Clone, Debug, Default)]
struct Recent {
    commands: VecDeque<Timestamp>,
    interrupts: VecDeque<Timestamp>,
}

impl Limits {
    /// Counts a command. False: it is one too many.
    pub(super) fn take(&mut self, user: UserId, is_interrupt: bool, now: Timestamp) -> bool {
        if self.0.len() >= MOST_USERS && !self.0.contains_key(&user) {
            self.0.retain(|_, recent| recent.commands.back().is_some_and(|last| now.since(*last) < WINDOW));
            if self.0.len() >= MOST_USERS {
                return false;
            }
        }
        let recent = self.0.entry(user).or_default();
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
}

fn forget(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    // After a step of the clock backwards the times are in the future; they must not last for ever.
    while times.front().is_some_and(|first| now.since(*first) >= WINDOW || first.since(now) >= WINDOW) {
        times.pop_front();
    }
}
