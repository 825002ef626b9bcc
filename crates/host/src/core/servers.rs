//! The MCP servers that an editor has for the agent.

use ensemble_agent::McpServer;
use ensemble_protocol::transcript::body::{Block, Content, ToolCall, ToolContent};
use ensemble_protocol::transcript::words::ToolStatus;
use ensemble_types::ids::unique;

use super::Core;
use crate::kept::Change;

impl Core {
    /// The agent has these servers from its next start on. One that runs is ended when it has nothing to do.
    pub(crate) fn set_servers(&mut self, servers: Vec<McpServer>) {
        if servers == self.kept.mcp_servers {
            return;
        }
        self.change(Change::McpServers(servers));
        self.show_servers();
        self.is_outdated = self.driver.is_some();
    }

    /// Shows what the agent starts or connects to, as calls that were made.
    pub(super) fn show_servers(&mut self) {
        for server in self.kept.mcp_servers.clone() {
            let content = ToolContent::Content { content: Block::Text { text: server.reached_by() }, cut: None };
            self.say(Content::ToolCall(Box::new(ToolCall {
                tool_call_id: unique().to_string(),
                turn_id: String::new(),
                part: None,
                title: Some(format!("MCP server {}", server.title())),
                kind: None,
                status: Some(ToolStatus::Completed),
                locations: None,
                content: Some(vec![content]),
                parent_tool_call_id: None,
            })));
        }
    }
}
