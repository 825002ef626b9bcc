//! Which part of a history is asked for, and how a page says where it ends.

/// A page never gets longer than this in contents, but for its first message.
pub(crate) const PAGE_BYTES: i64 = 4 << 20;

/// Messages with `after < seq < before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) after: Option<i64>,
    pub(crate) before: Option<i64>,
    pub(crate) limit: i64,
}

/// Where a page ends, and what lies beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) has_more: bool,
    pub(crate) next_before: Option<i64>,
    pub(crate) next_after: Option<i64>,
}

impl Window {
    /// With `after`, reading goes forwards; else it begins with the newest.
    pub(crate) fn ascending(self) -> bool {
        self.after.is_some()
    }

    /// The bounds as a closed range of numbers that can be.
    pub(crate) fn range(self) -> (i64, i64) {
        let first = self.after.unwrap_or(0).saturating_add(1);
        let last = self.before.map_or(i64::MAX, |before| before.saturating_sub(1));
        (first, last)
    }

    /// `seq` has no gaps, so the numbers of a page tell what is not on it. `page` holds its lowest and highest `seq`.
    pub(crate) fn ends(self, page: Option<(i64, i64)>, last_seq: i64) -> Ends {
        let (first, last) = self.range();
        match page {
            Some((lowest, highest)) => Ends {
                has_more: if self.ascending() { highest < last.min(last_seq) } else { lowest > first },
                next_before: (lowest > 1).then_some(lowest),
                next_after: Some(highest),
            },
            None => Ends { has_more: false, next_before: None, next_after: Some(self.after.unwrap_or(last_seq)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(
        after: Option<i64>,
        before: Option<i64>,
        page: Option<(i64, i64)>,
        last: i64,
    ) -> (bool, Option<i64>, Option<i64>) {
        let ends = Window { after, before, limit: 10 }.ends(page, last);
        (ends.has_more, ends.next_before, ends.next_after)
    }

    #[test]
    fn a_page_knows_what_lies_beyond() {
        assert_eq!(ends(None, None, Some((91, 100)), 100), (true, Some(91), Some(100)));
        assert_eq!(ends(None, Some(11), Some((1, 10)), 100), (false, None, Some(10)));
        assert_eq!(ends(Some(90), None, Some((91, 100)), 100), (false, Some(91), Some(100)));
        assert_eq!(ends(Some(80), None, Some((81, 90)), 100), (true, Some(81), Some(90)));
        assert_eq!(ends(Some(80), Some(91), Some((81, 90)), 100), (false, Some(81), Some(90)));
        assert_eq!(ends(Some(100), None, None, 100), (false, None, Some(100)));
        assert_eq!(ends(None, None, None, 0), (false, None, Some(0)));
    }

    #[test]
    fn bounds_at_the_edge_of_numbers_do_not_overflow() {
        let window = Window { after: Some(i64::MAX), before: Some(i64::MIN), limit: 1 };
        assert_eq!(window.range(), (i64::MAX, i64::MIN));
    }
}
