//! How much is looked at: at once, in a minute, and in bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_types::ids::UserId;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);
/// In a minute and for each person.
const MOST_LOOKS: usize = 60;
/// At once.
const MOST_AT_ONCE: usize = 4;
const MOST_OF_PERSON: usize = 2;
/// Of answers in a minute.
const MOST_BYTES: usize = 16 << 20;
const MOST_PEOPLE: usize = 256;

/// Questions that are dealt with at once, of all who are not the owner and of each of them.
const MOST_ASKED: usize = 8;
const MOST_ASKED_BY: usize = 4;

#[derive(Default)]
pub(super) struct Bounds(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    people: HashMap<UserId, Person>,
    at_once: usize,
    asking: Vec<UserId>,
    answers: VecDeque<(Instant, usize)>,
}

#[derive(Default)]
struct Person {
    looks: VecDeque<Instant>,
    at_once: usize,
}

/// One look, until it is dropped.
pub(super) struct Permit {
    counts: Arc<Mutex<Counts>>,
    user: UserId,
}

/// A question of someone who is not the owner, until it is dropped.
pub(super) struct Asking {
    counts: Arc<Mutex<Counts>>,
    user: UserId,
}

impl Bounds {
    /// `None`: it is one too many.
    pub(super) fn ask(&self, user: UserId) -> Option<Asking> {
        let asking = &mut lock(&self.0).asking;
        if asking.len() >= MOST_ASKED || asking.iter().filter(|one| **one == user).count() >= MOST_ASKED_BY {
            return None;
        }
        asking.push(user);
        Some(Asking { counts: self.0.clone(), user })
    }

    /// `None`: it is one too many.
    pub(super) fn take(&self, user: UserId) -> Option<Permit> {
        let (mut counts, now) = (lock(&self.0), Instant::now());
        let is_old = |at: &Instant| now.duration_since(*at) >= WINDOW;
        if counts.people.len() >= MOST_PEOPLE && !counts.people.contains_key(&user) {
            counts.people.retain(|_, person| person.at_once > 0 || person.looks.back().is_some_and(|at| !is_old(at)));
        }
        if counts.at_once >= MOST_AT_ONCE || counts.people.len() > MOST_PEOPLE || counts.sent(now) >= MOST_BYTES {
            return None;
        }
        let person = counts.people.entry(user).or_default();
        while person.looks.front().is_some_and(is_old) {
            person.looks.pop_front();
        }
        if person.at_once >= MOST_OF_PERSON || person.looks.len() >= MOST_LOOKS {
            return None;
        }
        person.looks.push_back(now);
        person.at_once += 1;
        counts.at_once += 1;
        Some(Permit { counts: self.0.clone(), user })
    }

    /// Counts an answer. False: it is too much now.
    pub(super) fn may_send(&self, bytes: usize) -> bool {
        let (mut counts, now) = (lock(&self.0), Instant::now());
        let is_free = counts.sent(now) + bytes <= MOST_BYTES;
        if is_free {
            counts.answers.push_back((now, bytes));
        }
        is_free
    }
}

impl Counts {
    fn sent(&mut self, now: Instant) -> usize {
        while self.answers.front().is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            self.answers.pop_front();
        }
        self.answers.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.at_once -= 1;
        if let Some(person) = counts.people.get_mut(&self.user) {
            person.at_once -= 1;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let asking = &mut lock(&self.counts).asking;
        if let Some(at) = asking.iter().position(|one| *one == self.user) {
            asking.swap_remove(at);
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_person_looks_at_two_things_at_once_and_sixty_in_a_minute() {
        let (bounds, [anna, ben, carl]) = (Bounds::default(), [(); 3].map(|()| UserId::generate()));
        let first = bounds.take(anna).unwrap();
        let _second = bounds.take(anna).unwrap();
        assert!(bounds.take(anna).is_none());
        let _of_ben = [bounds.take(ben).unwrap(), bounds.take(ben).unwrap()];
        assert!(bounds.take(carl).is_none(), "four at once on the machine");
        drop(first);
        assert!(bounds.take(carl).is_some());
        let taken = (0..100).filter(|_| bounds.take(anna).is_some()).count();
        assert_eq!(taken, MOST_LOOKS - 2);
        tokio::time::advance(WINDOW).await;
        assert!(bounds.take(anna).is_some());
    }

    #[test]
    fn those_who_only_say_who_they_are_leave_places_for_the_owner() {
        let (bounds, anna) = (Bounds::default(), UserId::generate());
        let mut asking: Vec<_> = (0..6).map_while(|_| bounds.ask(anna)).collect();
        assert_eq!(asking.len(), MOST_ASKED_BY);
        asking.extend((0..20).map_while(|_| bounds.ask(UserId::generate())));
        assert_eq!(asking.len(), MOST_ASKED);
        drop(asking);
        assert!(bounds.ask(anna).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_answers_sixteen_mebibytes_in_a_minute() {
        let bounds = Bounds::default();
        assert_eq!((0..20).filter(|_| bounds.may_send(1 << 20)).count(), 16);
        assert!(bounds.take(UserId::generate()).is_none());
        tokio::time::advance(WINDOW).await;
        assert!(bounds.may_send(1 << 20));
    }
}
