//! What the service does: load, decide by the rules of `domain/`, store, in one transaction each. Handlers, rpc and workers
//! call this; nothing here knows HTTP.

pub(crate) mod accounts;
pub(crate) mod cleanup;
pub(crate) mod device_links;
pub(crate) mod devices;
pub(crate) mod invites;
pub(crate) mod pushes;
pub(crate) mod sign_in;
pub(crate) mod signing_keys;
pub(crate) mod tokens;
