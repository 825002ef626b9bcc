//! The public listener, one file per client: the application's sessions and injections, LiveKit's webhooks, the agent.

pub(crate) mod agent;
pub(crate) mod caller;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod hooks;
pub(crate) mod injections;
pub(crate) mod sessions;
pub(crate) mod tools;
