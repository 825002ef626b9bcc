//! LiveKit, the services from which an agent's tools read, the operator's endpoints, and the credential for a third-party
//! tool bridge.

pub(crate) mod directory;
pub(crate) mod endpoints;
pub(crate) mod livekit;
pub(crate) mod tool_bridge;
