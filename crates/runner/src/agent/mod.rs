//! The agents of a machine: which there are, how each is started, and its process.

mod known;
mod piped;

use std::time::Duration;

pub(crate) use known::Known;
pub(crate) use piped::{Happened, How, Piped, exit_of};

/// A guard takes an order within this time.
pub(crate) const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
