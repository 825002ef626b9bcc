//! The MCP servers that an editor on this computer has for the agent of a session.

use std::sync::Arc;
use std::time::Duration;

use ensemble_agent::McpServer;
use ensemble_types::ids::SessionId;

use super::Host;

const HOSTED_WITHIN: Duration = Duration::from_secs(20);

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
        if !self.hosted.has(session) && !self.sessions.join(session.to_string()).exists() {
            return Err("this computer has nothing of the session.".to_owned());
        }
        // The editor waits.
        let _is_late = tokio::time::timeout(HOSTED_WITHIN, self.host_again(session)).await;
        self.hosted.keep_servers(session, servers).await
    }
}
