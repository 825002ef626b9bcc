//! The program on this computer that hosts its sessions, as this program starts it.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_account::Account;
use ensemble_acp::ELSEWHERE;
use ensemble_agent::McpServer;
use ensemble_computer::hosting::{LocalSessions, this_program};
pub(crate) use ensemble_computer::hosting::{READY, folder};
use ensemble_host::local::Request;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::Session;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::print;

fn of<'a>(context: &'a Context, me: &'a Account, program: &'a Path) -> LocalSessions<'a> {
    let asleep = |error: ensemble_computer::Error| {
        let why = Failure::from(error);
        print::note(format!("The session can be read, but its agent does not work: {why}"));
    };
    LocalSessions { home: &context.home, me, program, asleep }
}

/// Begins a session on this computer, and starts a host if none runs.
pub(crate) async fn start(context: &Context, me: &Account, request: Request) -> Result<SessionId> {
    Ok(of(context, me, &this_program()?).start(request).await?)
}

/// What an agent may inherit of this terminal. Our own variables name servers and keys of this program.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let mut environment = crate::environment::environment();
    environment.retain(|name, _| !name.starts_with("ENSEMBLE_"));
    environment
}

/// Has the agent of a session of this computer use the MCP servers of an editor. Returns why it does not.
pub(crate) async fn keep_servers(
    context: &Context,
    me: &Account,
    id: SessionId,
    servers: Vec<McpServer>,
) -> Option<String> {
    of(context, me, &this_program().ok()?).keep_servers(id, servers, ELSEWHERE).await
}

/// Starts a host if this session is one of this computer and has none: its host was killed, or the computer was restarted.
pub(crate) async fn wake(context: &Context, me: &Account, session: &Session) {
    if let Ok(program) = this_program() {
        of(context, me, &program).wake(session).await;
    }
}
