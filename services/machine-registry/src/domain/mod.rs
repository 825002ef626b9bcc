//! Rules about machines: whose they are, how they change, when they count as online. No I/O; the time is an argument.

mod change;
mod machine;
mod owner;

pub(crate) use change::{BadChange, Change, VersionMismatch};
pub(crate) use machine::{Draft, Machine, Presence, Versioned};
pub(crate) use owner::{OtherMachine, OwnMachine};
