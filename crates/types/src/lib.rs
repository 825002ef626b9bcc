//! What a client sees: ids, times, bounded texts, problems and the request and response bodies of every area.
//!
//! The wire format is defined only here, so that the services, the typed client and the OpenAPI document cannot
//! disagree. This crate depends on no HTTP server and no database.

pub mod accounts;
pub mod attention;
pub mod changes;
pub mod deleted;
pub mod devices;
pub mod epochs;
pub mod events;
mod examples;
pub mod free;
pub mod hints;
pub mod ids;
pub mod invites;
pub mod leases;
pub mod line;
pub mod links;
pub mod live;
pub mod looks;
pub mod machines;
pub mod messages;
pub mod page;
pub mod pends;
pub mod permissions;
pub mod placeholders;
pub mod problem;
mod provider;
pub mod pushes;
pub mod refs;
pub mod runs;
pub mod sessions;
pub mod shares;
pub mod signatures;
mod states;
pub mod task_key;
mod task_sessions;
pub mod template;
pub mod text;
pub mod time;
pub mod usage;
pub mod voice;
pub mod voice_history;
pub mod voice_tools;
pub mod voice_webhooks;
