//! Whom the gateway calls or speaks for: LiveKit, and the tool bridge behind the agent.

pub(crate) mod livekit;
pub(crate) mod tool_bridge;
