//! One session that the editor has open: from opening to closing, and what the machine and other people say in it.

mod ask;
mod control;
mod show;
mod state;
mod turn;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use ensemble_protocol::transcript::Frame;
use ensemble_protocol::transcript::body::Content;
use ensemble_protocol::transcript::view::{Changed, Incoming, Keep, Shown, View};
use ensemble_protocol::transcript::words::Phase;
use ensemble_types::ids::{SessionId, UserId};
use serde_json::{Value, json};

use super::blocks;
use super::out::Out;
use super::texts::Texts;
use crate::rpc::{Error, INTERNAL};
pub(super) use control::Chosen;
use control::{Choice, Waiting};
use state::EditorState;
use turn::Running;

/// An agent needs seconds to start. Its editor may know the session before what can be chosen is known.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Commands of this process that are remembered.
const MOST_OWN: usize = 4_000;
/// Names that are remembered.
const MOST_NAMES: usize = 1_000;

/// A session that was opened for the editor.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) id: SessionId,
    /// The ref that people type.
    pub(crate) reference: String,
    pub(crate) title: Option<String>,
    /// Where the agent works, as its machine has signed it.
    pub(crate) directory: Option<String>,
    pub(crate) user: UserId,
    /// The public key of this device.
    pub(crate) key: String,
    pub(crate) online: bool,
    /// It was begun just now.
    pub(crate) is_new: bool,
    /// Why the agent's machine does not get the MCP servers of the editor.
    pub(crate) left_out: Option<String>,
    /// There are messages before the first that is read.
    pub(crate) is_cut: bool,
}

/// What happens in a session.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A message, and the names of people in it that were not named before.
    Said(Box<Incoming>, Vec<(UserId, String)>),
    /// From now on authors are found by this version of the owner's list. `removed`: keys that were removed from it, and when.
    Listed {
        owner: UserId,
        version: u32,
        removed: HashMap<String, u32>,
    },
    /// What was there at the beginning has been said.
    CaughtUp,
    Frame(Frame),
    /// It has got a title.
    Titled(String),
    /// Whether its machine is there.
    Online(bool),
    /// The connection to the server is lost, or back.
    Connected(bool),
    /// It cannot be followed any more.
    Gone(String),
}

/// What the editor has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    New,
    Load,
    Resume,
}

#[derive(Debug)]
enum Stage {
    /// What was said before is being read.
    Reading,
    /// The agent of a new session starts.
    Starting(Instant),
    Open,
    /// The editor has closed it. It is followed until what was cancelled has begun, and is interrupted.
    Closed,
}

pub(super) struct Session {
    pub(super) id: SessionId,
    opening: Opening,
    how: How,
    /// The request that opened it, until it is answered.
    request: Option<Value>,
    stage: Stage,
    view: View,
    names: HashMap<UserId, String>,
    /// The id of the first item that the editor does not have.
    next_item: u64,
    /// The number of the next text of ours.
    next_note: u64,
    texts: Texts,
    /// Frames that came before the message that begins their turn.
    early: Vec<Frame>,
    shown: EditorState,
    /// What the agent asks, and the request to the editor while it may answer.
    asked: BTreeMap<String, Option<u64>>,
    prompt: Option<Running>,
    /// Prompts that were cancelled before they had begun.
    cancelled: VecDeque<String>,
    /// What the editor wants to choose after what it chooses now.
    choices: VecDeque<Choice>,
    /// Commands that wait for the machine's receipt.
    waiting: BTreeMap<String, Waiting>,
    /// The commands of this process.
    own: VecDeque<String>,
    /// What is answered when the server has the interrupt of a session that was closed: its `localId`, and the requests.
    closing: Option<Closing>,
}

#[derive(Debug)]
struct Closing {
    interrupt: String,
    prompt: Option<Value>,
    close: Option<Value>,
}

impl Session {
    pub(super) fn new(opening: Opening, how: How, request: Value) -> Self {
        Self {
            id: opening.id,
            shown: EditorState::of(!opening.online),
            opening,
            how,
            request: Some(request),
            stage: Stage::Reading,
            view: View::new(Keep::default()),
            names: HashMap::new(),
            next_item: 0,
            next_note: 0,
            texts: Texts::default(),
            early: Vec::new(),
            asked: BTreeMap::new(),
            prompt: None,
            cancelled: VecDeque::new(),
            choices: VecDeque::new(),
            waiting: BTreeMap::new(),
            own: VecDeque::new(),
            closing: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Takes what happens. False: the session is over for the editor.
    pub(super) fn event(&mut self, event: Event, out: &mut Out) -> bool {
        match event {
            Event::Said(incoming, names) => {
                self.names.extend(names.into_iter().take(MOST_NAMES.saturating_sub(self.names.len())));
                let changed = self.view.message(*incoming);
                match self.stage {
                    Stage::Open => self.changed(&changed, out),
                    Stage::Starting(_) => self.start(out),
                    Stage::Reading => {}
                    Stage::Closed => return self.closed(&changed, out),
                }
            }
            Event::Listed { owner, version, removed } => drop(self.view.checked(owner, version, &removed)),
            Event::Gone(why) if matches!(self.stage, Stage::Closed) => {
                self.close_now(Err(&why), out);
                return false;
            }
            _ if matches!(self.stage, Stage::Closed) => {}
            Event::CaughtUp => self.caught_up(out),
            Event::Frame(frame) => self.frame(frame, out),
            Event::Titled(title) => self.titled(&title, out),
            Event::Online(is_online) => self.online(is_online, out),
            Event::Connected(is_there) => self.connected(is_there, out),
            Event::Gone(why) => {
                self.gone(&why, out);
                return false;
            }
        }
        true
    }

    fn caught_up(&mut self, out: &mut Out) {
        if !matches!(self.stage, Stage::Reading) {
            return;
        }
        if self.how == How::New && self.opening.is_new {
            self.stage = Stage::Starting(out.now + STARTS_WITHIN);
            return self.start(out);
        }
        match self.how {
            // The editor takes updates of a session that it has asked for, and of no other.
            How::Load => {
                self.show_all(out);
                self.answer(out);
            }
            How::New => {
                self.answer(out);
                self.show_all(out);
            }
            How::Resume => {
                self.answer(out);
                self.next_item = self.view.items().next_back().map_or(0, |item| item.id + 1);
            }
        }
        self.open(out);
    }

    /// Answers for a new session when its agent is there, or late.
    fn start(&mut self, out: &mut Out) {
        let Stage::Starting(until) = self.stage else { return };
        let is_ready = self.view.state().is_some_and(|state| state.phase != Phase::Starting);
        if is_ready || out.now >= until {
            self.answer(out);
            self.show_all(out);
            self.open(out);
        }
    }

    fn answer(&mut self, out: &mut Out) {
        let Some(request) = self.request.take() else { return };
        let state = self.view.state();
        let mut fields = blocks::offers(state);
        self.shown.mode = state.map(|state| state.mode.clone());
        self.shown.options = fields.get("configOptions").cloned().unwrap_or_default();
        if self.how == How::New {
            fields.insert("sessionId".to_owned(), json!(self.id));
        }
        out.answer(&request, Ok(Value::Object(fields)));
    }

    fn open(&mut self, out: &mut Out) {
        self.stage = Stage::Open;
        if let Some(title) = self.opening.title.take() {
            self.titled(&title, out);
        }
        self.state(out);
        if self.shown.is_away {
            self.note(out, "The machine of this session is away. What you send waits until it is back.");
        }
        if let Some(why) = self.opening.left_out.take() {
            self.note(out, &why);
        }
        self.requests(out);
    }

    fn changed(&mut self, changed: &Changed, out: &mut Out) {
        // The editor has a prompt from when it was sent.
        let has_moved =
            changed.items.iter().any(|id| self.view.item(*id).is_some_and(|item| item.shown == Shown::Moved));
        for id in &changed.items {
            let Some(item) = self.view.item(*id).cloned() else { continue };
            let is_known = has_moved && matches!(item.shown, Shown::Prompt(..));
            let is_new = item.id >= self.next_item && !is_known;
            self.next_item = self.next_item.max(item.id + 1);
            self.show(&item, is_new, out);
        }
        if changed.plan {
            self.plan(out);
        }
        if changed.state {
            self.state(out);
        }
        self.requests(out);
    }

    fn gone(&mut self, why: &str, out: &mut Out) {
        let error = || Error::new(INTERNAL, why);
        if let Some(request) = self.request.take() {
            out.answer(&request, Err(error()));
        } else {
            self.note(out, why);
        }
        self.finish(out, Err(error()));
        self.fail_controls(&error(), out);
    }

    /// The editor has opened it again, so this is its end. Its turn continues.
    pub(super) fn replaced(&mut self, out: &mut Out) {
        if let Some(request) = self.request.take() {
            out.answer(&request, Err(Error::new(INTERNAL, "The session was opened again.")));
        }
        self.finish(out, Err(Error::new(INTERNAL, "The session was opened again. The prompt is being done.")));
        self.close(None, out);
    }

    /// The editor closes it: its turn is cancelled, and the session continues elsewhere. True: the interrupt is not stored yet, or a prompt
    /// that is cancelled has not begun, so the session is to be followed.
    pub(super) fn close(&mut self, request: Option<Value>, out: &mut Out) -> bool {
        let interrupt = self.cancel_prompt(out);
        self.stage = Stage::Closed;
        self.fail_controls(&Error::new(INTERNAL, "The session was closed."), out);
        for call in std::mem::take(&mut self.asked).into_values().flatten() {
            out.withdraw(call, "The session was closed.");
        }
        // An editor that quits closes its sessions: what it is said to have done has to be done.
        if let Some(interrupt) = interrupt {
            let prompt = self.prompt.take().map(|prompt| prompt.request);
            self.closing = Some(Closing { interrupt, prompt, close: request });
        } else if let Some(request) = request {
            out.answer(&request, Ok(json!({})));
        }
        self.is_followed()
    }

    /// Whether there is something left to be done in a session that is closed.
    fn is_followed(&self) -> bool {
        !self.cancelled.is_empty() || self.closing.is_some()
    }

    /// Answers for a session that was closed.
    fn close_now(&mut self, result: Result<(), &str>, out: &mut Out) {
        let Some(Closing { prompt, close, .. }) = self.closing.take() else { return };
        let error = |why: &str| Error::new(INTERNAL, format!("The turn was not interrupted, and may continue: {why}"));
        if let Some(prompt) = prompt {
            out.answer(&prompt, result.map(|()| json!({"stopReason": "cancelled"})).map_err(error));
        }
        if let Some(close) = close {
            out.answer(&close, result.map(|()| json!({})).map_err(error));
        }
    }

    /// Takes over what was cancelled in the one that was open before.
    pub(super) fn cancels(&mut self, before: Self) {
        self.cancelled = before.cancelled;
        self.closing = before.closing;
    }

    /// The earliest time at which something is late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let starting = match self.stage {
            Stage::Starting(until) => Some(until),
            _ => None,
        };
        let waiting = self.waiting.values().map(|waiting| waiting.until);
        starting.into_iter().chain(waiting).chain(self.prompt.iter().filter_map(Running::deadline)).min()
    }

    pub(super) fn tick(&mut self, out: &mut Out) {
        self.start(out);
        self.late_controls(out);
        self.late_prompt(out);
    }

    /// Signs and sends a command.
    fn send(&mut self, content: Content, out: &mut Out) -> String {
        let local_id = out.send(self.id, content);
        if self.own.len() >= MOST_OWN {
            self.own.pop_front();
        }
        self.own.push_back(local_id.clone());
        local_id
    }

    /// The server has a command, or it was not sent. False: the session is over for the editor.
    pub(super) fn sent(&mut self, local_id: &str, result: Result<(), &str>, out: &mut Out) -> bool {
        if self.closing.as_ref().is_some_and(|closing| closing.interrupt == local_id) {
            self.close_now(result, out);
            return self.is_open() || self.request.is_some() || self.is_followed();
        }
        if let Err(why) = result {
            self.failed(local_id, why, out);
        }
        true
    }

    fn failed(&mut self, local_id: &str, why: &str, out: &mut Out) {
        let error = Error::new(INTERNAL, why);
        if self.prompt.as_ref().is_some_and(|prompt| prompt.local_id == local_id) {
            self.finish(out, Err(error));
        } else if let Some(waiting) = self.waiting.remove(local_id) {
            self.not_done(waiting, error, true, out);
        }
    }
}
