//! How far a session was read. What comes after a message that waits for its key is read as well, because it may stop the agent.

use std::collections::BTreeSet;

use super::READ_AGAIN;

/// The most commands that are judged while an earlier message waits. Then nothing more is read.
const MOST_AHEAD: usize = 4_000;

#[derive(Debug)]
pub(super) struct Marks {
    /// All messages up to this `seq` were dealt with.
    after: i64,
    /// The last message that was looked at.
    looked: i64,
    /// The epoch of the key that the first message after `after` waits for.
    missing: Option<u32>,
    /// The commands after `after` that were judged meanwhile.
    judged: BTreeSet<i64>,
}

impl Marks {
    /// For a session of which all messages up to this one were dealt with.
    pub(super) fn new(after: i64) -> Self {
        Self { after, looked: after, missing: None, judged: BTreeSet::new() }
    }

    pub(super) fn after(&self) -> i64 {
        self.after
    }

    pub(super) fn looked(&self) -> i64 {
        self.looked
    }

    /// The epoch of the key that is missing.
    pub(super) fn missing(&self) -> Option<u32> {
        self.missing
    }

    pub(super) fn is_full(&self) -> bool {
        self.missing.is_some() && self.judged.len() >= MOST_AHEAD
    }

    /// Whether a message was judged before an earlier one that had to wait.
    pub(super) fn is_judged(&self, seq: i64) -> bool {
        self.judged.contains(&seq)
    }

    /// The next message waits for the key of this epoch, as those after it that have a key as new.
    pub(super) fn waits(&mut self, seq: i64, epoch: u32) {
        self.looked = seq;
        self.missing.get_or_insert(epoch);
    }

    /// Notes that a message was looked at. Whether its session is to know of it.
    pub(super) fn looked_at(&mut self, seq: i64, is_command: bool) -> bool {
        self.looked = seq;
        if self.missing.is_none() {
            self.judged.remove(&seq);
            self.after = seq;
            return true;
        }
        is_command && self.judged.insert(seq)
    }

    /// What has waited is to be read again.
    pub(super) fn go_back(&mut self) {
        self.looked = self.after;
        self.missing = None;
    }

    /// The server was restored: it has nothing after `last`, and later messages have other numbers. Returns after which one those come
    /// again that were dealt with. `None`: it has all of them.
    pub(super) fn restored(&mut self, last: i64) -> Option<i64> {
        // People may have written before this was noticed.
        let again = (last < self.after).then(|| (last - READ_AGAIN).max(0));
        *self = Self::new(again.unwrap_or(self.after));
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_dealt_with_before_what_waits_and_nothing_twice() {
        let mut marks = Marks::new(10);
        assert!(marks.looked_at(11, true));
        marks.waits(12, 3);
        assert!(marks.looked_at(13, true), "a stop under an older key");
        assert!(!marks.looked_at(14, false), "no command");
        marks.waits(15, 4);
        assert_eq!((marks.after(), marks.looked(), marks.missing()), (11, 15, Some(3)));
        // The first of the two keys has come.
        marks.go_back();
        assert_eq!((marks.looked(), marks.missing()), (11, None));
        assert!(marks.looked_at(12, true));
        assert!(marks.is_judged(13) && marks.looked_at(13, false), "the mark moves on");
        assert!(marks.looked_at(14, false));
        marks.waits(15, 4);
        assert!(!marks.is_judged(13) && !marks.looked_at(16, false));
        assert_eq!((marks.after(), marks.looked(), marks.missing()), (14, 16, Some(4)));
    }

    #[test]
    fn what_was_judged_is_known_while_another_key_is_missing() {
        let mut marks = Marks::new(0);
        marks.waits(1, 2);
        assert!(marks.looked_at(2, true));
        marks.go_back();
        marks.waits(1, 2);
        assert!(marks.is_judged(2) && !marks.looked_at(2, false));
        assert!(marks.is_judged(2), "it is read once more when the key is there");
    }

    #[test]
    fn not_without_end_is_read_ahead() {
        let mut marks = Marks::new(0);
        marks.waits(1, 2);
        let most = i64::try_from(MOST_AHEAD).unwrap();
        assert!((2..most + 1).all(|seq| marks.looked_at(seq, true)));
        assert!(!marks.is_full());
        assert!(marks.looked_at(most + 1, true));
        assert!(marks.is_full());
        marks.go_back();
        assert!(!marks.is_full(), "they are read again, and forgotten one after the other");
    }

    #[test]
    fn a_restored_server_has_other_messages_under_the_numbers() {
        let mut marks = Marks::new(5_000);
        marks.waits(5_001, 2);
        assert!(marks.looked_at(5_002, true));
        assert_eq!(marks.restored(5_001), None, "nothing that was dealt with is lost");
        assert_eq!(
            (marks.after(), marks.looked(), marks.missing(), marks.is_judged(5_002)),
            (5_000, 5_000, None, false)
        );
        assert_eq!(marks.restored(4_000), Some(3_000));
        assert_eq!((marks.after(), marks.looked()), (3_000, 3_000));
        assert_eq!(marks.restored(200), Some(0));
    }
}
