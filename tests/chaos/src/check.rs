//! Whether everything that was answered can be true at once. Pure: a history and what is stored go in, faults come out, each
//! with the name of the invariant that it breaks.

use std::collections::{HashMap, HashSet};

use crate::history::{Change, Entry, History, Level, Told};

/// The log of each session, read when all was quiet again.
pub(crate) type Stored = HashMap<String, Vec<Told>>;

pub(crate) fn faults(history: &History, stored: &Stored) -> Vec<String> {
    let mut faults = history.strange.clone();
    for (session, log) in stored {
        faults.extend(check_log(session, log));
    }
    for told in &history.acknowledged {
        match kept(stored, told) {
            Some(kept) if kept == told => {}
            Some(kept) => faults.push(format!("M1/M6: acknowledged {told:?}, stored {kept:?}")),
            None => faults.push(format!("M1: acknowledged and lost: {told:?}")),
        }
    }
    for (reader, seen) in history.forwards.iter().enumerate() {
        faults.extend(check_order(reader, seen));
        faults.extend(check_seen(reader, seen, stored));
    }
    for (walk, seen) in history.backwards.iter().enumerate() {
        faults.extend(check_tiling(walk, seen));
        faults.extend(check_seen(walk, seen, stored));
    }
    for (version, winners) in history.versions.iter().filter(|(_, winners)| winners.len() > 1) {
        faults.push(format!("R1: version {version} was answered to {winners:?}"));
    }
    for (at, link) in history.links.values().enumerate() {
        if link.viewings.len() > link.max_uses {
            faults.push(format!("P1: link {at} was viewed {} times of {}", link.viewings.len(), link.max_uses));
        }
        if let Some(late) = link.viewings.iter().find(|viewing| link.dead_from.is_some_and(|dead| viewing.asked > dead))
        {
            faults.push(format!("P2: link {at} is dead from {:?} and opened at {late:?}", link.dead_from));
        }
    }
    for share in &history.shares {
        faults.extend(share.entries.iter().find_map(|entry| check_entry(entry, &share.changes)));
    }
    faults
}

fn kept<'a>(stored: &'a Stored, told: &Told) -> Option<&'a Told> {
    let place = usize::try_from(told.seq).ok()?.checked_sub(1)?;
    stored.get(&told.session)?.get(place)
}

/// M2 and M3: `seq` is 1 to n, and nothing is there twice.
fn check_log(session: &str, log: &[Told]) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut ids, mut locals) = (HashSet::new(), HashSet::new());
    for (place, message) in (1..).zip(log) {
        if message.seq != place {
            faults.push(format!("M3: {session} has seq {} in place {place}", message.seq));
            break;
        }
        if !ids.insert(&message.id) || !locals.insert(&message.local_id) {
            faults.push(format!("M2: {session} holds {} twice", message.local_id));
        }
    }
    faults
}

/// M4: who has seen a number never sees a smaller one that is new.
fn check_order(reader: usize, seen: &[Told]) -> Option<String> {
    let before = std::iter::once(0).chain(seen.iter().map(|told| told.seq));
    let (before, after) = before.zip(seen).find(|(before, told)| told.seq != before + 1)?;
    Some(format!("M4: reader {reader} saw {} after {before}", after.seq))
}

/// M5: pages from the end to the beginning tile the log, while it grows.
fn check_tiling(walk: usize, seen: &[Told]) -> Option<String> {
    let first = seen.first()?.seq;
    let wrong = (1..=first).rev().zip(seen.iter().map(|told| Some(told.seq)).chain(std::iter::repeat(None)));
    let (expected, got) = wrong.into_iter().find(|(expected, got)| Some(*expected) != *got)?;
    Some(format!("M5: walk {walk} found {got:?} where {expected} should be"))
}

/// What was seen is what is stored.
fn check_seen(reader: usize, seen: &[Told], stored: &Stored) -> Option<String> {
    let strange = seen.iter().find(|told| kept(stored, told) != Some(*told))?;
    Some(format!("M1: reader {reader} saw {strange:?}, stored is {:?}", kept(stored, strange)))
}

/// A1: nobody gets in who asks after the answer that said they no longer may, unless they may again by then.
fn check_entry(entry: &Entry, changes: &[Change]) -> Option<String> {
    // Changes follow each other, so the last one that was answered before the question decides, with all that were begun
    // after it and before the answer. One whose answer was lost may still be on its way, so it may be true at any time.
    let decided = changes.iter().rposition(|change| change.answered.is_some_and(|at| at < entry.when.asked))?;
    let begun = changes.iter().enumerate().filter(|(_, change)| change.asked <= entry.when.answered);
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

    fn told(seq: u64) -> Told {
        let local_id = format!("l{seq}");
        Told { session: S.to_owned(), id: format!("i{seq}"), seq, local_id, digest: [7; 32] }
    }

    fn log(seqs: impl IntoIterator<Item = u64>) -> Vec<Told> {
        seqs.into_iter().map(told).collect()
    }

    fn stored(log: Vec<Told>) -> Stored {
        Stored::from([(S.to_owned(), log)])
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn when(asked: u64, answered: u64) -> When {
        When { asked: at(asked), answered: at(answered) }
    }

    /// Exactly one fault, of this name.
    #[track_caller]
    fn broken(name: &str, history: &History, stored: &Stored) {
        let found = faults(history, stored);
        assert!(found.len() == 1 && found.iter().all(|fault| fault.starts_with(name)), "{name}: {found:?}");
    }

    #[test]
    fn a_true_history_has_no_faults() {
        let history = History {
            acknowledged: log([1, 3, 3, 2]),
            forwards: vec![log(1..=4), log(1..=2), Vec::new()],
            backwards: vec![log((1..=3).rev()), Vec::new()],
            versions: [(2, vec!["a".to_owned()]), (4, vec!["b".to_owned()])].into(),
            links: [("t".to_owned(), Link { max_uses: 1, viewings: vec![when(1, 4)], dead_from: Some(at(3)) })].into(),
            shares: vec![Share {
                changes: vec![
                    Change { level: Level::Edit, asked: at(1), answered: Some(at(2)) },
                    Change { level: Level::Nothing, asked: at(5), answered: Some(at(6)) },
                    Change { level: Level::View, asked: at(8), answered: None },
                    Change { level: Level::Nothing, asked: at(10), answered: Some(at(11)) },
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
        assert_eq!(faults(&history, &stored(log(1..=4))), Vec::<String>::new());
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
            |told: &mut Told| told.id = "other".to_owned(),
            |told: &mut Told| told.digest = [8; 32],
            |told: &mut Told| told.local_id = "other".to_owned(),
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
        for change in [|told: &mut Told| told.local_id = "l1".to_owned(), |told: &mut Told| told.id = "i1".to_owned()] {
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
        let mut replayed = told(2);
        replayed.local_id = "l1".to_owned();
        let history = History { acknowledged: vec![told(1), replayed], ..History::default() };
        broken("M1/M6", &history, &stored(log(1..=2)));
    }

    #[test]
    fn p1_a_link_that_was_viewed_too_often() {
        let link = Link { max_uses: 2, viewings: vec![when(1, 2); 3], dead_from: None };
        broken("P1", &History { links: [("t".to_owned(), link)].into(), ..History::default() }, &Stored::new());
    }

    #[test]
    fn p2_a_link_that_opened_after_its_end() {
        let link = Link { max_uses: 2, viewings: vec![when(1, 2), when(5, 6)], dead_from: Some(at(4)) };
        broken("P2", &History { links: [("t".to_owned(), link)].into(), ..History::default() }, &Stored::new());
    }

    #[test]
    fn a1_a_guest_who_got_in_after_the_door_was_closed() {
        let change =
            |level, asked, answered: Option<u64>| Change { level, asked: at(asked), answered: answered.map(at) };
        let revoked = vec![change(Level::Edit, 1, Some(2)), change(Level::Nothing, 3, Some(4))];
        let lowered = vec![change(Level::Edit, 1, Some(2)), change(Level::View, 3, Some(4))];
        // A grant whose answer was lost counts from its question on, not before.
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
        let strange = vec!["X1: GET / was answered 500".to_owned()];
        broken("X1", &History { strange, ..History::default() }, &Stored::new());
    }
}
