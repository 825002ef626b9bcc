//! Background work: timers, the records of active runners, the purge of deleted runs, and gauges.

pub(crate) mod gauges;
pub(crate) mod purge;
pub(crate) mod pushes;

mod active_runners;
mod timers;

pub(crate) use active_runners::ActiveRunners;
pub(crate) use timers::{Alarm, Timers};
