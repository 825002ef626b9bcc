//! How many connections there may be, in all and from one address.
//!
//! What is too much is closed at once: an answer would cost more than the attacker's next try.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::client_address::{Network, counted_as};

/// Counts connections. Shared by all threads.
#[derive(Debug)]
pub struct Admission {
    limits: AdmissionLimits,
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug)]
pub struct AdmissionLimits {
    pub in_all: usize,
    pub per_address: usize,
    /// Proxies before the edge carry the connections of many; they count in all only.
    pub trusted: Vec<Network>,
}

#[derive(Debug, Default)]
struct Counts {
    in_all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Admission {
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Room for one more connection from `peer`, or none.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Permit> {
        let address = (!self.limits.trusted.iter().any(|network| network.contains(peer))).then(|| counted_as(peer));
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.in_all >= self.limits.in_all {
            return None;
        }
        if let Some(address) = address {
            let count = counts.by_address.entry(address).or_default();
            if *count >= self.limits.per_address {
                return None;
            }
            *count += 1;
        }
        counts.in_all += 1;
        drop(counts);
        Some(Permit { admission: Arc::clone(self), address })
    }

    /// The connections that are open.
    pub fn open(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).in_all
    }
}

/// One connection that is counted until this is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.in_all -= 1;
        if let Some(address) = self.address
            && let Some(count) = counts.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        let admission = Admission::new(AdmissionLimits { in_all: 4, per_address: 2, trusted });
        let first = admission.admit(ip("1.1.1.1"));
        let _second = admission.admit(ip("1.1.1.1")).expect("the second fits");
        assert!(admission.admit(ip("1.1.1.1")).is_none());
        drop(first);
        let _third = admission.admit(ip("1.1.1.1")).expect("one was given back");
        let _proxy = [admission.admit(ip("10.0.0.1")), admission.admit(ip("10.0.0.1"))];
        assert_eq!(admission.open(), 4);
        assert!(admission.admit(ip("2.2.2.2")).is_none(), "full in all");
    }

    #[test]
    fn nothing_is_remembered_of_who_has_gone() {
        let admission = Admission::new(AdmissionLimits { in_all: 10, per_address: 2, trusted: Vec::new() });
        drop(admission.admit(ip("2001:db8::1")));
        assert!(admission.counts.lock().expect("not poisoned").by_address.is_empty());
        assert_eq!(admission.open(), 0);
    }
}
