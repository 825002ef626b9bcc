//! Queries and nothing else: one file per table. Functions take the connection of a transaction that an operation began.

pub(crate) mod accounts;
pub(crate) mod challenges;
pub(crate) mod content_rings;
pub(crate) mod device_links;
pub(crate) mod device_lists;
pub(crate) mod devices;
pub(crate) mod invites;
pub(crate) mod pushes;
pub(crate) mod revocations;
mod schema;
pub(crate) mod signing_keys;
pub(crate) mod tokens;
