//! The slot of an attempt: one of those that the runner has. An attempt that waits for its directory gives it back.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Free when it is dropped.
pub(crate) struct Slot {
    slots: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slot {
    pub(crate) fn new(slots: &Arc<Semaphore>, permit: OwnedSemaphorePermit) -> Self {
        Self { slots: slots.clone(), permit: Some(permit) }
    }

    /// Lets another attempt have it.
    pub(super) fn give_back(&mut self) {
        self.permit = None;
    }

    /// Takes it again if it is free. What runs already continues without it.
    pub(super) fn take_if_free(&mut self) {
        if self.permit.is_none() {
            self.permit = self.slots.clone().try_acquire_owned().ok();
        }
    }

    /// Waits until there is one again.
    pub(super) async fn take_again(&mut self) {
        if self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = self.slots.clone().acquire_owned().await.ok();
        }
    }
}
