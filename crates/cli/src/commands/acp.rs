//! `ensemble acp`: an editor drives a live session.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use ensemble_account::sessions::Named;
use ensemble_types::runs::Provider;

use super::DONE;
use super::agent::Choice;
use super::login::Login;
use crate::acp;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
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
    /// The agent: claude, codex, gemini, or on this computer one of runner.yaml
    #[arg(long, visible_alias = "agent", value_name = "NAME", default_value = "claude", add = complete::words(&["claude", "codex", "gemini"]))]
    provider: String,
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
        let known = Provider::ALL.into_iter().find(|provider| provider.as_str() == self.provider);
        let provider = match (known, &self.machine) {
            (Some(provider), _) => provider,
            (None, None) => Provider::Claude,
            (None, Some(_)) => {
                return Err(Failure::message("On another machine the agent is claude, codex or gemini."));
            }
        };
        let Self { session, machine, dir: directory, provider: agent, model, mode, yes, .. } = self;
        let which = acp::Which { session, machine, directory, agent, provider, model, mode, yes };
        acp::run(context, &which).await?;
        Ok(DONE)
    }
}
