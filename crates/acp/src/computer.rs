//! What the program around this agent does for it.

use std::fmt::Display;
use std::path::PathBuf;

use ensemble_account::Account;
use ensemble_agent::McpServer;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::Session;

/// The computer on which the editor is. It has an account, and may host sessions.
pub trait LocalHost {
    /// Why something was not done, as a sentence for the editor.
    type Error: From<ensemble_account::Error> + Display;

    /// Whether the server has no such thing.
    fn is_unknown(error: &Self::Error) -> bool;

    /// Whether a person has signed in here.
    fn is_signed_in(&self) -> bool;

    /// Opens the account.
    fn account(&self) -> impl Future<Output = Result<Account, Self::Error>>;

    /// Begins a session in this directory. Where it is one of this computer, its agent has these MCP servers.
    fn start(
        &self,
        me: &Account,
        directory: PathBuf,
        servers: Vec<McpServer>,
    ) -> impl Future<Output = Result<SessionId, Self::Error>>;

    /// Starts the host of a session, if it is one of this computer and its host has ended.
    fn wake(&self, me: &Account, session: &Session) -> impl Future<Output = ()>;

    /// Has the agent of a session of this computer use these MCP servers. Returns why it does not.
    fn keep_servers(
        &self,
        me: &Account,
        session: SessionId,
        servers: Vec<McpServer>,
    ) -> impl Future<Output = Option<String>>;

    /// Something for the editor's log.
    fn note(&self, text: &str);
}
