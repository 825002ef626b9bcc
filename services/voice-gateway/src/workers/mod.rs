//! The loops of each replica. Each calls operations and ends when the drain begins.

pub(crate) mod delivery;
pub(crate) mod maintenance;
pub(crate) mod orphan_room_cleaner;
pub(crate) mod prober;
pub(crate) mod reconciler;
pub(crate) mod revocations;
pub(crate) mod timers;
pub(crate) mod webhook_senders;
