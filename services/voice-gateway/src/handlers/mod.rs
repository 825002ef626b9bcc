//! The public door, one file per side: the application's sessions and injections, LiveKit's hooks, the agent.

pub(crate) mod agent;
pub(crate) mod caller;
pub(crate) mod hooks;
pub(crate) mod injections;
pub(crate) mod sessions;
