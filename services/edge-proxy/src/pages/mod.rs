//! What the edge answers for itself.

pub(crate) mod docs;
pub(crate) mod health;
pub(crate) mod share;
pub(crate) mod version;
