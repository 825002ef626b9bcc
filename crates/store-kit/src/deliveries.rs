//! Sends what transactions have stored to be sent to other programs: takes what is due, sends each in a task of its own, and has the
//! task record what became of it.
//!
//! Each is a task of its own because SQLite has one connection that writes. The connection is given to waiting callers in turn. A
//! future that waits for it and is not polled, because the loop that owns it awaits something else, would be given the connection and
//! keep it, and every writer of the service would wait.

use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{StoreError, Subscription};

/// A delivery that another replica had taken is looked for after this time, when nothing else is due.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

/// What is sent, and how.
pub trait Deliveries {
    type Delivery;
    /// What a try shows about the receiver.
    type Tried: Send + 'static;

    /// How many may be sent at once, at present.
    fn most(&self) -> usize;

    /// Takes at most `free` that are due, so that no other replica takes them for a while, and says when the next is due.
    fn take(&mut self, free: usize) -> impl Future<Output = Result<Due<Self::Delivery>, StoreError>> + Send;

    /// Sends one and records what became of it. It ends within a bounded time.
    fn send(&self, delivery: Self::Delivery) -> impl Future<Output = Self::Tried> + Send + 'static;

    /// A try has ended.
    fn note(&mut self, tried: Self::Tried);
}

/// What was taken.
pub struct Due<D> {
    pub taken: Vec<D>,
    /// How long until the next is due. `None`: nothing is stored.
    pub next: Option<Duration>,
}

/// Sends until `closing` completes, then waits for those that are being sent. `added` wakes it, and so does the time. Several replicas
/// may run it. A task that panics is forgotten: what it had taken becomes due again.
pub async fn send_all<D: Deliveries>(mut deliveries: D, mut added: Subscription, closing: impl Future<Output = ()>) {
    let mut closing = pin!(closing);
    let mut sending = JoinSet::new();
    loop {
        let free = deliveries.most().saturating_sub(sending.len());
        let wait = if free == 0 {
            LONGEST_WAIT
        } else {
            match deliveries.take(free).await {
                Ok(Due { taken, next }) => {
                    for delivery in taken {
                        sending.spawn(deliveries.send(delivery));
                    }
                    let is_full = sending.len() >= deliveries.most();
                    if is_full { LONGEST_WAIT } else { next.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT) }
                }
                Err(error) => {
                    tracing::warn!(%error, "What is due to be sent cannot be read");
                    PAUSE_AFTER_ERROR
                }
            }
        };
        tokio::select! {
            biased;
            () = &mut closing => break,
            Some(ended) = sending.join_next() => if let Ok(tried) = ended { deliveries.note(tried) },
            () = added.changed() => {}
            () = sleep(wait) => {}
        }
    }
    while sending.join_next().await.is_some() {}
}
