//! LiveKit, the services from which an agent's tools read, and the credential for a tool bridge of somebody else's.

pub(crate) mod directory;
pub(crate) mod livekit;
pub(crate) mod tool_bridge;
