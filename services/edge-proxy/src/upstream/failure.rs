//! What can go wrong behind the edge.

use std::io;

use actix_http::error::PayloadError;

use super::answer_head::BadHead;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing was sent: no address, or every address refused.
    #[error("no address of the service takes connections")]
    NowhereToGo,
    /// Nothing was sent.
    #[error("the connection to the service could not be made")]
    Connect(#[source] io::Error),
    #[error("the service was not reached in time")]
    ConnectTimeout,
    /// The service may have acted on the request.
    #[error("the connection to the service broke before the answer")]
    Broken(#[source] io::Error),
    #[error("the service closed the connection before the answer")]
    Closed,
    #[error("the answer of the service is malformed")]
    Head(#[from] BadHead),
    #[error("the service did not answer in time")]
    Timeout,
    /// The edge is closing, and this long-poll would outlast it.
    #[error("the edge is closing")]
    Closing,
    /// The client's side failed; no fault of the service.
    #[error("the body of the request did not arrive")]
    Client(#[source] PayloadError),
}

impl Failure {
    /// The connection died without a byte of an answer: on one that had been idle, most likely before the request arrived.
    pub fn is_silent_death(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Closed)
    }
}
