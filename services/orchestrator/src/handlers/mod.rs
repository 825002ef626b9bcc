//! The public interface: one file per noun, one function per verb. Handlers translate requests, and operations do the work.

pub(crate) mod changes;
pub(crate) mod events;
pub(crate) mod follow_ups;
pub(crate) mod leases;
pub(crate) mod outputs;
mod run_body;
pub(crate) mod runs;
mod token_watch;
pub(crate) mod usage;
