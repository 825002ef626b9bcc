//! How many bytes of request bodies a service holds at once, in all and for one caller.
//!
//! The first [`FREE`] bytes of a body are not counted, so that short requests are served while others send large bodies.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::{HttpMessage, HttpRequest};
use ensemble_types::ids::UserId;

use crate::auth::Caller;
use crate::entrance::last_hop;

/// What is buffered of every body without being counted. Bodies of callers that are not known are no longer.
pub(super) const FREE: usize = 64 << 10;
/// The share of one caller.
const SHARE: usize = 4;

/// Who sends a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Account(UserId),
    /// A caller without a token, by its address as the edge reports it.
    Address(Option<IpAddr>),
}

/// The bytes that a service may hold, shared by all its requests.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_sender: HashMap<Sender, usize>,
}

/// The bytes that one request holds, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: BodyBudget,
    sender: Sender,
    received: usize,
    counted: usize,
}

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent;

impl Sender {
    pub(crate) fn of(request: &HttpRequest) -> Self {
        if let Some(caller) = request.extensions().get::<Caller>() {
            return Self::Account(caller.user);
        }
        Self::Address(last_hop(request.headers()).or_else(|| request.peer_addr().map(|address| address.ip())))
    }
}

impl BodyBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Budget { limit, held: Mutex::default() }))
    }

    pub(crate) fn reserve(&self, sender: Sender) -> Reservation {
        Reservation { budget: self.clone(), sender, received: 0, counted: 0 }
    }

    /// Bytes that are counted at the moment.
    pub(crate) fn held(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Counts `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Spent> {
        self.received += bytes;
        let more = self.received.saturating_sub(FREE) - self.counted;
        if more == 0 {
            return Ok(());
        }
        let limit = self.budget.0.limit;
        let mut held = self.budget.lock();
        let of_sender = held.by_sender.get(&self.sender).copied().unwrap_or(0) + more;
        if held.all + more > limit || of_sender > limit / SHARE {
            return Err(Spent);
        }
        held.all += more;
        held.by_sender.insert(self.sender.clone(), of_sender);
        drop(held);
        self.counted += more;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.counted == 0 {
            return;
        }
        let mut held = self.budget.lock();
        held.all -= self.counted;
        if let Some(of_sender) = held.by_sender.get_mut(&self.sender) {
            *of_sender -= self.counted;
            if *of_sender == 0 {
                held.by_sender.remove(&self.sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use ensemble_types::ids::TokenId;
    use ensemble_types::time::Timestamp;

    use super::*;

    fn sender(last: u8) -> Sender {
        Sender::Address(Some([10, 0, 0, last].into()))
    }

    #[test]
    fn one_sender_has_a_quarter_and_all_together_the_whole() {
        let budget = BodyBudget::new(1_000_000);
        let mut first = budget.reserve(sender(1));
        first.grow(FREE).unwrap();
        assert_eq!(budget.held(), 0, "the beginning is free");
        first.grow(250_000).unwrap();
        let mut again = budget.reserve(sender(1));
        again.grow(FREE).unwrap();
        assert_eq!(again.grow(1), Err(Spent), "a quarter");
        let others: Vec<_> = (2..=4)
            .map(|last| {
                let mut other = budget.reserve(sender(last));
                other.grow(FREE + 250_000).unwrap();
                other
            })
            .collect();
        let mut late = budget.reserve(sender(9));
        assert_eq!(late.grow(FREE + 1), Err(Spent), "the whole");
        drop(others);
        late.grow(1).unwrap();
        drop((first, again, late));
        assert_eq!(budget.held(), 0);
        assert!(budget.lock().by_sender.is_empty());
    }

    #[test]
    fn a_sender_is_the_account_or_the_last_address_that_the_edge_reports() {
        let peer = "10.9.9.9:80".parse().unwrap();
        let of = |forwarded: &str| {
            let request = TestRequest::get().peer_addr(peer).insert_header(("x-forwarded-for", forwarded));
            Sender::of(&request.to_http_request())
        };
        assert_eq!(of("10.0.0.1"), sender(1));
        assert_eq!(of("1.1.1.1, 10.0.0.2"), sender(2), "a client can write the first ones");
        assert_eq!(of("nonsense"), Sender::Address(Some([10, 9, 9, 9].into())));
        let unknown = TestRequest::get().to_http_request();
        assert_eq!(Sender::of(&unknown), Sender::Address(None));
        let caller = Caller {
            user: UserId::generate(),
            machine: None,
            device: None,
            is_recovery: false,
            token: TokenId::generate(),
            expires_at: Timestamp::from_unix_seconds(0),
        };
        unknown.extensions_mut().insert(caller.clone());
        assert_eq!(Sender::of(&unknown), Sender::Account(caller.user));
    }

    #[test]
    fn a_request_that_was_refused_gives_back_what_it_held() {
        let budget = BodyBudget::new(1_000);
        let mut first = budget.reserve(sender(1));
        first.grow(65_536 + 100).unwrap();
        first.grow(50).unwrap();
        assert_eq!(budget.held(), 150);
        assert_eq!(first.grow(101), Err(Spent));
        assert_eq!(budget.held(), 150);
        let other = budget.reserve(sender(1));
        drop(other);
        assert_eq!(budget.held(), 150, "what held nothing gives nothing back");
        let mut second = budget.reserve(sender(1));
        second.grow(FREE + 100).unwrap();
        drop(first);
        assert_eq!(budget.held(), 100);
        assert_eq!(budget.lock().by_sender.get(&sender(1)), Some(&100));
    }
}
