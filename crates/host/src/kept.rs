//! What a host keeps of a session, and the changes that it writes down one after the other.

mod task;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use ensemble_agent::McpServer;
use ensemble_protocol::transcript::body::{AccessGrant, Attachment};
use ensemble_protocol::transcript::rules::{self, Taken};
use ensemble_protocol::transcript::words::{Cause, Mode, ReceiptCode};
use ensemble_types::ids::{SessionId, UserId, unique};
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use task::TaskEnd;
pub(crate) use task::TaskTurn;

use super::behind::Behind;
use super::served::Left;

/// Commands are remembered for a day and some minutes; see `ensemble_protocol::transcript::rules`.
const REMEMBERED: Duration = Duration::from_secs(25 * 3_600);

/// Of each person, and of all keys that are in no list. `ensemble_protocol::transcript::rules` remembers one less: what it rejects as older than it
/// remembers is known by that one after a restart.
const MOST_TAKEN: usize = rules::MOST_TAKEN + 1;

/// All that a host knows of a session when it starts again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kept {
    pub(crate) session: SessionId,
    /// The name of the agent, as in `claude`.
    pub(crate) agent: String,
    pub(crate) directory: PathBuf,
    /// The session's keys, sealed to this machine.
    pub(crate) host_key: String,
    pub(crate) mode: Mode,
    pub(crate) model: Option<String>,
    /// A UUID that becomes the agent's id of the conversation, where the agent takes one.
    pub(crate) conversation: Uuid,
    /// The agent's id of the conversation, once it has one.
    pub(crate) resume: Option<String>,
    /// The agent is to continue a copy of that conversation, and has made none yet.
    #[serde(default)]
    pub(crate) fork: bool,
    /// Of all turns so far, in US dollars.
    pub(crate) cost_usd: Option<f64>,
    /// The host's own count of messages.
    pub(crate) n: u64,
    /// Ends the `localId`s since the log was lost: a message that only the lost log knew of may have the same count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
    /// Messages that the server has not confirmed, in order.
    pub(crate) unsent: VecDeque<Outgoing>,
    /// Of a server that was restored from a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) behind: Option<Behind>,
    /// The `seq` of the last message of the server that was dealt with.
    pub(crate) seen: i64,
    pub(crate) taken: VecDeque<TakenCommand>,
    /// Commands from before this time are not taken: what was remembered of them is lost.
    pub(crate) lost: Option<Timestamp>,
    pub(crate) access: Vec<AccessGrant>,
    /// The newest key that a person may have whose share was removed: nothing more is written under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_key: Option<u32>,
    /// Prompts that wait for their turn.
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) turn: Option<RunningTurn>,
    /// Requests that are open, by their id, and whether each is a question.
    pub(crate) open: BTreeMap<String, bool>,
    /// Tool calls that have not ended.
    pub(crate) tools: BTreeSet<String>,
    /// Marks the processes of the agent that was started last.
    pub(crate) process: Option<Uuid>,
    pub(crate) ended: bool,
    /// The agent was ended in the middle of a turn, and does not know it yet.
    #[serde(default)]
    pub(crate) cut_off: bool,
    /// People were notified that a key is missing.
    #[serde(default)]
    pub(crate) has_said_no_key: bool,
    /// What the session may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<CostLimit>,
    /// The newest prompt of the task that this session is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskTurn>,
    /// The turn that continues while no program hosts the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<Left>,
    /// What an editor has for the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mcp_servers: Vec<McpServer>,
}

/// What a session may cost before its people are asked, in US dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CostLimit {
    /// As it was given. An answer adds it again.
    pub(crate) each: f64,
    /// The cost at which they are asked next.
    pub(crate) until: f64,
}

impl CostLimit {
    pub(crate) fn new(each: f64) -> Self {
        Self { each, until: each }
    }
}

/// A message of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outgoing {
    pub(crate) n: u64,
    /// As in the body. `None`: `h` and the count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) local_id: Option<String>,
    pub(crate) body: String,
}

impl Outgoing {
    pub(crate) fn local_id(&self) -> String {
        self.local_id.clone().unwrap_or_else(|| local_id(self.n, None))
    }
}

/// The `localId` of the host's message with this count.
pub(crate) fn local_id(n: u64, mark: Option<&str>) -> String {
    mark.map_or_else(|| format!("h{n}"), |mark| format!("h{n}-{mark}"))
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queued {
    /// Its signer.
    pub(crate) user: UserId,
    pub(crate) key: String,
    /// As in `ensemble_protocol::transcript::rules::Signer`.
    pub(crate) account: String,
    pub(crate) local_id: String,
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) attachments: Vec<Attachment>,
    /// The owner has let the agent do it.
    #[serde(default)]
    pub(crate) is_approved: bool,
    /// The agent has it. Whether it has begun is not known.
    #[serde(default)]
    pub(crate) is_given: bool,
    /// A task's, which the owner has signed as a whole.
    #[serde(default)]
    pub(crate) is_task: bool,
}

/// The turn that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunningTurn {
    pub(crate) id: String,
    pub(crate) cause: Cause,
    pub(crate) prompt_id: Option<String>,
}

/// A command that got its receipt, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TakenCommand {
    /// `None`: its key was in no list.
    pub(crate) user: Option<UserId>,
    pub(crate) key: String,
    pub(crate) local_id: String,
    pub(crate) at: Timestamp,
    pub(crate) taken: Timestamp,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rejected: Option<ReceiptCode>,
}

/// A change of what is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// A message is to be sent.
    Say(Outgoing),
    /// The server has all messages up to this count.
    Sent(u64),
    Seen(i64),
    /// The server was restored. The messages after this `seq` are to be read again.
    Restored(i64),
    Behind(Behind),
    Take(TakenCommand),
    Access(AccessGrant),
    OldKey(u32),
    Queue(Queued),
    /// The prompt that this key has signed with this `localId`.
    Unqueue(String, String),
    /// The same for a prompt that a person has taken back.
    TakeBack(String, String),
    Give(String, String),
    Turn(Option<RunningTurn>),
    /// A request is open; `true`: it is a question.
    Ask(String, bool),
    Close(String),
    Tool(String),
    ToolEnded(String),
    Mode(Mode),
    Model(String),
    /// The agent has a conversation with this id.
    Conversation(String),
    /// The next start begins a conversation with this id.
    Forget(Uuid),
    Cost(f64),
    Limit(CostLimit),
    Process(Uuid),
    Ended(bool),
    CutOff(bool),
    SaidNoKey,
    HostKey(String),
    Task(TaskTurn),
    Left(Option<Box<Left>>),
    McpServers(Vec<McpServer>),
}

impl Kept {
    /// A session that begins in the mode `ask`.
    pub(crate) fn new(session: SessionId, agent: String, directory: PathBuf, host_key: String) -> Self {
        Self {
            session,
            agent,
            directory,
            host_key,
            mode: Mode::Ask,
            model: None,
            conversation: unique(),
            resume: None,
            fork: false,
            cost_usd: None,
            n: 0,
            mark: None,
            unsent: VecDeque::new(),
            behind: None,
            seen: 0,
            taken: VecDeque::new(),
            lost: None,
            access: Vec::new(),
            old_key: None,
            queue: VecDeque::new(),
            turn: None,
            open: BTreeMap::new(),
            tools: BTreeSet::new(),
            process: None,
            ended: false,
            cut_off: false,
            has_said_no_key: false,
            limit: None,
            task: None,
            left: None,
            mcp_servers: Vec::new(),
        }
    }

    /// The agent's id of the conversation that is this session's alone.
    pub(crate) fn own_conversation(&self) -> Option<String> {
        let id = || self.resume.clone().unwrap_or_else(|| self.conversation.to_string());
        (!self.fork).then(id)
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Say(message) => {
                // A new log repeats what its snapshot has, so that it is kept there.
                if message.n > self.n {
                    self.n = message.n;
                    self.unsent.push_back(message);
                }
            }
            Change::Sent(n) => {
                while self.unsent.front().is_some_and(|message| message.n <= n) {
                    self.unsent.pop_front();
                }
            }
            Change::Seen(seq) => self.seen = self.seen.max(seq),
            Change::Restored(seq) => self.seen = seq,
            Change::Behind(behind) => self.behind = Some(behind),
            Change::Take(command) => self.remember(command),
            Change::Access(grant) => {
                self.access.retain(|known| known.user != grant.user);
                self.access.push(grant);
            }
            Change::OldKey(epoch) => self.old_key = self.old_key.max(Some(epoch)),
            Change::Queue(prompt) => self.queue.push_back(prompt),
            Change::Unqueue(key, id) => self.unqueue(&key, &id),
            Change::TakeBack(key, id) => {
                self.unqueue(&key, &id);
                let found = self.taken.iter_mut().find(|command| command.key == key && command.local_id == id);
                found.into_iter().for_each(|command| command.rejected = Some(ReceiptCode::TakenBack));
            }
            Change::Give(key, id) => {
                let found = self.queue.iter_mut().find(|prompt| prompt.key == key && prompt.local_id == id);
                found.into_iter().for_each(|prompt| prompt.is_given = true);
            }
            Change::Turn(turn) => self.turn = turn,
            Change::Ask(request, is_question) => drop(self.open.insert(request, is_question)),
            Change::Close(request) => drop(self.open.remove(&request)),
            Change::Tool(id) => drop(self.tools.insert(id)),
            Change::ToolEnded(id) => drop(self.tools.remove(&id)),
            Change::Mode(mode) => self.mode = mode,
            Change::Model(model) => self.model = Some(model),
            Change::Conversation(id) => (self.resume, self.fork) = (Some(id), false),
            Change::Forget(id) => {
                self.conversation = id;
                (self.resume, self.fork) = (None, false);
                self.cut_off = false;
            }
            Change::Cost(usd) => self.cost_usd = Some(usd),
            Change::Limit(limit) => self.limit = Some(limit),
            Change::Process(id) => self.process = Some(id),
            Change::Ended(ended) => self.ended = ended,
            Change::CutOff(is_cut_off) => self.cut_off = is_cut_off,
            Change::SaidNoKey => self.has_said_no_key = true,
            Change::HostKey(sealed) => self.host_key = sealed,
            Change::Task(task) => self.task = Some(task),
            Change::McpServers(servers) => self.mcp_servers = servers,
            Change::Left(left) => self.left = left.map(|left| *left),
        }
    }

    /// As `ensemble_protocol::transcript::rules` remembers it.
    fn unqueue(&mut self, key: &str, id: &str) {
        self.queue.retain(|prompt| !(prompt.key == key && prompt.local_id == id));
    }

    fn remember(&mut self, command: TakenCommand) {
        let (user, now) = (command.user, command.taken);
        self.taken.push_back(command);
        self.taken.retain(|known| now.since(known.taken.max(known.at)) <= REMEMBERED);
        let of_user = || self.taken.iter().enumerate().filter(|(_, known)| known.user == user);
        if self.taken.len() > MOST_TAKEN
            && of_user().count() > MOST_TAKEN
            && let Some((oldest, _)) = of_user().min_by_key(|(_, known)| known.at)
        {
            self.taken.remove(oldest);
        }
    }

    /// The server has confirmed the messages up to this count.
    pub(crate) fn confirmed(&self) -> u64 {
        self.unsent.front().map_or(self.n, |first| first.n.saturating_sub(1))
    }

    /// The bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.iter().map(|message| message.body.len()).sum()
    }
}

impl From<Taken> for TakenCommand {
    fn from(taken: Taken) -> Self {
        let Taken { user, key, local_id, at, taken, rejected } = taken;
        Self { user, key, local_id, at, taken, rejected }
    }
}

impl From<TakenCommand> for Taken {
    fn from(command: TakenCommand) -> Self {
        let TakenCommand { user, key, local_id, at, taken, rejected } = command;
        Self { user, key, local_id, at, taken, rejected }
    }
}
