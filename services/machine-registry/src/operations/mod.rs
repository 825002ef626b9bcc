//! What the service does: load, decide by the rules of `domain/`, store, in one transaction each. Handlers, rpc and workers
//! call this; nothing here knows HTTP.

pub(crate) mod deletions;
pub(crate) mod machines;
pub(crate) mod presence;
