//! Loops: what is due, and what a lost wake-up would have told.

pub(crate) mod census;
mod roster;
mod timers;

pub(crate) use roster::Roster;
pub(crate) use timers::{Nudge, Timers};
