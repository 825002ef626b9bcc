//! Queues inside this process, from operations to the loops of `workers/`. What is lost here is found in the database or
//! at LiveKit: by the timers' sweep and by the reconciler.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use tokio::sync::{Notify, mpsc};

/// Entries of each queue. Further ones are dropped.
const CAPACITY: usize = 4_096;

/// The receiving ends.
pub(crate) struct Receivers {
    pub(crate) deliveries: mpsc::Receiver<GatewaySessionId>,
    pub(crate) started_rooms: mpsc::Receiver<String>,
}

/// Wakes the timers and the delivery loop.
#[derive(Clone)]
pub(crate) struct Wakeups {
    /// When the timers plan to wake up, in microseconds since 1970.
    planned: Arc<AtomicI64>,
    earlier: Arc<Notify>,
    deliveries: mpsc::Sender<GatewaySessionId>,
}

/// Names of rooms that LiveKit has started, or that may exist without a session.
#[derive(Clone)]
pub(crate) struct StartedRooms(mpsc::Sender<String>);

pub(crate) fn queues() -> (Wakeups, StartedRooms, Receivers) {
    let (delivery, deliveries) = mpsc::channel(CAPACITY);
    let (started, started_rooms) = mpsc::channel(CAPACITY);
    let wakeups =
        Wakeups { planned: Arc::new(AtomicI64::new(i64::MAX)), earlier: Arc::default(), deliveries: delivery };
    (wakeups, StartedRooms(started), Receivers { deliveries, started_rooms })
}

impl Wakeups {
    /// A deadline was set.
    pub(crate) fn due(&self, at: Timestamp) {
        if at.micros() < self.planned.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Something can be delivered in this session.
    pub(crate) fn deliver(&self, id: GatewaySessionId) {
        if self.deliveries.try_send(id).is_err() {
            tracing::debug!(voice.session = %id, "The delivery queue is full; the timers deliver later");
        }
    }

    /// Sets until when the timers sleep.
    pub(crate) fn plan(&self, until: Timestamp) {
        self.planned.store(until.micros(), Ordering::SeqCst);
    }

    /// Completes when a deadline before the plan was set.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

impl StartedRooms {
    pub(crate) fn report(&self, room: String) {
        if self.0.try_send(room).is_err() {
            tracing::debug!("The queue of started rooms is full; the reconciler checks the room");
        }
    }
}
