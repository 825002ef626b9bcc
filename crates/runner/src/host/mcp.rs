//! The MCP servers that an editor on this computer has for the agent of a session.

use std::sync::Arc;

use ensemble_agent::McpServer;
use ensemble_types::ids::SessionId;

use super::Host;

impl Host {
    /// Has a session of this machine use these servers.
    ///
    /// # Errors
    /// The session is not hosted here, or does not take them. The text is for people.
    pub(super) async fn keep_servers(
        self: &Arc<Self>,
        session: SessionId,
        servers: Vec<McpServer>,
    ) -> Result<(), String> {
        McpServer::check(&servers)?;
        self.host_again(session).await;
        self.hosted.keep_servers(session, servers).await
    }
}
