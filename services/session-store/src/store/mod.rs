//! The SQL of this service, one file for each table or list. Functions run one query or a few; the operations that call them
//! decide permissions and bound transactions.

mod attention;
pub(crate) mod cannot_write;
pub(crate) mod hints;
pub(crate) mod live_frames;
pub(crate) mod looks;
pub(crate) mod messages;
pub(crate) mod public_links;
pub(crate) mod public_sessions;
pub(crate) mod purge;
pub(crate) mod pushes;
mod schema;
pub(crate) mod session_list;
pub(crate) mod sessions;
pub(crate) mod shares;
