//! How much one client may hold at the same time: connections of an address, streams, long-polls and uploads of a caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts what each holder has open, and what all of them have. Shared by all threads.
#[derive(Debug)]
pub struct Shares<K> {
    limit: usize,
    total: usize,
    open: Mutex<Open<K>>,
}

#[derive(Debug)]
struct Open<K> {
    all: usize,
    by_holder: HashMap<K, usize>,
}

/// One thing that counts until this is dropped.
#[derive(Debug)]
pub struct Share<K: Eq + Hash> {
    shares: Arc<Shares<K>>,
    holder: K,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// `limit` for one holder, `total` for all together.
    pub fn new(limit: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { limit, total, open: Mutex::new(Open { all: 0, by_holder: HashMap::new() }) })
    }

    /// How much one holder may have.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// One more for this holder, or nothing when it, or all together, have what they may have.
    pub fn take(self: &Arc<Self>, holder: K) -> Option<Share<K>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.by_holder.get(&holder).copied().unwrap_or(0);
        if count >= self.limit || open.all >= self.total {
            return None;
        }
        open.by_holder.insert(holder, count + 1);
        open.all += 1;
        drop(open);
        Some(Share { shares: Arc::clone(self), holder })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut open = self.shares.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all -= 1;
        if let Some(count) = open.by_holder.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                open.by_holder.remove(&self.holder);
            }
        }
    }
}

/// What one household or machine is counted as: an IPv4 address, or the /64 that IPv6 gives to one link.
pub fn limit_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_counted_by_link() {
        let address: IpAddr = "2001:db8:1:2:3:4:5:6".parse().expect("an address");
        assert_eq!(limit_address(address).to_string(), "2001:db8:1:2::");
    }

    #[test]
    fn ipv4_is_counted_by_address() {
        for text in ["1.2.3.4", "::ffff:1.2.3.4"] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(limit_address(address).to_string(), "1.2.3.4");
        }
    }

    #[test]
    fn each_holder_has_a_share_and_gets_it_back() {
        let shares = Shares::new(2, 3);
        let held = (shares.take("one"), shares.take("one"));
        assert!(held.0.is_some() && held.1.is_some());
        assert!(shares.take("one").is_none());
        let other = shares.take("other");
        assert!(other.is_some());
        assert!(shares.take("third").is_none(), "all together have what they may have");
        drop((held, other));
        assert!(shares.take("one").is_some());
        let open = shares.open.lock().expect("not poisoned");
        assert!(open.all == 0 && open.by_holder.is_empty(), "nothing is remembered");
    }
}
