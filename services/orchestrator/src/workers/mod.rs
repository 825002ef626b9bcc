//! Loops: what is due, and what a lost wake-up would have told.

mod timers;

pub(crate) use timers::{Nudge, Timers};
