//! Talking to the services: HTTP/1.1 on connections that are kept, one request at a time on each.
//!
//! A connection is driven by the task of the request that it serves: no task, no channel and no lock stands between the
//! bytes of the client and those of the service, so that a slow side slows the other one and nothing piles up between.
//! Heads travel without being turned into another library's types, which is most of what a proxy costs.

pub mod addresses;
pub mod answer_body;
pub mod answer_head;
pub mod connection;
pub mod exchange;
pub mod failure;
pub mod pool;
pub mod request_head;
mod upload;
