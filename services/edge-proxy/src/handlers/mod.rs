//! What the edge answers for itself.

pub mod docs;
pub mod health;
pub mod share;
pub mod version;
