//! The rules of the edge as plain functions: what a request may look like, where it goes, what may travel with it.
//!
//! Nothing here reads a socket or a clock, and nothing knows the server.

pub mod client_address;
pub mod cors;
pub mod header_policy;
pub mod request_rules;
pub mod route_table;
