//! What tests use in place of services of others.

pub mod livekit;
pub mod model;
