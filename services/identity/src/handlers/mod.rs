//! The public listener: one file per noun, one function per verb.

pub(crate) mod account;
pub(crate) mod auth;
pub(crate) mod device_links;
pub(crate) mod devices;
pub(crate) mod invites;
pub(crate) mod jwks;
pub(crate) mod tokens;
pub(crate) mod users;
mod waiting;
