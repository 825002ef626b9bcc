//! From a request that no page of the edge answers to the answer of a service.

mod body;
mod forwarder;
mod headers;

pub(crate) use forwarder::forward;
