//! What the server shows of a session: the host's own newest messages, from which it continues when its log is lost or old.
//!
//! A server can keep messages back and show old ones. So only what this machine's key has signed counts, and nothing that gives
//! people or the agent a right is read from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ensemble_client::{Error, Window};
use ensemble_protocol::seal::{self, KeyRing, Purpose};
use ensemble_protocol::transcript::Envelope;
use ensemble_protocol::transcript::body::{Content, Message, Writer};
use ensemble_protocol::transcript::words::{Cause, ErrorCode, Phase, StopReason, ToolStatus, TurnState};
use ensemble_types::ids::SessionId;
use ensemble_types::messages::Message as Stored;

use super::Host;
use super::kept::{Kept, RunningTurn, TaskEnd, TaskTurn};
use super::keys::{Keys, NoKey};
use super::spool::Card;

const PAGE: u32 = 100;
/// The newest own message is near the end.
const FIRST_PAGE: u32 = 20;
/// Pages that are read at most.
const MOST_PAGES: usize = 200;
/// Commands that get a receipt because the lost log may have had it.
const MOST_UNANSWERED: usize = 200;

/// What was found, newest message first.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The `seq` of the newest message.
    newest: i64,
    /// The host's own messages by their count, each with its `seq`.
    own: BTreeMap<u64, (i64, Fact)>,
    /// The key and `localId` of the commands with a receipt.
    answered: HashSet<(String, String)>,
    /// Those of all commands that were seen, newest first.
    commands: Vec<(String, String)>,
}

/// What one of the host's own messages says about what may still be open.
#[derive(Debug)]
enum Fact {
    State { phase: Phase, resume: Option<String>, model: Option<String>, cost_usd: Option<f64> },
    Turn(RunningTurn, TurnState),
    Asked(String, bool),
    Resolved(String),
    Tool(String, bool),
    Other,
}

/// Where a session continues after its log was lost.
pub(crate) struct Recovered {
    pub(crate) kept: Kept,
    /// The key and `localId` of commands without a receipt, oldest first.
    pub(crate) unanswered: Vec<(String, String)>,
}

impl Shown {
    /// Takes a message of the server. `key` is this machine's.
    pub(crate) fn add(&mut self, session: SessionId, key: &str, stored: &Stored, opened: &[u8]) {
        self.newest = self.newest.max(stored.seq);
        let Ok(envelope) = Envelope::open(session, opened) else { return };
        let Ok(message) = envelope.message() else { return };
        if message.local_id != stored.local_id {
            return;
        }
        match (message.content.writer(), message.n) {
            (Writer::Client, _) => self.commands.push((envelope.key, message.local_id)),
            (Writer::Host, Some(n)) if envelope.key == key => self.add_own((n, stored.seq), message),
            _ => {}
        }
    }

    fn add_own(&mut self, (n, seq): (u64, i64), message: Message) {
        let fact = match message.content {
            Content::State(state) => Fact::State {
                phase: state.phase,
                resume: state.provider_session_id,
                model: state.model,
                cost_usd: state.cost_usd,
            },
            Content::Turn(turn) => {
                Fact::Turn(RunningTurn { id: turn.turn_id, cause: turn.cause, prompt_id: turn.prompt_id }, turn.state)
            }
            Content::Permission(asked) => Fact::Asked(asked.request_id, false),
            Content::Question(asked) => Fact::Asked(asked.request_id, true),
            Content::Resolved(resolved) => Fact::Resolved(resolved.request_id),
            Content::ToolCall(call) => match call.status {
                Some(ToolStatus::Pending | ToolStatus::InProgress) => Fact::Tool(call.tool_call_id, true),
                Some(_) => Fact::Tool(call.tool_call_id, false),
                None => Fact::Other,
            },
            Content::Receipt(receipt) => {
                self.answered.insert((receipt.key, receipt.command_id));
                Fact::Other
            }
            _ => Fact::Other,
        };
        self.own.entry(n).or_insert((seq, fact));
    }

    /// The `seq` of the newest message.
    pub(crate) fn newest(&self) -> i64 {
        self.newest
    }

    /// The newest count of the host's own messages.
    pub(crate) fn n(&self) -> u64 {
        self.own.last_key_value().map_or(0, |(n, _)| *n)
    }

    /// The newest of the host's own messages with a count up to this one.
    pub(crate) fn newest_own(&self, upto: u64) -> Newest {
        let found = self.own.range(..=upto).next_back();
        found.map(|(n, (seq, _))| Newest { n: *n, seq: *seq, last: self.newest }).unwrap_or_default()
    }

    /// Whether nothing from before can be open: the newest state but one of an agent at rest was found.
    fn is_enough(&self) -> bool {
        self.own.values().any(|(_, fact)| matches!(fact, Fact::State { phase: Phase::Idle, .. }))
    }

    /// How the session continues with what was found.
    pub(crate) fn recovered(self, card: Card) -> Recovered {
        let n = self.n();
        let Card { session, agent, directory, host_key, old_key, process, conversation: _ } = card;
        let mut kept =
            Kept { n, seen: self.newest, old_key, process, ..Kept::new(session, agent, directory, host_key) };
        let mut open: BTreeMap<String, bool> = BTreeMap::new();
        let mut tools: BTreeSet<String> = BTreeSet::new();
        for (_, fact) in self.own.into_values() {
            match fact {
                Fact::State { phase, resume, model, cost_usd } => {
                    kept.ended = phase == Phase::Ended;
                    (kept.resume, kept.model, kept.cost_usd) = (resume, model, cost_usd);
                }
                Fact::Turn(turn, state) => {
                    if turn.cause == Cause::Task {
                        kept.task = turn.prompt_id.clone().map(begun);
                    }
                    kept.turn = (state == TurnState::Started).then_some(turn);
                    tools.clear();
                }
                Fact::Asked(id, is_question) => drop(open.insert(id, is_question)),
                Fact::Resolved(id) => drop(open.remove(&id)),
                Fact::Tool(id, true) => drop(tools.insert(id)),
                Fact::Tool(id, false) => drop(tools.remove(&id)),
                Fact::Other => {}
            }
        }
        (kept.open, kept.tools) = (open, tools);
        let answered = self.answered;
        let unanswered = self.commands.into_iter().filter(|command| !answered.contains(command));
        let mut unanswered: Vec<_> = unanswered.take(MOST_UNANSWERED).collect();
        unanswered.reverse();
        Recovered { kept, unanswered }
    }
}

/// A task whose log is lost: how it ended is not known, and the agent had begun with it.
fn begun(prompt_id: String) -> TaskTurn {
    let ended = TaskEnd { stop: Some(StopReason::Error), error: Some(ErrorCode::Crashed), ..TaskEnd::default() };
    TaskTurn { prompt_id, has_begun: true, ended: Some(ended) }
}

/// Reads the session's newest messages. `known` is the count of the log, if there is one: then only the newest own message is looked
/// for.
///
/// # Errors
/// The outer error: the server cannot be asked now. The inner one says why what it shows is not enough.
pub(crate) async fn read(
    host: &Host,
    keys: &Keys,
    session: SessionId,
    known: Option<u64>,
) -> Result<Result<Shown, String>, Error> {
    match keys.refresh().await {
        Ok(_) => {}
        Err(NoKey::Client(error)) => return Err(error),
        Err(why) => tracing::warn!(session.id = %session, "No newer key: {why}"),
    }
    let (ring, key) = (keys.ring(), host.key.public_key());
    let mut shown = Shown::default();
    let mut before = None;
    for _ in 0..MOST_PAGES {
        let window = Window { before, after: None, limit: Some(if known.is_some() { FIRST_PAGE } else { PAGE }) };
        let page = host.client.message_page(session, window).await?;
        for stored in &page.messages {
            shown.newest = shown.newest.max(stored.seq);
            let Some(opened) = open(&ring, session, stored) else { continue };
            shown.add(session, &key, stored, &opened);
        }
        let first = page.messages.iter().map(|message| message.seq).min();
        let is_enough = if known.is_some() { shown.n() > 0 } else { shown.is_enough() };
        if is_enough || !page.has_more || first.is_none() || (before.is_some() && first >= before) {
            return Ok(Ok(shown));
        }
        before = first;
    }
    if shown.n() > 0 || known.is_some() {
        return Ok(Ok(shown));
    }
    Ok(Err(format!("the server shows none of its messages among the newest {}", MOST_PAGES * PAGE as usize)))
}

/// The newest of the host's own messages at the server, with a count up to a bound. All are 0 when it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) n: u64,
    pub(crate) seq: i64,
    /// The newest `seq` of all messages.
    pub(crate) last: i64,
}

/// Looks for the newest own message with a count up to `upto`. `None`: it is not among those that are read.
///
/// # Errors
/// The server cannot be asked now.
pub(crate) async fn newest_own(
    host: &Host,
    keys: &Keys,
    session: SessionId,
    upto: u64,
) -> Result<Option<Newest>, Error> {
    let (ring, key) = (keys.ring(), host.key.public_key());
    let own = |stored: &Stored| {
        let n = own_count((&ring, &key), session, stored).filter(|n| *n <= upto)?;
        Some(Newest { n, seq: stored.seq, last: 0 })
    };
    let (mut before, mut last) = (None, 0);
    for _ in 0..MOST_PAGES {
        let limit = if before.is_none() { FIRST_PAGE } else { PAGE };
        let page = host.client.message_page(session, Window { before, after: None, limit: Some(limit) }).await?;
        last = last.max(page.last_seq);
        if let Some(found) = page.messages.iter().filter_map(own).max_by_key(|found| found.n) {
            return Ok(Some(Newest { last, ..found }));
        }
        let first = page.messages.iter().map(|message| message.seq).min();
        if !page.has_more || first.is_none() || (before.is_some() && first >= before) {
            return Ok(Some(Newest { last, ..Newest::default() }));
        }
        before = first;
    }
    Ok(None)
}

/// Whether the server still has this message. A count of 0 stands for no message, and is not asked for.
///
/// # Errors
/// The server cannot be asked now.
pub(crate) async fn has(host: &Host, keys: &Keys, session: SessionId, newest: Newest) -> Result<bool, Error> {
    if newest.n == 0 {
        return Ok(true);
    }
    let window = Window { before: None, after: newest.seq.checked_sub(1), limit: Some(1) };
    let page = host.client.message_page(session, window).await?;
    let (ring, key) = (keys.ring(), host.key.public_key());
    Ok(page.messages.iter().any(|stored| own_count((&ring, &key), session, stored) == Some(newest.n)))
}

/// The count of a message, if it is the host's own.
fn own_count((ring, key): (&KeyRing, &str), session: SessionId, stored: &Stored) -> Option<u64> {
    let envelope = Envelope::open(session, &open(ring, session, stored)?).ok()?;
    let message = envelope.message().ok().filter(|message| message.local_id == stored.local_id)?;
    message.n.filter(|_| envelope.key == key && message.content.writer() == Writer::Host)
}

fn open(ring: &KeyRing, session: SessionId, stored: &Stored) -> Option<Vec<u8>> {
    seal::open(ring, Purpose::Message(session), &stored.content).ok()
}
