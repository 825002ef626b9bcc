//! What stands between a socket and the HTTP server: every byte of a request passes here first.
//!
//! The HTTP server (actix-http) decodes requests and encodes answers. What it is lenient about, or has no deadline for,
//! is decided before it: [`admission`] counts connections, [`stream`] checks heads and bodies and holds the clock.

pub mod admission;
pub mod connection;
mod deadline;
pub mod limits;
mod reception;
pub mod stream;
