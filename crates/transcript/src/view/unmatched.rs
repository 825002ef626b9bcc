//! What later messages have said about earlier ones that are not shown. It is kept for when they are loaded.

use std::collections::VecDeque;

use crate::body::{Receipt, Resolved};

/// Of each kind.
const MOST: usize = 1_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Unmatched {
    pub(super) resolved: VecDeque<Resolved>,
    pub(super) receipts: VecDeque<Receipt>,
}

impl Unmatched {
    pub(super) fn resolved(&mut self, resolved: Resolved) {
        self.resolved.push_back(resolved);
        if self.resolved.len() > MOST {
            self.resolved.pop_front();
        }
    }

    pub(super) fn receipt(&mut self, receipt: Receipt) {
        self.receipts.push_back(receipt);
        if self.receipts.len() > MOST {
            self.receipts.pop_front();
        }
    }
}
