//! Background work: timers, the records of active runners, and gauges.

pub(crate) mod gauges;

mod active_runners;
mod timers;

pub(crate) use active_runners::ActiveRunners;
pub(crate) use timers::{Alarm, Timers};
