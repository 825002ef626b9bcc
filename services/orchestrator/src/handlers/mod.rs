//! The public door: one file per noun, one function per verb.

pub(crate) mod events;
pub(crate) mod leases;
pub(crate) mod outputs;
pub(crate) mod runs;
mod watch;
mod whole;
