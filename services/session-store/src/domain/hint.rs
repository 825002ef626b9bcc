//! Hints that wait for a reader: the newest for each id, within a bound. And how often there is one for an id.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

use ensemble_types::hints::{Hint, HintKind};

/// The most bytes of hints that wait for a reader.
const MOST_BYTES: usize = 64 << 10;
/// What a hint takes besides its id.
const HINT_BYTES: usize = 64;
/// Between two hints for one id.
const EVERY: Duration = Duration::from_secs(1);
/// How long a subject waits for others, so that they are looked up together.
const GATHER: Duration = Duration::from_millis(20);
/// The most ids that wait for the end of [`EVERY`], and as many that are remembered.
const MOST_SUBJECTS: usize = 10_000;

/// The hints that a reader has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    revisions: HashMap<(HintKind, String), i64>,
    order: VecDeque<(HintKind, String)>,
    bytes: usize,
    /// There were too many, so that one stands for all.
    any: bool,
}

impl Waiting {
    pub(crate) fn add(&mut self, kind: HintKind, id: &str, revision: i64) {
        if self.any {
            return;
        }
        let key = (kind, id.to_owned());
        if let Some(known) = self.revisions.get_mut(&key) {
            *known = revision.max(*known);
            return;
        }
        self.bytes += HINT_BYTES + id.len();
        if self.bytes > MOST_BYTES {
            return self.add_any();
        }
        self.order.push_back(key.clone());
        self.revisions.insert(key, revision);
    }

    /// Some hints are missing, and one takes the place of all.
    pub(crate) fn add_any(&mut self) {
        *self = Self { any: true, ..Self::default() };
    }

    /// The oldest hint.
    pub(crate) fn take(&mut self) -> Option<Hint> {
        if std::mem::take(&mut self.any) {
            return Some(Hint::ANY);
        }
        let key = self.order.pop_front()?;
        let revision = self.revisions.remove(&key);
        let (kind, id) = key;
        self.bytes = self.bytes.saturating_sub(HINT_BYTES + id.len());
        Some(Hint { kind, id: Some(id), revision })
    }
}

/// Lets each subject pass almost at once, and again after [`EVERY`].
#[derive(Debug)]
pub(crate) struct Pacer<S> {
    /// When a subject passes, and what with.
    due: HashMap<S, (Instant, i64)>,
    order: BTreeSet<(Instant, S)>,
    /// When a subject has passed, and what with.
    passed: HashMap<S, (Instant, i64)>,
}

impl<S> Default for Pacer<S> {
    fn default() -> Self {
        Self { due: HashMap::new(), order: BTreeSet::new(), passed: HashMap::new() }
    }
}

impl<S: Clone + Ord + Hash> Pacer<S> {
    /// Adds a subject. What has passed already is left out: every replica of another service sends its hints. A subject
    /// without revisions gives 0. False when there are too many, and all of them were forgotten.
    pub(crate) fn add(&mut self, subject: S, revision: i64, now: Instant) -> bool {
        if let Some((_, known)) = self.due.get_mut(&subject) {
            *known = revision.max(*known);
            return true;
        }
        if revision > 0 && self.passed.get(&subject).is_some_and(|(_, passed)| revision <= *passed) {
            return true;
        }
        if self.due.len() >= MOST_SUBJECTS {
            *self = Self::default();
            return false;
        }
        let soon = now + GATHER;
        let at = self.passed.get(&subject).map_or(soon, |(last, _)| (*last + EVERY).max(soon));
        self.order.insert((at, subject.clone()));
        self.due.insert(subject, (at, revision));
        true
    }

    /// When the next subject passes.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The subjects that pass now.
    pub(crate) fn pass(&mut self, now: Instant) -> Vec<(S, i64)> {
        self.passed.retain(|_, (at, _)| now.saturating_duration_since(*at) < EVERY);
        if self.passed.len() > MOST_SUBJECTS {
            self.passed.clear();
        }
        let mut passing = Vec::new();
        while self.order.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, subject)) = self.order.pop_first()
        {
            if let Some((_, revision)) = self.due.remove(&subject) {
                self.passed.insert(subject.clone(), (now, revision));
                passing.push((subject, revision));
            }
        }
        passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_hint_for_an_id_takes_the_place_of_the_others() {
        let mut waiting = Waiting::default();
        for (kind, id, revision) in [
            (HintKind::Session, "a", 1),
            (HintKind::Run, "a", 5),
            (HintKind::Session, "a", 3),
            (HintKind::Session, "a", 2),
        ] {
            waiting.add(kind, id, revision);
        }
        let taken: Vec<Hint> = std::iter::from_fn(|| waiting.take()).collect();
        let hint = |kind, revision| Hint { kind, id: Some("a".to_owned()), revision: Some(revision) };
        assert_eq!(taken, [hint(HintKind::Session, 3), hint(HintKind::Run, 5)]);
        assert_eq!(waiting.bytes, 0);
    }

    #[test]
    fn hints_that_are_not_taken_become_one() {
        let mut waiting = Waiting::default();
        let id = |n: usize| format!("{n:036}");
        let fits = MOST_BYTES / (HINT_BYTES + 36);
        (0..fits).for_each(|n| waiting.add(HintKind::Session, &id(n), 1));
        assert_eq!(waiting.order.len(), fits);
        waiting.add(HintKind::Session, &id(fits), 1);
        waiting.add(HintKind::Session, "later", 1);
        assert_eq!(waiting.take(), Some(Hint::ANY));
        assert_eq!(waiting.take(), None);
        waiting.add(HintKind::Session, "after", 1);
        assert_eq!(waiting.take().and_then(|hint| hint.id).as_deref(), Some("after"));
    }

    #[test]
    fn a_subject_passes_at_once_and_then_once_a_second() {
        let (mut pacer, start) = (Pacer::default(), Instant::now());
        let after = |ms: u64| start + Duration::from_millis(ms);
        assert!(pacer.add("a", 1, start));
        assert_eq!(pacer.pass(after(19)), []);
        assert_eq!(pacer.pass(after(20)), [("a", 1)]);
        pacer.add("a", 1, after(25));
        assert_eq!(pacer.next_due(), None, "the same change again");
        pacer.add("a", 2, after(30));
        pacer.add("b", 7, after(40));
        pacer.add("a", 4, after(50));
        pacer.add("a", 3, after(55));
        assert_eq!(pacer.next_due(), Some(after(60)));
        assert_eq!(pacer.pass(after(70)), [("b", 7)]);
        assert_eq!(pacer.next_due(), Some(after(1_020)));
        assert_eq!(pacer.pass(after(1_019)), []);
        assert_eq!(pacer.pass(after(1_020)), [("a", 4)]);
        assert_eq!(pacer.next_due(), None);
        pacer.add("a", 5, after(2_500));
        assert_eq!(pacer.pass(after(2_520)), [("a", 5)]);
    }

    #[test]
    fn a_pacer_has_a_limit_of_subjects() {
        let (mut pacer, now) = (Pacer::default(), Instant::now());
        assert!((0..MOST_SUBJECTS).all(|n| pacer.add(n, 1, now)));
        assert!(!pacer.add(MOST_SUBJECTS, 1, now));
        assert!(pacer.pass(now + EVERY).is_empty());
    }
}
