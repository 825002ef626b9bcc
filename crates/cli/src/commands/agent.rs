//! `ensemble claude` and its like, and `agent NAME`: a live session with an agent in this directory.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use ensemble_account::Account;
use ensemble_account::live::Live;
use ensemble_account::live::names::title;
use ensemble_account::sessions::{Named as NamedSession, Titles};
use ensemble_agent::{Kind, known};
use ensemble_host::local::{Request, Start};
use ensemble_protocol::transcript::body::{Content, Control, Prompt, Resume};
use ensemble_protocol::transcript::words::{Mode, When};
use ensemble_types::runs::Permission;
use ensemble_types::sessions::{SessionStatus, UpdateSession};

use super::DONE;
use super::attach;
use super::conversations::{self, Continued};
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
use crate::when;

/// Sessions and conversations that a person chooses from.
const MOST_SHOWN: usize = 20;

/// Options of a session that begins.
const NEW: [&str; 6] = ["model", "mode", "title", "max_cost", "share", "resume_conversation"];

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
    #[arg(long, value_name = "USD", value_parser = max_cost)]
    max_cost: Option<f64>,
    /// Share it with this user from the beginning: view, edit or admin; can be repeated
    #[arg(long, value_name = "USER:LEVEL")]
    share: Vec<With>,
    /// Continue a session of yours, by its ref [default: one that you choose, or a conversation that you began with the agent itself]
    #[arg(long, value_name = "REF", num_args = 0..=1, conflicts_with_all = NEW)]
    resume: Option<Option<String>>,
    #[command(flatten)]
    continued: Continued,
    /// Say yes: it may do everything where the mode is bypass
    #[arg(long, short)]
    yes: bool,
    /// Continue the last session of this agent in this directory
    #[arg(long = "continue", short = 'c', conflicts_with_all = NEW, conflicts_with = "resume")]
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

/// `ensemble NAME`, for each agent that needs no configuration.
#[derive(Debug)]
pub(crate) struct Known(pub(crate) Named);

impl FromArgMatches for Known {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (name, matches) = matches.subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self(Named { name: name.to_owned(), agent: Agent::from_arg_matches(matches)? }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Known {
    fn augment_subcommands(command: Command) -> Command {
        known::ALL.iter().fold(command, |command, known| {
            let about = format!("Work with {} in this directory, and see it on all your screens", known.name);
            // Of the many the help shows those that have a driver of their own.
            let is_hidden = known.starts.is_none_or(|(kind, _)| kind == Kind::Acp);
            command.subcommand(Agent::augment_args(Command::new(known.name)).about(about).hide(is_hidden))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        known::named(name).is_some()
    }
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
    pub(crate) async fn run(mut self, context: &Context, name: &str) -> Result {
        let text = first_prompt(&self.prompt)?;
        let continues = self.continues || self.resume.is_some();
        // Where nothing can be typed, a session without a prompt would only be looked at.
        let text = match text.is_empty() && !self.detach && !continues && !has_terminal() {
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
        let chosen = match self.resume.take() {
            Some(None) => Some(chosen(context, &me, (name, &directory)).await?),
            named => named.flatten().map(Chosen::Session),
        };
        match chosen {
            Some(Chosen::Session(named)) => return self.resume_session(context, &me, (name, &named), text).await,
            Some(Chosen::Conversation(id)) => self.continued.resume_conversation = Some(id),
            None => {}
        }
        self.continued.settle(context, name, &directory).await?;
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
            resume: self.continued.resume_conversation,
            fork: self.continued.copy,
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
        let found = Titles::of(me)?.in_directory((name, &text_of(directory)), 1).await?.into_iter().next();
        let (session, _) = found.ok_or_else(|| {
            Failure::message(format!(
                "There is no session of {name} in {} on this computer. Leave --continue out to begin one.",
                directory.display()
            ))
        })?;
        let live = live::open(context, me, session.id).await?;
        continued(context, live, (text, Some(text_of(directory))), self.detach).await
    }

    /// Shows a session that the person names.
    async fn resume_session(
        self,
        context: &Context,
        me: &Account,
        (name, named): (&str, &str),
        text: String,
    ) -> Result {
        let other = format!(
            "{named} is no session of yours: `ensemble sessions --all` lists them. A conversation that you began with {name} itself \
             continues by `ensemble {name} --resume-conversation {named}`."
        );
        let Ok(session) = named.parse::<NamedSession>() else { return Err(Failure::message(other)) };
        let live = match session.with_agent(me).await {
            Ok(id) => live::open(context, me, id).await,
            Err(error) => Err(error.into()),
        };
        let live = live.map_err(|failure| match failure {
            Failure::Client(error) if error.is_not_found() => Failure::message(other),
            failure => failure,
        })?;
        match live.titled().agent() {
            Some(agent) if agent != name => Err(Failure::message(format!(
                "{agent} works in this session: `ensemble {agent} --resume {}`.",
                live.session.reference
            ))),
            _ => {
                let directory = live.directory();
                continued(context, live, (text, directory), self.detach).await
            }
        }
    }
}

/// Shows a session, which is resumed if it has ended, and sends it the prompt.
async fn continued(context: &Context, live: Live, (text, directory): (String, Option<String>), detach: bool) -> Result {
    if live.session.status == SessionStatus::Ended {
        live.send(Content::Control(Control::Resume(Resume { directory: directory.clone() }))).await?;
        let update = UpdateSession { status: Some(SessionStatus::Active), ..UpdateSession::default() };
        live.me.client.update_session(live.session.id, &update).await?;
    }
    sent(context, live, (text, directory), detach).await
}

/// What a person has chosen to continue.
enum Chosen {
    /// By its ref, or as the person names it.
    Session(String),
    Conversation(String),
}

/// Shows the sessions of the agent in this directory and its own conversations, and asks which one is meant.
async fn chosen(context: &Context, me: &Account, (name, directory): (&str, &Path)) -> Result<Chosen> {
    if !has_terminal() {
        return Err(Failure::message(
            "Say what to continue: --resume REF (`ensemble sessions --all`) or --resume-conversation ID (`ensemble sessions --local`).",
        ));
    }
    let sessions = Titles::of(me)?.in_directory((name, &text_of(directory)), MOST_SHOWN).await?;
    for (session, title) in &sessions {
        let title = print::short(title.as_deref().unwrap_or_default(), 60);
        print::line(format!("{}  {}  {title}", session.reference, when::ago(session.updated_at)))?;
    }
    let own = conversations::of(context, name, directory).await?;
    let own: Vec<_> = conversations::begun_elsewhere(own).take(MOST_SHOWN).collect();
    if sessions.is_empty() && own.is_empty() {
        return Err(Failure::message(format!("There is nothing of {name} to continue in {}.", directory.display())));
    }
    print::table(&conversations::table(&own))?;
    print::ask("\nWhich session or conversation?")?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let typed = line.trim().to_owned();
    if sessions.iter().any(|(session, _)| session.reference.as_str() == typed) {
        return Ok(Chosen::Session(typed));
    }
    let is_own = own.iter().any(|one| one.id == typed);
    is_own.then_some(Chosen::Conversation(typed)).ok_or_else(|| Failure::message("It is none of these."))
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
