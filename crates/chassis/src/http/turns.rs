//! Turns: how many large requests are worked on at once, in all and for each sender. So callers take turns however many
//! requests they send.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_types::problem::{Code, Problem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::budget::Sender;

/// How long a request waits for its turn. The edge waits 10 s for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(6);

/// The places where large requests are worked on. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Places>);

#[derive(Debug)]
struct Places {
    longest_wait: Duration,
    each: usize,
    all: Arc<Semaphore>,
    of_sender: Mutex<HashMap<Sender, Arc<Semaphore>>>,
}

/// A sender's turn, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_sender: Place,
}

/// One of a sender's places. The last one that is left removes the sender from the map.
#[derive(Debug)]
struct Place {
    turns: Turns,
    sender: Sender,
    places: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// `each` requests of a sender, `all` of all senders.
    pub(super) fn new(each: usize, all: usize) -> Self {
        Self::with_longest_wait(each, all, LONGEST_WAIT)
    }

    fn with_longest_wait(each: usize, all: usize, longest_wait: Duration) -> Self {
        let all = Arc::new(Semaphore::new(all.max(1)));
        Self(Arc::new(Places { longest_wait, each, all, of_sender: Mutex::default() }))
    }

    /// Waits until it is the sender's turn and a place is free. Those who wait are served in the order in which they came.
    ///
    /// # Errors
    /// 503 when that took too long.
    pub(super) async fn take(&self, sender: Sender) -> Result<Turn, Problem> {
        let busy = || Problem::new(Code::Unavailable, "The service has too many large requests.").with_retry_after(2);
        timeout(self.0.longest_wait, self.wait(sender)).await.map_err(|_| busy())?.ok_or_else(busy)
    }

    /// One of the sender's places, and then one of all.
    pub(super) async fn wait(&self, sender: Sender) -> Option<Turn> {
        let places = {
            let mut of_sender = self.0.of_sender.lock().unwrap_or_else(PoisonError::into_inner);
            let places = of_sender.entry(sender.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.0.each)));
            Arc::clone(places)
        };
        let mut of_sender = Place { turns: self.clone(), sender, places: Some(Arc::clone(&places)), permit: None };
        of_sender.permit = Some(places.acquire_owned().await.ok()?);
        Some(Turn { _of_all: Arc::clone(&self.0.all).acquire_owned().await.ok()?, _of_sender: of_sender })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of_sender = self.turns.0.of_sender.lock().unwrap_or_else(PoisonError::into_inner);
        self.permit = None;
        self.places = None;
        if of_sender.get(&self.sender).is_some_and(|places| Arc::strong_count(places) == 1) {
            of_sender.remove(&self.sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(last: u8) -> Sender {
        Sender::Address(Some([10, 0, 0, last].into()))
    }

    #[tokio::test]
    async fn a_sender_has_its_turns_and_others_do_not_wait_for_it() {
        let turns = Turns::with_longest_wait(1, 2, Duration::from_millis(10));
        let first = turns.take(sender(1)).await.unwrap();
        assert_eq!(turns.take(sender(1)).await.unwrap_err().code, Code::Unavailable);
        let other = turns.take(sender(2)).await.unwrap();
        assert_eq!(turns.take(sender(3)).await.unwrap_err().code, Code::Unavailable, "all places are taken");
        drop(first);
        turns.take(sender(1)).await.unwrap();
        drop(other);
        assert!(turns.0.of_sender.lock().unwrap().is_empty(), "nothing is remembered");
    }
}
