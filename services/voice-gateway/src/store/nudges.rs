//! Tells the loops of this process that something is due earlier than they know. Only hints: the truth is in the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use tokio::sync::{Notify, mpsc};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    /// A timer is due then.
    Due(Timestamp),
    /// Something can be delivered.
    Deliver(GatewaySessionId),
}

#[derive(Clone)]
pub(crate) struct Nudges {
    /// When the timers mean to wake up, in microseconds since 1970.
    planned: Arc<AtomicI64>,
    due: Arc<Notify>,
    deliveries: mpsc::Sender<GatewaySessionId>,
}

/// Deliveries that wait for a place. One that is not told of is found by the timers' sweep.
const DELIVERIES: usize = 4_096;

impl Nudges {
    /// With the end from which deliveries are taken.
    pub(crate) fn new() -> (Self, mpsc::Receiver<GatewaySessionId>) {
        let (deliveries, taken) = mpsc::channel(DELIVERIES);
        (Self { planned: Arc::new(AtomicI64::new(i64::MAX)), due: Arc::default(), deliveries }, taken)
    }

    pub(crate) fn send(&self, nudge: Nudge) {
        match nudge {
            Nudge::Due(at) if at.micros() < self.planned.load(Ordering::SeqCst) => self.due.notify_one(),
            Nudge::Due(_) => {}
            Nudge::Deliver(id) => drop(self.deliveries.try_send(id)),
        }
    }

    /// The timers say until when they sleep.
    pub(crate) fn plan(&self, until: Timestamp) {
        self.planned.store(until.micros(), Ordering::SeqCst);
    }

    /// Completes when something is due before the plan.
    pub(crate) async fn earlier(&self) {
        self.due.notified().await;
    }
}
