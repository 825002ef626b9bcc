//! The way to the services: where they are, one request to one of them, what can go wrong.

pub(crate) mod addresses;
pub(crate) mod failure;
pub(crate) mod send;
pub(crate) mod upload;
