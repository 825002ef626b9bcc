//! Times for people, as seen now by the server's clock.

use ensemble_screen::lines::when;
pub(crate) use ensemble_screen::lines::when::{duration, local};
use ensemble_types::time::Timestamp;

use crate::context::now;

pub(crate) fn ago(at: Timestamp) -> String {
    when::ago(at, now())
}

pub(crate) fn both(at: Timestamp) -> String {
    when::both(at, now())
}

pub(crate) fn clock(at: Timestamp) -> String {
    when::clock(at, now())
}
