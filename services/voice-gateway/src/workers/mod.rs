//! Loops: timers for what is due, the pump that delivers, the reaper of rooms, the reconciler, the prober of LiveKit, and
//! upkeep.

mod prober;
mod pump;
mod reaper;
mod reconciler;
mod timers;
mod upkeep;

pub(crate) use prober::probe;
pub(crate) use pump::pump;
pub(crate) use reaper::{Births, reap};
pub(crate) use reconciler::reconcile;
pub(crate) use timers::run as run_timers;
pub(crate) use upkeep::keep_up;
