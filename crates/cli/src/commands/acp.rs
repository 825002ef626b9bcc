//! `ensemble acp`: an editor drives a live session.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::sessions::Named;
use ensemble_acp::{LocalHost, Which};
use ensemble_agent::McpServer;
use ensemble_host::local::{Request, Start};
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use ensemble_types::problem::Code;
use ensemble_types::runs::Provider;
use ensemble_types::sessions::Session;
use tokio::signal::unix::SignalKind;

use super::DONE;
use super::agent::Choice;
use super::login::Login;
use super::session::Start as StartThere;
use crate::agreed::{self, Where, Work};
use crate::complete;
use crate::context::{Context, signalled};
use crate::failure::{Failure, Result};
use crate::live::host;
use crate::print;

/// Lets an editor (Zed, JetBrains, Neovim) drive live sessions: an agent of the Agent Client Protocol on standard input and output. The editor
/// starts this command; people do not type it.
#[derive(Debug, Args)]
pub(crate) struct Acp {
    /// Always this session: its ref or id, or `last` [default: a new one for each conversation]
    #[arg(long, value_name = "REF", add = complete::sessions(), conflicts_with_all = ["machine", "dir", "provider", "model", "mode"])]
    session: Option<Named>,
    /// New sessions are on this machine: its name, its ref or id [default: this computer]
    #[arg(long, value_name = "NAME", add = complete::machines())]
    machine: Option<String>,
    /// The directory of new sessions [default: that of the editor]
    #[arg(long, short = 'C', alias = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The agent: claude, codex, or another that the machine offers
    #[arg(long, visible_alias = "agent", value_name = "NAME", default_value = "claude", add = complete::agents())]
    provider: Provider,
    /// The model [default: the agent's own]
    #[arg(long)]
    model: Option<String>,
    /// What it may do without asking
    #[arg(long, value_enum, default_value_t = Choice::Ask)]
    mode: Choice,
    /// Say yes: the machine is meant, and the agent may do everything where the mode is bypass
    #[arg(long, short)]
    yes: bool,
    /// Sign in, and end. Editors that have a terminal add this
    #[arg(long, hide = true)]
    login: bool,
}

impl Acp {
    pub(crate) async fn run(self, context: &Context) -> Result {
        if self.login {
            return Login::default().run(context).await;
        }
        if std::io::stdin().is_terminal() {
            print::note("An editor starts this command, and speaks the Agent Client Protocol to it. Ctrl-D ends it.");
        }
        let Self { session, machine, dir: directory, provider, model, mode, yes, .. } = self;
        let which = Which { session, is_elsewhere: machine.is_some(), directory };
        let here = Here { context, machine, provider, model, mode, yes };
        let ended = signalled(&[SignalKind::terminate(), SignalKind::interrupt()])?;
        ensemble_acp::run(&here, &which, (tokio::io::stdin(), tokio::io::stdout()), ended).await?;
        Ok(DONE)
    }
}

/// This computer, and what new sessions of the editor are like.
struct Here<'a> {
    context: &'a Context,
    /// They are on this machine of the account; on this computer if `None`.
    machine: Option<String>,
    provider: Provider,
    model: Option<String>,
    mode: Choice,
    /// What a person would be asked is agreed to.
    yes: bool,
}

impl LocalHost for Here<'_> {
    type Error = Failure;

    fn is_unknown(failure: &Failure) -> bool {
        matches!(failure, Failure::Client(error) if error.is(Code::NotFound))
    }

    fn is_signed_in(&self) -> bool {
        self.context.account().is_ok_and(|(_, account)| account.is_some_and(|account| account.signed_in))
    }

    async fn account(&self) -> Result<Account> {
        self.context.me().await
    }

    async fn start(&self, me: &Account, directory: PathBuf, mcp_servers: Vec<McpServer>) -> Result<SessionId> {
        if let Some(machine) = &self.machine {
            let how = (self.mode, self.yes);
            let start = StartThere::quietly(machine.clone(), directory, self.provider, self.model.clone(), how);
            return start.begin(self.context, me).await;
        }
        let work = Work {
            directory: &directory.display().to_string(),
            on: Where::Here,
            is_bypass: self.mode == Choice::Bypass,
            is_said: self.yes,
            is_quiet: true,
        };
        agreed::agree(self.context, me, work)?;
        let start = Start {
            agent: self.provider.to_string(),
            directory,
            mode: Mode::of(self.mode.permission().as_str()),
            model: self.model.clone(),
            title: None,
            resume: None,
            fork: false,
            max_cost_usd: None,
            environment: Some(host::environment()),
            mcp_servers,
        };
        host::start(self.context, me, Request::Start(start)).await
    }

    async fn wake(&self, me: &Account, session: &Session) {
        host::wake(self.context, me, session).await;
    }

    async fn keep_servers(&self, me: &Account, session: SessionId, servers: Vec<McpServer>) -> Option<String> {
        host::keep_servers(self.context, me, session, servers).await
    }

    fn note(&self, text: &str) {
        print::note(text);
    }
}
