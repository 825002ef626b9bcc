//! The rules of the edge as plain functions: what a request may look like, where it goes, what may travel with it.
//!
//! Nothing here reads a socket or a clock; every rule is tried out in a unit test.

pub mod body_scanner;
pub mod client_address;
pub mod cors;
pub mod head_scanner;
pub mod hop_headers;
pub mod refusal;
pub mod request_target;
pub mod route_table;
