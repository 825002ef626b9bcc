//! Checks whether all responses are consistent with each other and with the stored data. A pure function: it returns
//! the violations, each with the name of its invariant.

use std::collections::{HashMap, HashSet};

use crate::history::{Change, Entry, History, Level, Message};

/// The log of each session, read after the end of the load.
pub(crate) type Stored = HashMap<String, Vec<Message>>;

pub(crate) fn violations(history: &History, stored: &Stored) -> Vec<String> {
    let mut violations = history.unexpected.clone();
    for (session, log) in stored {
        violations.extend(check_log(session, log));
    }
    for message in &history.acknowledged {
        match stored_copy(stored, message) {
            Some(stored_copy) if stored_copy == message => {}
            Some(stored_copy) => violations.push(format!("M1/M6: acknowledged {message:?}, stored {stored_copy:?}")),
            None => violations.push(format!("M1: acknowledged and lost: {message:?}")),
        }
    }
    for (reader, seen) in history.forwards.iter().enumerate() {
        violations.extend(check_order(reader, seen));
        violations.extend(check_seen(reader, seen, stored));
    }
    for (walk, seen) in history.backwards.iter().enumerate() {
        violations.extend(check_tiling(walk, seen));
        violations.extend(check_seen(walk, seen, stored));
    }
    for (version, winners) in history.versions.iter().filter(|(_, winners)| winners.len() > 1) {
        violations.push(format!("R1: version {version} was answered to {winners:?}"));
    }
    for (at, link) in history.links.values().enumerate() {
        if link.views.len() > link.max_uses {
            violations.push(format!("P1: link {at} was viewed {} times of {}", link.views.len(), link.max_uses));
        }
        if let Some(late) = link.views.iter().find(|view| link.dead_from.is_some_and(|dead| view.sent > dead)) {
            violations.push(format!("P2: link {at} is dead from {:?} and opened at {late:?}", link.dead_from));
        }
    }
    for share in &history.shares {
        violations.extend(share.entries.iter().find_map(|entry| check_entry(entry, &share.changes)));
    }
    violations
}

fn stored_copy<'a>(stored: &'a Stored, message: &Message) -> Option<&'a Message> {
    let place = usize::try_from(message.seq).ok()?.checked_sub(1)?;
    stored.get(&message.session)?.get(place)
}

/// M2 and M3: `seq` is 1 to n, and no message is stored twice.
fn check_log(session: &str, log: &[Message]) -> Vec<String> {
    let mut violations = Vec::new();
    let (mut ids, mut locals) = (HashSet::new(), HashSet::new());
    for (place, message) in (1..).zip(log) {
        if message.seq != place {
            violations.push(format!("M3: {session} has seq {} in place {place}", message.seq));
            break;
        }
        if !ids.insert(&message.id) || !locals.insert(&message.local_id) {
            violations.push(format!("M2: {session} holds {} twice", message.local_id));
        }
    }
    violations
}

/// M4: a reader never sees a new message with a smaller number than one that it has seen.
fn check_order(reader: usize, seen: &[Message]) -> Option<String> {
    let before = std::iter::once(0).chain(seen.iter().map(|message| message.seq));
    let (before, after) = before.zip(seen).find(|(before, message)| message.seq != before + 1)?;
    Some(format!("M4: reader {reader} saw {} after {before}", after.seq))
}

/// M5: pages from the end to the beginning cover the log without gaps while it grows.
fn check_tiling(walk: usize, seen: &[Message]) -> Option<String> {
    let first = seen.first()?.seq;
    let wrong = (1..=first).rev().zip(seen.iter().map(|message| Some(message.seq)).chain(std::iter::repeat(None)));
    let (expected, got) = wrong.into_iter().find(|(expected, got)| Some(*expected) != *got)?;
    Some(format!("M5: walk {walk} found {got:?} where {expected} should be"))
}

/// Every message that a reader saw is stored.
fn check_seen(reader: usize, seen: &[Message], stored: &Stored) -> Option<String> {
    let unexpected = seen.iter().find(|message| stored_copy(stored, message) != Some(*message))?;
    Some(format!("M1: reader {reader} saw {unexpected:?}, stored is {:?}", stored_copy(stored, unexpected)))
}

/// A1: no action succeeds after the response that removed the access, unless access was granted again.
fn check_entry(entry: &Entry, changes: &[Change]) -> Option<String> {
    // Changes are sequential. The last one that was answered before the action began decides, together with all that
    // began later and before the action ended. A change without an answer can take effect at any time.
    let decided = changes.iter().rposition(|change| change.answered.is_some_and(|at| at < entry.when.sent))?;
    let begun = changes.iter().enumerate().filter(|(_, change)| change.sent <= entry.when.answered);
    let possible = begun.filter(|(place, change)| *place >= decided || change.answered.is_none());
    let may_be = possible.map(|(_, change)| change.level).max().unwrap_or(Level::Nothing);
    (may_be < entry.needs)
        .then(|| format!("A1: {:?} succeeded at {:?}, allowed was {may_be:?}", entry.needs, entry.when))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::{Link, Share, When};

    const S: &str = "s";

    fn message(seq: u64) -> Message {
        let local_id = format!("l{seq}");
        Message { session: S.to_owned(), id: format!("i{seq}"), seq, local_id, digest: [7; 32] }
    }

    fn log(seqs: impl IntoIterator<Item = u64>) -> Vec<Message> {
        seqs.into_iter().map(message).collect()
    }

    fn stored(log: Vec<Message>) -> Stored {
        Stored::from([(S.to_owned(), log)])
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn when(sent: u64, answered: u64) -> When {
        When { sent: at(sent), answered: at(answered) }
    }

    /// Expects exactly one violation with this name.
    #[track_caller]
    fn broken(name: &str, history: &History, stored: &Stored) {
        let found = violations(history, stored);
        assert!(found.len() == 1 && found.iter().all(|violation| violation.starts_with(name)), "{name}: {found:?}");
    }

    #[test]
    fn a_true_history_has_no_faults() {
        let history = History {
            acknowledged: log([1, 3, 3, 2]),
            forwards: vec![log(1..=4), log(1..=2), Vec::new()],
            backwards: vec![log((1..=3).rev()), Vec::new()],
            versions: [(2, vec!["a".to_owned()]), (4, vec!["b".to_owned()])].into(),
            links: [("t".to_owned(), Link { max_uses: 1, views: vec![when(1, 4)], dead_from: Some(at(3)) })].into(),
            shares: vec![Share {
                changes: vec![
                    Change { level: Level::Edit, sent: at(1), answered: Some(at(2)) },
                    Change { level: Level::Nothing, sent: at(5), answered: Some(at(6)) },
                    Change { level: Level::View, sent: at(8), answered: None },
                    Change { level: Level::Nothing, sent: at(10), answered: Some(at(11)) },
                ],
                entries: vec![
                    Entry { needs: Level::Edit, when: when(3, 4) },
                    Entry { needs: Level::Edit, when: when(4, 9) },
                    Entry { needs: Level::View, when: when(7, 9) },
                    Entry { needs: Level::View, when: when(12, 13) },
                ],
            }],
            ..History::default()
        };
        assert_eq!(violations(&history, &stored(log(1..=4))), Vec::<String>::new());
    }

    #[test]
    fn m1_a_message_that_was_acknowledged_and_is_not_there() {
        let history = History { acknowledged: log([3]), ..History::default() };
        broken("M1: acknowledged and lost", &history, &stored(log(1..=2)));
        broken("M1: acknowledged and lost", &history, &Stored::new());
    }

    #[test]
    fn m1_a_message_that_was_acknowledged_and_is_another() {
        for change in [
            |message: &mut Message| message.id = "other".to_owned(),
            |message: &mut Message| message.digest = [8; 32],
            |message: &mut Message| message.local_id = "other".to_owned(),
        ] {
            let mut acknowledged = log([2]);
            acknowledged.iter_mut().for_each(change);
            broken("M1/M6", &History { acknowledged, ..History::default() }, &stored(log(1..=2)));
        }
    }

    #[test]
    fn m1_a_message_that_was_read_and_is_not_there() {
        let history = History { forwards: vec![log(1..=3)], ..History::default() };
        broken("M1: reader", &history, &stored(log(1..=2)));
    }

    #[test]
    fn m2_a_name_or_an_id_that_is_there_twice() {
        for change in [
            |message: &mut Message| message.local_id = "l1".to_owned(),
            |message: &mut Message| message.id = "i1".to_owned(),
        ] {
            let mut log = log(1..=3);
            log.last_mut().map(change).unwrap();
            broken("M2", &History::default(), &stored(log));
        }
    }

    #[test]
    fn m3_a_gap_or_a_repetition_in_the_numbers() {
        broken("M3", &History::default(), &stored(log([1, 2, 4])));
        broken("M3", &History::default(), &stored(log([2, 3])));
        broken("M3", &History::default(), &stored(log([1, 2, 2])));
    }

    #[test]
    fn m4_a_number_that_was_passed_over() {
        for seqs in [vec![1, 3], vec![2], vec![1, 2, 1]] {
            broken("M4", &History { forwards: vec![log(seqs)], ..History::default() }, &stored(log(1..=3)));
        }
    }

    #[test]
    fn m5_pages_that_overlap_leave_something_out_or_end_early() {
        for seqs in [vec![3, 1], vec![3, 2, 2, 1], vec![3, 2]] {
            broken("M5", &History { backwards: vec![log(seqs)], ..History::default() }, &stored(log(1..=3)));
        }
    }

    #[test]
    fn m6_a_replay_that_was_stored_a_second_time() {
        let mut replayed = message(2);
        replayed.local_id = "l1".to_owned();
        let history = History { acknowledged: vec![message(1), replayed], ..History::default() };
        broken("M1/M6", &history, &stored(log(1..=2)));
    }

    #[test]
    fn p1_a_link_that_was_viewed_too_often() {
        let link = Link { max_uses: 2, views: vec![when(1, 2); 3], dead_from: None };
        broken("P1", &History { links: [("t".to_owned(), link)].into(), ..History::default() }, &Stored::new());
    }

    #[test]
    fn p2_a_link_that_opened_after_its_end() {
        let link = Link { max_uses: 2, views: vec![when(1, 2), when(5, 6)], dead_from: Some(at(4)) };
        broken("P2", &History { links: [("t".to_owned(), link)].into(), ..History::default() }, &Stored::new());
    }

    #[test]
    fn a1_a_guest_who_got_in_after_the_door_was_closed() {
        let change = |level, sent, answered: Option<u64>| Change { level, sent: at(sent), answered: answered.map(at) };
        let revoked = vec![change(Level::Edit, 1, Some(2)), change(Level::Nothing, 3, Some(4))];
        let lowered = vec![change(Level::Edit, 1, Some(2)), change(Level::View, 3, Some(4))];
        // A grant without an answer counts from its request on, not earlier.
        let later = vec![change(Level::Nothing, 1, Some(2)), change(Level::Edit, 9, None)];
        for (changes, needs) in [(revoked, Level::View), (lowered, Level::Edit), (later, Level::View)] {
            let entries = vec![Entry { needs, when: when(5, 6) }];
            let shares = vec![Share { changes, entries }];
            broken("A1", &History { shares, ..History::default() }, &Stored::new());
        }
    }

    #[test]
    fn r1_two_winners_of_one_version() {
        let versions = [(2, vec!["a".to_owned(), "b".to_owned()])].into();
        broken("R1", &History { versions, ..History::default() }, &Stored::new());
    }

    #[test]
    fn x1_what_a_client_found_strange_is_a_fault() {
        let unexpected = vec!["X1: GET / was answered 500".to_owned()];
        broken("X1", &History { unexpected, ..History::default() }, &Stored::new());
    }
}
