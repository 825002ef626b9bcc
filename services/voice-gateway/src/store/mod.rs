//! Queries and nothing else: voice sessions, their texts and contexts, webhooks, seconds used, and chores.
//!
//! Every function runs inside the transaction of the operation that calls it. A session is changed by locking its row,
//! applying an event and saving the row.

pub(crate) mod chores;
pub(crate) mod contexts;
pub(crate) mod locks;
mod schema;
pub(crate) mod sessions;
mod stored;
pub(crate) mod texts;
pub(crate) mod tool_calls;
pub(crate) mod usage;
pub(crate) mod utterances;
pub(crate) mod webhook_deliveries;
pub(crate) mod webhooks;

use ensemble_store_kit::Topic;
use ensemble_types::ids::GatewaySessionId;

pub(crate) use stored::StoredSession;

/// The topic on which every change of a session is published.
pub(crate) fn topic(id: GatewaySessionId) -> Topic {
    Topic::new("voice", id)
}
