//! What handlers and workers do with the database and LiveKit together, each in the order that survives a crash between
//! any two steps: first the record, then the call, then what came of it.

pub(crate) mod deliver;
pub(crate) mod observe;
pub(crate) mod reconcile;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod watch;
