//! How much one client may hold at the same time: connections of an address, streams and long-polls of a caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts what each holder has open. Shared by all threads.
#[derive(Debug)]
pub struct Shares<K> {
    limit: usize,
    open: Mutex<HashMap<K, usize>>,
}

/// One thing that counts until this is dropped.
#[derive(Debug)]
pub struct Share<K: Eq + Hash> {
    shares: Arc<Shares<K>>,
    holder: K,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// One more for this holder, or nothing when it has all it may have.
    pub fn take(self: &Arc<Self>, holder: K) -> Option<Share<K>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(holder).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        drop(open);
        Some(Share { shares: Arc::clone(self), holder })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_a_share_and_gets_it_back() {
        let shares = Shares::new(2);
        let held = (shares.take("one"), shares.take("one"));
        assert!(held.0.is_some() && held.1.is_some());
        assert!(shares.take("one").is_none());
        assert!(shares.take("other").is_some());
        drop(held);
        assert!(shares.take("one").is_some());
        assert!(shares.open.lock().expect("not poisoned").is_empty(), "nothing is remembered");
    }
}
