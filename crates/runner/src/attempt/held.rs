//! The leases that this runner holds: their last heartbeats, and the orders about them.
//!
//! A machine that has slept comes back with leases that ran out. As long as no other runner has their tasks, a heartbeat renews
//! them. So the runner asks for new work only when the server has answered about every lease that it holds; otherwise it could be given
//! its own tasks a second time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ensemble_host::wake::wall_clock;
use ensemble_types::ids::LeaseId;
use tokio::sync::{Notify, watch};

/// Shared by the attempts and by the request for work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<State>);

#[derive(Debug, Default)]
struct State {
    leases: Mutex<HashMap<LeaseId, Entry>>,
    /// Notified when a heartbeat was answered or a lease was given up.
    changed: Notify,
}

#[derive(Debug)]
struct Entry {
    beaten_at: SystemTime,
    cancel: watch::Sender<bool>,
}

/// A lease that is held until this is dropped.
#[derive(Debug)]
pub(super) struct Holding {
    held: Held,
    lease: LeaseId,
    cancel: watch::Receiver<bool>,
}

impl Held {
    pub(super) fn hold(&self, lease: LeaseId) -> Holding {
        let (cancel, ordered) = watch::channel(false);
        self.lock().insert(lease, Entry { beaten_at: wall_clock(), cancel });
        Holding { held: self.clone(), lease, cancel: ordered }
    }

    /// How many leases are held.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.lock().len()).unwrap_or(u32::MAX)
    }

    /// Tells the attempt to end. An order about a lease that is not held comes too late.
    pub(crate) fn cancel(&self, lease: LeaseId) {
        if let Some(entry) = self.lock().get(&lease) {
            let _ = entry.cancel.send(true);
        }
    }

    /// Whether a lease was not renewed for this long, by the clock that counts sleep, too.
    pub(crate) fn any_late(&self, than: Duration) -> bool {
        let now = wall_clock();
        // A clock that was set back says nothing about the lease, so it counts as late.
        self.lock().values().any(|entry| now.duration_since(entry.beaten_at).map_or(true, |since| since > than))
    }

    /// Waits until no lease is late.
    pub(crate) async fn none_late(&self, than: Duration) {
        loop {
            // Made before the check, so that no change in between is missed.
            let changed = self.0.changed.notified();
            if !self.any_late(than) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Entry>> {
        self.0.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding {
    /// The server has answered a heartbeat.
    pub(super) fn beaten(&self) {
        if let Some(entry) = self.held.lock().get_mut(&self.lease) {
            entry.beaten_at = wall_clock();
        }
        self.held.0.changed.notify_waiters();
    }

    /// Waits for the order to cancel.
    pub(super) async fn cancelled(&mut self) {
        if self.cancel.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.lock().remove(&self.lease);
        self.held.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_late_until_it_is_renewed_or_given_up() {
        let held = Held::default();
        let holding = held.hold(LeaseId::generate());
        assert!(!held.any_late(Duration::from_secs(60)));
        if let Some(entry) = held.lock().get_mut(&holding.lease) {
            entry.beaten_at -= Duration::from_secs(61);
        }
        assert!(held.any_late(Duration::from_secs(60)));
        holding.beaten();
        assert!(!held.any_late(Duration::from_secs(60)));
        if let Some(entry) = held.lock().get_mut(&holding.lease) {
            entry.beaten_at += Duration::from_secs(3_600);
        }
        assert!(held.any_late(Duration::from_secs(60)), "the clock was set back");
        drop(holding);
        assert!(!held.any_late(Duration::ZERO));
    }

    #[tokio::test]
    async fn an_order_reaches_the_attempt_that_it_is_about() {
        let held = Held::default();
        let (id, other) = (LeaseId::generate(), LeaseId::generate());
        let (mut holding, spared) = (held.hold(id), held.hold(other));
        held.cancel(LeaseId::generate());
        held.cancel(id);
        holding.cancelled().await;
        assert!(!*spared.cancel.borrow());
    }
}
