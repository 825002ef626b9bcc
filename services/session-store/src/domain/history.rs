//! Windows of a history, and the bounds of a page.

/// The most content that a page of the history holds.
pub(crate) const PAGE_BYTES: i64 = 4 << 20;

/// Messages with `after < seq < before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) after: Option<i64>,
    pub(crate) before: Option<i64>,
    pub(crate) limit: i64,
    /// The most content. One message is always part of the page, however long it is.
    pub(crate) bytes: i64,
}

/// The messages of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lowest: i64,
    pub(crate) highest: i64,
    /// The length of their contents.
    pub(crate) bytes: i64,
}

/// The bounds of a page, as cursors for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageBounds {
    pub(crate) has_more: bool,
    pub(crate) next_before: Option<i64>,
    pub(crate) next_after: Option<i64>,
}

impl Window {
    /// With `after`, a page starts at the oldest message of the window; otherwise at the newest.
    pub(crate) fn ascending(self) -> bool {
        self.after.is_some()
    }

    /// The messages that fit on one page. `sizes` holds the `seq` and content length of each message, in page order.
    pub(crate) fn fit(self, sizes: &[(i64, i32)]) -> Option<Extent> {
        let (&(first, size), more) = sizes.split_first()?;
        let (mut last, mut bytes) = (first, i64::from(size));
        for (seq, size) in more {
            let longer = bytes + i64::from(*size);
            if longer > self.bytes {
                break;
            }
            (last, bytes) = (*seq, longer);
        }
        Some(Extent { lowest: first.min(last), highest: first.max(last), bytes })
    }

    /// The window as an inclusive range of `seq`.
    pub(crate) fn range(self) -> (i64, i64) {
        let first = self.after.unwrap_or(0).saturating_add(1);
        let last = self.before.map_or(i64::MAX, |before| before.saturating_sub(1));
        (first, last)
    }

    /// `page` holds the lowest and highest `seq` of the page. `seq` has no gaps, so they show what the page leaves out.
    pub(crate) fn bounds(self, page: Option<(i64, i64)>, last_seq: i64) -> PageBounds {
        let (first, last) = self.range();
        match page {
            Some((lowest, highest)) => PageBounds {
                has_more: if self.ascending() { highest < last.min(last_seq) } else { lowest > first },
                next_before: (lowest > 1).then_some(lowest),
                next_after: Some(highest),
            },
            // An empty window says nothing about the history; an empty page of any other window means that there is none.
            None => {
                let next_after = self.after.unwrap_or(if last < first { last_seq } else { 0 });
                PageBounds { has_more: false, next_before: None, next_after: Some(next_after) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(
        after: Option<i64>,
        before: Option<i64>,
        page: Option<(i64, i64)>,
        last: i64,
    ) -> (bool, Option<i64>, Option<i64>) {
        let bounds = Window { after, before, limit: 10, bytes: PAGE_BYTES }.bounds(page, last);
        (bounds.has_more, bounds.next_before, bounds.next_after)
    }

    #[test]
    fn bounds_show_what_a_page_leaves_out() {
        assert_eq!(bounds(None, None, Some((91, 100)), 100), (true, Some(91), Some(100)));
        assert_eq!(bounds(None, Some(11), Some((1, 10)), 100), (false, None, Some(10)));
        assert_eq!(bounds(Some(90), None, Some((91, 100)), 100), (false, Some(91), Some(100)));
        assert_eq!(bounds(Some(80), None, Some((81, 90)), 100), (true, Some(81), Some(90)));
        assert_eq!(bounds(Some(80), Some(91), Some((81, 90)), 100), (false, Some(81), Some(90)));
        assert_eq!(bounds(Some(100), None, None, 100), (false, None, Some(100)));
        assert_eq!(bounds(None, None, None, 0), (false, None, Some(0)));
        assert_eq!(bounds(None, Some(1), None, 100), (false, None, Some(100)));
    }

    #[test]
    fn a_page_holds_whole_messages_up_to_its_size() {
        let window = Window { after: None, before: None, limit: 10, bytes: 100 };
        assert_eq!(window.fit(&[]), None);
        let extent = |lowest, highest, bytes| Some(Extent { lowest, highest, bytes });
        assert_eq!(window.fit(&[(5, 50), (6, 50), (7, 1)]), extent(5, 6, 100));
        assert_eq!(window.fit(&[(7, 50), (6, 1), (5, 50)]), extent(6, 7, 51));
        assert_eq!(window.fit(&[(7, 101), (6, 1)]), extent(7, 7, 101), "a long message is alone");
    }

    #[test]
    fn a_message_stored_after_an_empty_page_is_not_skipped() {
        // `last_seq` is read after the page.
        assert_eq!(bounds(None, None, None, 1), (false, None, Some(0)));
        assert_eq!(bounds(None, Some(5), None, 1), (false, None, Some(0)));
    }

    #[test]
    fn extreme_windows_do_not_overflow() {
        let window = Window { after: Some(i64::MAX), before: Some(i64::MIN), limit: 1, bytes: 1 };
        assert_eq!(window.range(), (i64::MAX, i64::MIN));
    }
}
