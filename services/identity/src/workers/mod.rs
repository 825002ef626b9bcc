//! Loops that run as long as the service does. Several replicas may run them at once.

mod cleanup;
mod key_refresh;
mod pushes;

pub(crate) use cleanup::{Cleanup, FirstAccount};
pub(crate) use key_refresh::KeyRefresh;
pub(crate) use pushes::PushSender;
