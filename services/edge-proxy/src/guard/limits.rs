//! What a connection may take, in bytes and in time.

use std::time::Duration;

use crate::domain::head_scanner::HeadLimits;

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub head: HeadLimits,
    /// From the first byte of a head to its last.
    pub head_deadline: Duration,
    /// How long waiting for a body's bytes may last before its rate counts.
    pub body_timeout: Duration,
    /// Bytes per second that a body must have on average after that.
    pub body_min_rate: u64,
    /// How long waiting for a body's bytes may last in all.
    pub body_deadline: Duration,
    /// Between an answer and the next request.
    pub idle: Duration,
    /// How long a client may take nothing of an answer that waits for it.
    pub send_stall: Duration,
    /// How long to go on reading what a client still sends after it was refused, so that it can read why.
    pub linger: Duration,
}
