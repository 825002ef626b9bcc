//! Opens one session for the editor and follows it: messages, live frames, and whether the machine and the server are there.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use ensemble_account::live::names::title;
use ensemble_account::live::{KeyHints, Live, Watch, Watched};
use ensemble_account::{Account, Error as AccountError};
use ensemble_agent::McpServer;
use ensemble_client::SessionEvent;
use ensemble_protocol::transcript::body::Content;
use ensemble_protocol::transcript::view::{Author, Incoming, Keep, View};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::computer::LocalHost;
use super::core::{Event, Opening, Wanted};
use super::process::Which;
use super::rpc::{Error, INTERNAL, NOT_FOUND, PARAMS, SIGN_IN};

/// What an editor reads whose MCP servers stay on its computer.
pub const ELSEWHERE: &str = "The MCP servers of the editor are not passed on, because the session is not one of this computer: its \
     agent has those of its machine.";
/// Messages of the past that an editor gets.
const MOST_REPLAYED: i64 = 6_000;
/// What is kept to find out whether the server keeps a list back. What the editor is shown is kept elsewhere.
const JUDGED: Keep = Keep { items: 200, bytes: 1 << 20 };

/// What a session tells the process.
pub(super) enum Report {
    Opened(Result<Opening, Error>),
    Event(SessionId, Event),
    /// The server has the command with this `localId`.
    Stored(SessionId, String),
    /// The command with this `localId` was not sent.
    Failed(SessionId, String, String),
}

/// The way to the process. Each report carries the ticket with which the session was opened.
#[derive(Clone)]
pub(super) struct Reports {
    pub(super) ticket: u64,
    pub(super) to: mpsc::Sender<(u64, Report)>,
}

impl Reports {
    /// False: the process listens no longer.
    async fn say(&self, report: Report) -> bool {
        self.to.send((self.ticket, report)).await.is_ok()
    }

    async fn not_opened(&self, error: Error) {
        self.say(Report::Opened(Err(error))).await;
    }
}

/// What the process wants of an open session.
pub(super) enum Command {
    /// Sign and send this under this `localId`.
    Send(String, Box<Content>),
    /// Start the host, if it is one of this computer and has died.
    Wake,
}

/// Opens the session and follows it until the process drops the sender of `commands`.
pub(super) async fn follow<H: LocalHost>(
    host: &H,
    which: &Which,
    (wanted, servers): (Wanted, Vec<McpServer>),
    reports: Reports,
    mut commands: mpsc::Receiver<Command>,
) {
    let opened = match sign_in(host).await {
        Ok(me) => open(host, me, which, wanted, servers).await,
        Err(error) => Err(error),
    };
    let Opened { me, id, is_new, left_out } = match opened {
        Ok(opened) => opened,
        Err(error) => return reports.not_opened(error).await,
    };
    let live = match me.live(id).await {
        Ok(live) => live,
        Err(error) => return reports.not_opened(error_of::<H>(error)).await,
    };
    me.use_session(&live.session);
    host.wake(&me, &live.session).await;
    let (sender, said) = (live.sender(), reports.clone());
    let (mut wants_title, session) = (is_new && live.given_title().is_none(), live.session.clone());
    let sending = async {
        while let Some(command) = commands.recv().await {
            // The host on this computer may have been killed since.
            host.wake(&me, &session).await;
            let Command::Send(local_id, content) = command else { continue };
            let title = match content.as_ref() {
                Content::Prompt(prompt) if wants_title => title(&prompt.text),
                _ => None,
            };
            if let Err(error) = sender.send_as(local_id.clone(), *content).await {
                said.say(Report::Failed(id, local_id, H::Error::from(error).to_string())).await;
                continue;
            }
            said.say(Report::Stored(id, local_id)).await;
            if let Some(title) = title {
                wants_title = false;
                said.say(Report::Event(id, Event::Titled(title))).await;
            }
        }
    };
    let reading = async {
        if let Err(error) = read(live, (is_new, left_out), &reports).await {
            reports.say(Report::Event(id, Event::Gone(H::Error::from(error).to_string()))).await;
        }
    };
    tokio::select! {
        () = sending => {}
        () = reading => {}
    }
}

/// Signs in, or says that a person has to.
pub(super) async fn sign_in<H: LocalHost>(host: &H) -> Result<Account, Error> {
    let is_signed_in = host.is_signed_in();
    host.account().await.map_err(|error| {
        let code = if is_signed_in { INTERNAL } else { SIGN_IN };
        Error::new(code, error.to_string())
    })
}

/// What the editor reads of a failure.
pub(super) fn error_of<H: LocalHost>(error: impl Into<H::Error>) -> Error {
    let error = error.into();
    Error::new(if H::is_unknown(&error) { NOT_FOUND } else { INTERNAL }, error.to_string())
}

/// A session that was found or begun.
struct Opened {
    me: Account,
    id: SessionId,
    is_new: bool,
    /// Why the agent does not get the MCP servers of the editor.
    left_out: Option<String>,
}

async fn open<H: LocalHost>(
    host: &H,
    me: Account,
    which: &Which,
    wanted: Wanted,
    servers: Vec<McpServer>,
) -> Result<Opened, Error> {
    let known = match (&wanted, which.session) {
        (Wanted::This(id), _) => Some(*id),
        (Wanted::New(_), Some(named)) => Some(named.with_agent(&me).await.map_err(error_of::<H>)?),
        (Wanted::New(_), None) => None,
    };
    let cwd = match (wanted, known) {
        (Wanted::New(cwd), None) => cwd,
        (Wanted::This(id), _) | (Wanted::New(_), Some(id)) => {
            let left_out = host.keep_servers(&me, id, servers).await;
            return Ok(Opened { me, id, is_new: false, left_out });
        }
    };
    if !which.is_elsewhere && which.directory.is_none() && !cwd.is_dir() {
        return Err(Error::new(PARAMS, format!("`cwd` is a directory of this computer; {} is none.", cwd.display())));
    }
    let left_out = (which.is_elsewhere && !servers.is_empty()).then(|| ELSEWHERE.to_owned());
    let id = host.start(&me, which.directory(cwd), servers).await.map_err(error_of::<H>)?;
    // This machine may have become one of the account's devices just now.
    let me = host.account().await.map_err(error_of::<H>)?;
    Ok(Opened { me, id, is_new: true, left_out })
}

/// Reads what was said, then what is said, until the session is gone.
async fn read(
    mut live: Live,
    (is_new, left_out): (bool, Option<String>),
    reports: &Reports,
) -> ensemble_account::Result<()> {
    let (id, client) = (live.session.id, live.me.client.clone());
    let mut after = live.session.last_seq.saturating_sub(MOST_REPLAYED).max(0);
    let opening = Opening {
        id,
        reference: live.session.reference.to_string(),
        title: live.given_title(),
        directory: live.directory(),
        user: live.me.id,
        key: live.me.key.public_key(),
        online: live.session.online || is_new,
        is_new,
        left_out,
        is_cut: after > 0,
    };
    reports.say(Report::Opened(Ok(opening))).await;
    live.view = View::new(JUDGED);
    let mut reported = Reported { names: HashSet::from([live.me.id]), list: None };
    {
        let mut messages = pin!(client.messages_after(id, after));
        while let Some(message) = messages.next().await {
            let message = message?;
            after = message.seq;
            if let Some(report) = said(&mut live, &message, &mut reported, reports).await? {
                reports.say(report).await;
            }
        }
    }
    reports.say(Report::Event(id, Event::CaughtUp)).await;
    let _devices = live.follow_devices(Arc::default());
    let mut keys = KeyHints::new(client.clone(), id);
    let mut watch = Watch::new(client, id, after);
    loop {
        let watched = tokio::select! {
            watched = watch.next() => watched?,
            () = keys.next(live.is_waiting()) => {
                online(&mut live).await;
                if !waited(&mut live, &mut reported, reports).await? {
                    watch.lost();
                }
                continue;
            }
        };
        let report = match watched {
            Watched::Connected => {
                reports.say(Report::Event(id, Event::Connected(true))).await;
                let report = online(&mut live).await;
                if !waited(&mut live, &mut reported, reports).await? {
                    watch.lost();
                }
                report
            }
            Watched::Away => Some(Report::Event(id, Event::Connected(false))),
            Watched::Event(SessionEvent::Message(message)) => {
                // What the machine says shows that it is there.
                if message.sender_machine_id.is_some() && !live.session.online {
                    live.session.online = true;
                    reports.say(Report::Event(id, Event::Online(true))).await;
                }
                match said(&mut live, &message, &mut reported, reports).await {
                    // Its signer could not be found. It comes again.
                    Err(AccountError::Client(error)) if error.is_passing() => {
                        watch.lost();
                        Some(Report::Event(id, Event::Connected(false)))
                    }
                    report => {
                        watch.taken(message.seq);
                        report?
                    }
                }
            }
            Watched::Event(SessionEvent::Live(frame)) => {
                live.frame(&frame.content).map(|frame| Report::Event(id, Event::Frame(frame)))
            }
            Watched::Event(SessionEvent::Changed(_)) => {
                let report = online(&mut live).await;
                if !waited(&mut live, &mut reported, reports).await? {
                    watch.lost();
                }
                report
            }
        };
        if let Some(report) = report
            && !reports.say(report).await
        {
            return Ok(());
        }
    }
}

/// Whether the machine is there, as far as the server answers.
async fn online(live: &mut Live) -> Option<Report> {
    live.refresh().await.ok()?;
    Some(Report::Event(live.session.id, Event::Online(live.session.online)))
}

/// What was reported to the process and is not said again.
struct Reported {
    names: HashSet<UserId>,
    /// The version of the owner's list that authors are found by.
    list: Option<u32>,
}

/// A message, opened and checked. `None`: it waits for its key, or came with those that have waited.
async fn said(
    live: &mut Live,
    message: &Message,
    reported: &mut Reported,
    reports: &Reports,
) -> ensemble_account::Result<Option<Report>> {
    let Some(opened) = live.arrived(message).await? else { return Ok(None) };
    listed(live, reported, reports).await;
    Ok(Some(report(live, opened.incoming(), reported).await))
}

/// Reports the messages whose key has come, and a list that was kept back until now. False: they could not all be read now.
async fn waited(live: &mut Live, reported: &mut Reported, reports: &Reports) -> ensemble_account::Result<bool> {
    match live.ask_for_list().await {
        Err(error) if is_passing(&error) => return Ok(false),
        asked => asked?,
    }
    loop {
        let opened = match live.waited().await {
            Err(error) if is_passing(&error) => return Ok(false),
            opened => opened?,
        };
        listed(live, reported, reports).await;
        if opened.is_empty() {
            return Ok(true);
        }
        for one in opened {
            let report = report(live, one.incoming(), reported).await;
            reports.say(report).await;
        }
    }
}

fn is_passing(error: &AccountError) -> bool {
    matches!(error, AccountError::Client(error) if error.is_passing())
}

/// Reports the list that authors are found by, if it has changed.
async fn listed(live: &Live, reported: &mut Reported, reports: &Reports) {
    let Some(version) = live.view.list().filter(|version| reported.list != Some(*version)) else { return };
    reported.list = Some(version);
    let removed = live.view.items().filter_map(|item| match &item.author {
        Author::Person { key, removed_in: Some(list), .. } => Some((key.clone(), *list)),
        _ => None,
    });
    let event = Event::Listed { owner: live.session.owner_id, version, removed: removed.collect() };
    reports.say(Report::Event(live.session.id, event)).await;
}

/// A message with the names that are new in it.
async fn report(live: &mut Live, incoming: Incoming, reported: &mut Reported) -> Report {
    let mut names = Vec::new();
    for user in people(&incoming) {
        if reported.names.insert(user) {
            names.push((user, live.name(user).await));
        }
    }
    live.view.message(incoming.clone());
    Report::Event(live.session.id, Event::Said(Box::new(incoming), names))
}

fn people(incoming: &Incoming) -> impl Iterator<Item = UserId> {
    let author = match &incoming.author {
        Author::Person { user, .. } => Some(*user),
        _ => None,
    };
    let by = match incoming.message.as_ref().map(|message| &message.content) {
        Ok(Content::Resolved(resolved)) => resolved.by,
        _ => None,
    };
    author.into_iter().chain(by)
}
