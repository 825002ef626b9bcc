//! How many streams and long-polls one caller may hold: each keeps connections and memory for as long as it lasts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::LimitKey;

/// Counts long answers by caller. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Streams {
    per_caller: usize,
    open: Mutex<HashMap<LimitKey, usize>>,
}

impl Streams {
    pub(crate) fn new(per_caller: usize) -> Arc<Self> {
        Arc::new(Self { per_caller, open: Mutex::default() })
    }

    /// Room for one more, or none.
    pub(crate) fn open(self: &Arc<Self>, caller: LimitKey) -> Option<StreamPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(caller).or_default();
        if *count >= self.per_caller {
            return None;
        }
        *count += 1;
        drop(open);
        Some(StreamPermit { streams: Arc::clone(self), caller })
    }
}

/// One long answer that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    streams: Arc<Streams>,
    caller: LimitKey,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_a_share_and_gets_it_back() {
        let streams = Streams::new(1);
        let (one, other) = (LimitKey::Address([1, 1, 1, 1].into()), LimitKey::Address([2, 2, 2, 2].into()));
        let held = streams.open(one).expect("the first fits");
        assert!(streams.open(one).is_none());
        assert!(streams.open(other).is_some());
        drop(held);
        assert!(streams.open(one).is_some());
        assert!(streams.open.lock().expect("not poisoned").is_empty(), "nothing is remembered");
    }
}
