//! From a client's request to an answer: who asks, may they, where it goes, and what comes back.

pub mod body;
mod failure;
pub mod front;
mod relay;
mod reply;
pub mod request_ids;
pub mod streams;
