//! Background work: timers, the records of active runners, the rest of large changes, the purge of deleted runs, and gauges.

pub(crate) mod gauges;
pub(crate) mod purge;
pub(crate) mod pushes;
pub(crate) mod unsettled;

mod active_runners;
mod timers;

pub(crate) use active_runners::ActiveRunners;
pub(crate) use timers::{Alarm, Timers};
