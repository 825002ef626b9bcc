//! What handlers and workers do with the database and LiveKit together. Each operation is ordered so that it survives a
//! crash between any two steps: first the record, then the call to LiveKit, then the result of the call.

pub(crate) mod agents;
mod change;
pub(crate) mod deliveries;
mod dispatches;
mod heartbeats;
pub(crate) mod history;
mod injections;
mod maintenance;
mod observations;
mod reservations;
mod revocations;
mod rooms;
mod sessions;
mod starts;
mod timers;
mod tools;
mod watchdog;
pub(crate) mod webhook_deliveries;
mod webhooks;
