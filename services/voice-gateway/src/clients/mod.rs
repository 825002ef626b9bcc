//! LiveKit, and the credential for the tool bridge that the agent calls.

pub(crate) mod livekit;
pub(crate) mod tool_bridge;
