//! How many things an address may make within an hour, counted before they are made: many calls at once make no more than one after
//! the other. A place in which nothing was made is given back.
//!
//! GCRA: the places of an hour are there at once, and each one that is taken is there again after its part of the hour.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::http::RateLimit;
use crate::shares::limit_address;

const HOUR: Duration = Duration::from_secs(3600);

/// The places of all addresses.
#[derive(Debug)]
pub struct Places {
    /// When all are taken, but for how long.
    none: RateLimit,
    /// How long until one that is taken is there again. Zero: there is no limit.
    refill: Duration,
    /// When all places of an address are there again.
    full_at: Mutex<HashMap<IpAddr, Instant>>,
}

impl Places {
    /// At most `most` for each address; 0: no limit. `policy` names the limit, and `counted` says what is counted, in the plural.
    pub fn per_hour(most: u32, policy: &'static str, counted: &'static str) -> Self {
        let none = RateLimit { policy, most, window: Some(HOUR), left: 0, counted, refused_for: None };
        Self { none, refill: HOUR.checked_div(most).unwrap_or_default(), full_at: Mutex::default() }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// There is none, and when the next one is there.
    pub fn take(&self, address: IpAddr) -> Result<(), RateLimit> {
        let (now, mut full_at) = (Instant::now(), self.lock());
        let at = full_at.entry(limit_address(address)).or_insert(now);
        let after = (*at).max(now) + self.refill;
        let wait = after.saturating_duration_since(now + HOUR);
        if !wait.is_zero() {
            return Err(RateLimit { refused_for: Some(wait), ..self.none });
        }
        *at = after;
        Ok(())
    }

    pub fn give_back(&self, address: IpAddr) {
        self.lock().entry(limit_address(address)).and_modify(|at| *at -= self.refill);
    }

    /// Forgets the addresses that have taken none.
    pub fn sweep(&self) {
        self.lock().retain(|_, at| *at > Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn places(most: u32) -> Places {
        Places::per_hour(most, "things", "things from one address")
    }

    fn takes(places: &Places, last: u8) -> bool {
        places.take(ip(last)).is_ok()
    }

    #[test]
    fn each_address_has_the_limit_and_no_more() {
        let places = places(2);
        assert!(takes(&places, 1) && takes(&places, 1) && !takes(&places, 1));
        assert!(takes(&places, 2));
        places.sweep();
        assert!(!takes(&places, 1), "its hour is not over");
    }

    #[test]
    fn one_that_is_given_back_is_there_again() {
        let places = places(3);
        assert!((0..3).all(|_| takes(&places, 1)) && !takes(&places, 1));
        places.give_back(ip(1));
        assert!(takes(&places, 1) && !takes(&places, 1));
    }

    #[test]
    fn one_that_is_taken_is_there_again_after_its_part_of_the_hour() {
        let places = places(2);
        assert!(takes(&places, 1) && takes(&places, 1) && !takes(&places, 1));
        let none = places.take(ip(1)).unwrap_err();
        let wait = none.refused_for.unwrap();
        assert!(wait <= HOUR / 2 && wait > HOUR / 3, "{wait:?}");
        assert_eq!(none.policy(), "\"things\";q=2;w=3600");
        places.lock().entry(ip(1)).and_modify(|at| *at -= HOUR / 2);
        assert!(takes(&places, 1) && !takes(&places, 1));
    }

    #[test]
    fn none_is_no_limit_and_addresses_are_forgotten() {
        let places = places(0);
        assert!((0..100).all(|_| takes(&places, 1)));
        places.sweep();
        assert!(places.lock().is_empty());
    }
}
