//! What a host decides in one session, without I/O: what the agent does becomes messages, and what people send becomes orders to the
//! agent.
//!
//! Every call leaves its [`Effects`]. The caller writes the changes to disk first, then carries out the rest.

mod agent;
mod asking;
mod commands;
mod diffs;
mod judge;
mod life;
mod old_key;
mod parts;
mod prompts;
mod restored;
mod servers;
mod summary;
mod take_back;
mod tasks;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use ensemble_agent::{Abilities, Driver, Exit, Kind, Line, Output, Prompt, Start};
use ensemble_protocol::transcript::body::{
    Choice, Content, ContextUse, Failure, KnownList, Message, Permission, Resolved, SlashCommand, State, ToolCall, Turn,
};
use ensemble_protocol::transcript::bounds::MOST_SIGNED;
use ensemble_protocol::transcript::rules::{Access, Memory, OpenRequest, Rules};
use ensemble_protocol::transcript::words::{Cause, ErrorCode, Mode, Phase, StopReason, ToolStatus, TurnState};
use ensemble_protocol::transcript::{Frame, digest};
use ensemble_types::attention::AttentionKind;
use ensemble_types::ids::{UserId, unique};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::behind::{Behind, Lacks};
use super::kept::{Change, Kept, Outgoing, Queued, RunningTurn, local_id};
use parts::Parts;

pub(crate) use commands::Command;
pub(crate) use judge::Asked;
use judge::Judged;
pub use tasks::TaskState;

/// Prompts that may wait in a session.
const MOST_QUEUED: usize = 100;
/// Those of one guest.
const MOST_OF_GUEST: usize = 20;
/// An agent that ends by itself this often, and begins no turn, is not started again until a person asks for it.
const MOST_CRASHES: u32 = 3;

/// One session.
pub(crate) struct Core {
    pub(crate) kept: Kept,
    kind: Kind,
    driver_of: DriverOf,
    as_root: bool,
    rules: Rules,
    /// The newest device list of the owner.
    list: KnownList,
    key_epoch: u32,
    /// Who has made the key of this epoch.
    key_maker: Option<(u32, String)>,
    branch: Option<String>,
    /// `None`: the agent's process does not run.
    driver: Option<Box<dyn Driver>>,
    abilities: Option<Abilities>,
    is_ready: bool,
    /// The prompt that the agent has and has not begun: its key and `localId`. It stays in the queue until then.
    in_flight: Option<(String, String)>,
    /// The prompt whose signer is being looked for, and the one whose signer was found last.
    judging: Option<Asked>,
    judged: Option<Judged>,
    /// The prompt that was refused last.
    refused: Option<(String, String)>,
    open: BTreeMap<String, Open>,
    parts: Parts,
    crashes: u32,
    /// No new turn begins.
    is_draining: bool,
    is_stopping: bool,
    is_interrupting: bool,
    choices: Choices,
    /// The commands that have outlived their turn.
    still_running: Arc<[String]>,
    /// The agent that runs has other MCP servers than it is to have.
    is_outdated: bool,
    /// The messages up to this `seq` come again, because the server was restored.
    comes_again: i64,
    /// Commands up to this `seq` may have come before this process began.
    opened_at: i64,
    said: Option<State>,
    wants: Wants,
    seen_end: Option<AttentionKind>,
    /// Of the turn that runs, or the last one.
    last_failure: Option<(ErrorCode, Option<Timestamp>)>,
    /// How often the agent was refused something in the turn that runs.
    denials: u32,
    /// A person has interrupted the turn that runs.
    is_interrupted_by_person: bool,
    now: Timestamp,
    effects: Effects,
}

/// What a call wants done, in this order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// To be on disk before the rest.
    pub(crate) changes: Vec<Change>,
    /// The agent is to be started, in this way.
    pub(crate) start: Option<Start>,
    /// For the agent's standard input, each without its line feed.
    pub(crate) lines: Vec<String>,
    /// The agent's standard input is to be closed after the lines.
    pub(crate) close: bool,
    /// The commands that have outlived their turn are to be ended.
    pub(crate) end_commands: bool,
    /// What the session wants from its people has changed.
    pub(crate) wants: Option<Wants>,
    /// The signer of this prompt is to be found: [`Core::judged`] takes the answer.
    pub(crate) judge: Option<Asked>,
}

/// What a session wants from its people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) kind: AttentionKind,
    pub(crate) open: u8,
    /// Differs for each thing that it wants.
    pub(crate) count: u64,
}

impl Wants {
    /// Whether people already know of it. The count does not matter when nothing is wanted.
    pub(crate) fn is_as(&self, known: &Self) -> bool {
        self == known || (self.kind == AttentionKind::None && known.kind == AttentionKind::None)
    }
}

/// What can be chosen, as the agent says it.
#[derive(Default)]
struct Choices {
    modes: Vec<Choice>,
    models: Vec<Choice>,
    commands: Vec<SlashCommand>,
    context: Option<ContextUse>,
}

/// A request that is open.
struct Open {
    asked: OpenRequest,
    about: About,
}

/// What an answer does.
enum About {
    /// The agent waits for it: the driver's own name for the request, and what was shown as a change of a file.
    Agent {
        request: String,
        change: Option<diffs::Proposed>,
        permission: Box<Permission>,
    },
    Question {
        request: String,
    },
    /// A guest's prompt waits for the owner.
    Guest {
        prompt: Queued,
    },
    /// The session has cost as much as it may.
    Cost,
}

/// Makes the driver of an agent.
pub(crate) type DriverOf = fn(Kind, Start) -> Box<dyn Driver>;

/// Who the session belongs to, and how its agent is driven.
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) driver_of: DriverOf,
    pub(crate) owner: UserId,
    pub(crate) list: KnownList,
    pub(crate) key_epoch: u32,
    pub(crate) branch: Option<String>,
    pub(crate) as_root: bool,
}

impl Core {
    /// A session as it was kept.
    pub(crate) fn new(kept: Kept, setting: Setting, now: Timestamp) -> Self {
        let Setting { kind, driver_of, owner, list, key_epoch, branch, as_root } = setting;
        let access = Access::of_grants(kept.access.iter().cloned());
        let memory = Memory::of_taken(kept.taken.iter().cloned().map(Into::into), kept.lost);
        Self {
            rules: Rules::kept(owner, access, memory),
            kept,
            kind,
            driver_of,
            as_root,
            list,
            key_epoch,
            key_maker: None,
            branch,
            driver: None,
            abilities: None,
            is_ready: false,
            in_flight: None,
            judging: None,
            judged: None,
            refused: None,
            open: BTreeMap::new(),
            parts: Parts::default(),
            crashes: 0,
            is_draining: false,
            is_stopping: false,
            is_interrupting: false,
            choices: Choices::default(),
            still_running: Arc::default(),
            is_outdated: false,
            said: None,
            wants: Wants::default(),
            comes_again: 0,
            opened_at: 0,
            seen_end: None,
            last_failure: None,
            denials: 0,
            is_interrupted_by_person: false,
            now,
            effects: Effects::default(),
        }
    }

    /// The server has all messages up to this count.
    pub(crate) fn sent(&mut self, n: u64) {
        self.change(Change::Sent(n));
    }

    /// Where the server was when this process began. A command may have stopped the agent before while an earlier message waited.
    pub(crate) fn opened_at(&mut self, newest: i64) {
        self.opened_at = newest;
    }

    /// The agent's processes are marked with this.
    pub(crate) fn process(&mut self, id: Uuid) {
        self.change(Change::Process(id));
    }

    /// The changes alone.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.effects.changes)
    }

    /// What the calls since the last one want done.
    pub(crate) fn take_effects(&mut self) -> Effects {
        self.settle();
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub(crate) fn list(&self) -> &KnownList {
        &self.list
    }

    pub(crate) fn set_list(&mut self, list: KnownList) {
        self.list = list;
    }

    /// The session has a new key.
    pub(crate) fn set_key(&mut self, epoch: u32, sealed: String) {
        if epoch > self.key_epoch {
            self.key_epoch = epoch;
            self.change(Change::HostKey(sealed));
        }
    }

    /// The newest key, and the device or machine key of its maker.
    pub(crate) fn key_is_by(&mut self, newest: (u32, String)) {
        self.key_maker = Some(newest);
    }

    /// Closes every open request.
    fn close_open(&mut self, reason: &str) {
        for (_, open) in std::mem::take(&mut self.open) {
            self.guest_is_refused(open, reason);
        }
        for request_id in self.kept.open.keys().cloned().collect::<Vec<_>>() {
            self.withdraw(request_id, reason);
        }
    }

    fn resolve(&mut self, resolved: Resolved) {
        self.open.remove(&resolved.request_id);
        self.change(Change::Close(resolved.request_id.clone()));
        self.say(Content::Resolved(resolved));
    }

    fn fail(&mut self, code: ErrorCode, text: &str) {
        self.last_failure = Some((code.clone(), None));
        self.say(Content::Error(Failure { code, text: text.to_owned(), retry_at: None }));
    }

    fn change(&mut self, change: Change) {
        self.kept.apply(change.clone());
        self.effects.changes.push(change);
    }

    /// Adds a message.
    fn say(&mut self, content: Content) {
        if self.say_whole(content).is_none() {
            let text = "Something that the agent said is too long to be shown here.".to_owned();
            self.say_whole(Content::Error(Failure { code: ErrorCode::Unknown, text, retry_at: None }));
        }
    }

    /// Adds a message. Returns the digest of its body, by which an answer names it. `None`: it is too long, and was not added.
    fn say_whole(&mut self, content: Content) -> Option<String> {
        let n = self.kept.n.saturating_add(1);
        let local_id = self.kept.mark.as_ref().map(|mark| local_id(n, Some(mark)));
        let body = self.message(n, content).write().ok().filter(|body| signed_size(body) <= MOST_SIGNED)?;
        let digest = digest(&body);
        self.change(Change::Say(Outgoing { n, local_id, body }));
        Some(digest)
    }

    fn message(&self, n: u64, content: Content) -> Message {
        Message {
            local_id: local_id(n, self.kept.mark.as_deref()),
            at: self.now,
            list: self.list.clone(),
            n: Some(n),
            content,
        }
    }
}

/// The bytes of a signed message with this body: the body is JSON inside JSON, with ids, key and signature.
fn signed_size(body: &str) -> usize {
    const REST: usize = 400;
    serde_json::to_string(body).map_or(usize::MAX, |text| text.len() + REST)
}
