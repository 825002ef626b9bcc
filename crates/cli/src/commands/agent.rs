//! `ensemble claude`, `codex`, `gemini`, `opencode` and `agent NAME`: a live session with an agent in this directory.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use ensemble_account::Account;
use ensemble_account::live::Live;
use ensemble_account::live::names::title;
use ensemble_account::sessions::Titles;
use ensemble_client::SessionFilter;
use ensemble_host::local::{Request, Start};
use ensemble_protocol::transcript::body::{Content, Control, Prompt, Resume};
use ensemble_protocol::transcript::words::{Mode, When};
use ensemble_types::runs::Permission;
use ensemble_types::sessions::{SessionStatus, UpdateSession};
use futures_util::{StreamExt, TryStreamExt};

use super::DONE;
use super::attach;
use super::run::here;
use super::sessions::opened;
use super::share::With;
use super::submit::max_cost;
use crate::agreed::{self, Where, Work};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::live::{self, host};
use crate::piped;
use crate::print;

/// Sessions among which the last one is looked for.
const MOST_LOOKED_AT: usize = 500;

/// A live session with the agent in this directory: on this screen, and on every other one of yours.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// What to do first
    prompt: Vec<String>,
    /// The directory [default: the current one]
    #[arg(long, short = 'C', alias = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The model [default: the agent's own]
    #[arg(long)]
    model: Option<String>,
    /// What it may do without asking
    #[arg(long, value_enum, default_value_t = Choice::Ask)]
    mode: Choice,
    /// The title of the session; it is encrypted
    #[arg(long, short)]
    title: Option<String>,
    /// Start it and print its ref
    #[arg(long, short)]
    detach: bool,
    /// Ask before another turn begins when it has cost this many US dollars
    #[arg(long, value_name = "USD", value_parser = max_cost, conflicts_with = "continues")]
    max_cost: Option<f64>,
    /// Share it with this user from the beginning: view, edit or admin; can be repeated
    #[arg(long, value_name = "USER:LEVEL", conflicts_with = "continues")]
    share: Vec<With>,
    /// Continue a conversation of the agent, by the agent's own id
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    /// Say yes: it may do everything where the mode is bypass
    #[arg(long, short)]
    yes: bool,
    /// Continue the last session of this agent in this directory
    #[arg(long = "continue", short = 'c', conflicts_with_all = ["resume", "model", "mode", "title"])]
    continues: bool,
}

/// `ensemble agent NAME`.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The agent's name in runner.yaml (`agents`), or one that has its own command
    name: String,
    #[command(flatten)]
    agent: Agent,
}

/// What the agent may do without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// It asks before each change and each command
    Ask,
    /// It changes files of the directory without asking
    Edit,
    /// It changes nothing
    Plan,
    /// It asks for nothing
    Bypass,
}

impl Named {
    pub(crate) async fn run(self, context: &Context) -> Result {
        self.agent.run(context, &self.name).await
    }
}

impl Agent {
    pub(crate) async fn run(self, context: &Context, name: &str) -> Result {
        let text = first_prompt(&self.prompt)?;
        // Where nothing can be typed, a session without a prompt would only be looked at.
        let text = match text.is_empty() && !self.detach && !self.continues && !has_terminal() {
            true => prompt_of_a_pipe(name)?,
            false => text,
        };
        let me = context.me().await?;
        let named = here()?.join(self.dir.as_deref().unwrap_or(".".as_ref()));
        // The machine names a directory by its path without links. It is found once: a link may point elsewhere later.
        let directory =
            named.canonicalize().map_err(|error| Failure::message(format!("{}: {error}.", named.display())));
        if self.continues {
            return self.resume_last(context, &me, (name, &directory?), text).await;
        }
        // Of a directory that is not there the host says so.
        let directory = directory.unwrap_or(named);
        agreed::agree(
            context,
            &me,
            Work {
                directory: &text_of(&directory),
                on: Where::Here,
                is_bypass: self.mode == Choice::Bypass,
                is_said: self.yes,
                is_quiet: false,
            },
        )?;
        let start = Start {
            agent: name.to_owned(),
            directory: directory.clone(),
            mode: Mode::of(self.mode.permission().as_str()),
            model: self.model,
            title: self.title.or_else(|| title(&text)),
            resume: self.resume,
            max_cost_usd: self.max_cost,
            environment: Some(host::environment()),
            mcp_servers: Vec::new(),
        };
        let id = host::start(context, &me, Request::Start(start)).await?;
        // This machine may have become one of the account's devices just now.
        let me = context.me().await?;
        for with in &self.share {
            with.share(context, &me, id).await?;
        }
        sent(context, live::open(context, &me, id).await?, (text, Some(text_of(&directory))), self.detach).await
    }
}

impl Agent {
    /// Shows the last session of the agent in this directory, and sends it the prompt.
    async fn resume_last(
        self,
        context: &Context,
        me: &Account,
        (name, directory): (&str, &Path),
        text: String,
    ) -> Result {
        let this = me.this_machine()?;
        let titles = Titles::of(me)?;
        let filter = SessionFilter { active_only: false, shared: false };
        let mut sessions = pin!(me.client.sessions(filter).take(MOST_LOOKED_AT));
        let mut found = None;
        while let Some(session) = sessions.try_next().await? {
            let is_here = session.hosted && this.is_some() && session.machine_id == this;
            // The server could say that any session is one of this directory.
            if is_here && titles.title(&session).await.is_in(&text_of(directory), name) {
                found = Some(session);
                break;
            }
        }
        titles.keep()?;
        let session = found.ok_or_else(|| {
            Failure::message(format!(
                "There is no session of {name} in {} on this computer. Leave --continue out to begin one.",
                directory.display()
            ))
        })?;
        let live = live::open(context, me, session.id).await?;
        if session.status == SessionStatus::Ended {
            live.send(Content::Control(Control::Resume(Resume { directory: Some(text_of(directory)) }))).await?;
            let update = UpdateSession { status: Some(SessionStatus::Active), ..UpdateSession::default() };
            me.client.update_session(session.id, &update).await?;
        }
        sent(context, live, (text, Some(text_of(directory))), self.detach).await
    }
}

/// What to do first.
pub(super) fn first_prompt(words: &[String]) -> Result<String> {
    let text = words.join(" ");
    if !words.is_empty() && text.trim().is_empty() {
        return Err(Failure::message("The prompt is empty. Leave it out to begin without one."));
    }
    Ok(text)
}

pub(super) fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The first prompt from standard input.
fn prompt_of_a_pipe(agent: &str) -> Result<String> {
    let text = if std::io::stdin().is_terminal() {
        String::new()
    } else {
        print::note("Reading the prompt from standard input.");
        piped::prompt()?
    };
    match text.trim() {
        "" => Err(Failure::message(format!(
            "There is no terminal to type in, and no prompt. Give one: `ensemble {agent} \"…\"`. With --detach the session begins \
             without one."
        ))),
        text => Ok(text.to_owned()),
    }
}

/// The path of a directory as its session's machine shows it, and as commands name it.
fn text_of(directory: &Path) -> String {
    directory.display().to_string()
}

/// Sends the first prompt of a session, and shows the session or prints its ref. `directory` is the one that the person has chosen by, where
/// they have.
pub(super) async fn sent(
    context: &Context,
    live: Live,
    (text, directory): (String, Option<String>),
    detach: bool,
) -> Result {
    if !text.is_empty() {
        live.send(Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next, directory })).await?;
    }
    if detach {
        if context.json {
            print::json(&opened(&live.session, &live.titled().shown()), false)?;
        } else {
            print::line(live.session.reference.to_string())?;
            print::note(format!(
                "`ensemble attach {}` shows it, here and on your other devices.",
                live.session.reference
            ));
        }
        return Ok(DONE);
    }
    attach::show(context, live).await.map(|()| ExitCode::SUCCESS)
}

impl Choice {
    pub(crate) fn permission(self) -> Permission {
        match self {
            Self::Ask => Permission::Ask,
            Self::Edit => Permission::Edit,
            Self::Plan => Permission::Plan,
            Self::Bypass => Permission::Bypass,
        }
    }
}
