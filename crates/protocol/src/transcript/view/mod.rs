//! What a client shows of a session: folded from messages in `seq` order and from live frames.
//!
//! One message costs the same however many came before, and only the newest items are kept.

mod commands;
mod item;
mod live;
mod older;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeSet, HashMap, VecDeque};

use commands::{Lists, Was};
use item::command;
pub use item::{Asks, Author, Card, Item, Note, Shown, Taken};
pub use live::Growing;
use live::Live;
use older::Unmatched;

use crate::transcript::body::{BadBody, Content, Message, Plan, Receipt, Resolved, State, TextPart, ToolCall, Writer};
use crate::transcript::frame::Frame;
use crate::transcript::words::{ReceiptOutcome, ToolStatus};

/// How much is kept. Older items are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub items: usize,
    pub bytes: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { items: 2_000, bytes: 32 << 20 }
    }
}

/// What a message or a frame has changed, so that a screen draws only that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The ids of the items that are new or different.
    pub items: Vec<u64>,
    pub state: bool,
    pub plan: bool,
    pub live: bool,
}

impl Changed {
    /// Adds what has changed after it.
    pub fn add(&mut self, later: Self) {
        self.items.extend(later.items);
        self.state |= later.state;
        self.plan |= later.plan;
        self.live |= later.live;
    }
}

/// A message of the server, opened: where it stands, who signed it and what it says.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The server's number.
    pub seq: u64,
    pub author: Author,
    /// SHA-256 (base64url) of the body.
    pub digest: String,
    pub message: Result<Message, BadBody>,
}

/// The session as a client shows it.
#[derive(Clone, Debug)]
pub struct View {
    keep: Keep,
    items: VecDeque<Item>,
    /// Of the first item.
    first_id: u64,
    bytes: usize,
    last_seq: Option<u64>,
    last_n: Option<u64>,
    lists: Lists,
    /// Commands as they were before they were judged by what came after them, by their ids.
    was: HashMap<u64, Was>,
    tools: HashMap<String, u64>,
    requests: HashMap<String, u64>,
    /// By the key that signed it and its `localId`.
    commands: HashMap<(String, String), u64>,
    /// The prompts that wait for their turn, by their `localId`.
    queued: HashMap<String, u64>,
    /// The prompts that no turn has taken, by their ids.
    waiting: BTreeSet<u64>,
    /// Open requests, oldest first.
    open: VecDeque<Card>,
    /// What became of requests and commands that are not shown: an older part may bring them.
    unmatched: Unmatched,
    state: Option<State>,
    plan: Option<Plan>,
    live: Live,
    /// What comes after the items is encrypted with a key that this device has not been given yet.
    pub lacks_key: bool,
}

/// The id of the first item. Older ones that are loaded later have lower ids.
const FIRST_ID: u64 = 1 << 32;

/// The open requests that are kept: what `attention.open` counts to.
const MOST_OPEN: usize = 99;
/// The prompts that wait at once; a host takes fewer.
const MOST_QUEUED: usize = 1_000;

impl Default for View {
    fn default() -> Self {
        Self::new(Keep::default())
    }
}

impl View {
    /// An empty view that keeps so much.
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            items: VecDeque::new(),
            first_id: FIRST_ID,
            bytes: 0,
            last_seq: None,
            last_n: None,
            lists: Lists::default(),
            was: HashMap::new(),
            tools: HashMap::new(),
            requests: HashMap::new(),
            commands: HashMap::new(),
            queued: HashMap::new(),
            waiting: BTreeSet::new(),
            open: VecDeque::new(),
            unmatched: Unmatched::default(),
            state: None,
            plan: None,
            live: Live::default(),
            lacks_key: false,
        }
    }

    /// The items that are kept, oldest first.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = &Item> + ExactSizeIterator {
        self.items.iter()
    }

    /// The item with this id, while it is kept.
    pub fn item(&self, id: u64) -> Option<&Item> {
        let place = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        self.items.get(place)
    }

    /// The open requests, oldest first. They are kept although their items may be dropped.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &Card> {
        self.open.iter()
    }

    /// The newest state.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// The newest plan.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The texts that are being written, by their part. None outlives the message with the whole text, nor its turn.
    pub fn growing(&self) -> impl Iterator<Item = (u32, &Growing)> {
        self.live.parts()
    }

    /// Takes a live frame.
    pub fn frame(&mut self, frame: &Frame) -> Changed {
        Changed { live: self.live.take(frame), ..Changed::default() }
    }

    /// Takes a message. One with a `seq` that was there already is ignored.
    pub fn message(&mut self, incoming: Incoming) -> Changed {
        let mut changed = Changed::default();
        let Incoming { seq, author, digest, message } = incoming;
        if self.last_seq.is_some_and(|last| seq <= last) {
            return changed;
        }
        self.last_seq = Some(seq);
        match (author, message) {
            (Author::Unknown(why), _) => {
                let author = Author::Unknown(why.clone());
                self.note(&mut changed, seq, author, Note::NotSigned(why));
            }
            (author, Err(error)) => {
                self.note(&mut changed, seq, author, Note::Unreadable(error.to_string()));
            }
            (author, Ok(message)) => self.signed(&mut changed, seq, author, digest, message),
        }
        changed
    }

    fn signed(&mut self, changed: &mut Changed, seq: u64, author: Author, digest: String, message: Message) {
        let writer = message.content.writer();
        let is_by_its_writer = match author {
            Author::Host => writer != Writer::Client,
            _ => writer != Writer::Host,
        };
        if !is_by_its_writer {
            let by = if author == Author::Host { "a person's device" } else { "the session's machine" };
            let why = format!("a {} that is not signed by {by}", message.content.type_name());
            self.note(changed, seq, author, Note::NotSigned(why));
            return;
        }
        match author {
            Author::Host => {
                if self.count(changed, seq, message.n) {
                    self.named(changed, seq, message.n.unwrap_or_default(), message.list.version);
                    self.host(changed, seq, digest, message);
                }
            }
            Author::Person { .. } => self.person(changed, seq, author, message),
            Author::Unknown(_) => {}
        }
    }

    /// Compares the host's count with the one before. False: the message is not shown.
    fn count(&mut self, changed: &mut Changed, seq: u64, n: Option<u64>) -> bool {
        let Some(n) = n else {
            let why = "a message of the machine without its count".to_owned();
            self.note(changed, seq, Author::Host, Note::Unreadable(why));
            return false;
        };
        let expected = self.last_n.map_or(n, |last| last.saturating_add(1));
        if n < expected {
            self.note(changed, seq, Author::Host, Note::Repeated(n));
            return false;
        }
        if n > expected {
            self.note(changed, seq, Author::Host, Note::Missing { from: expected, to: n - 1 });
        }
        self.last_n = Some(n);
        true
    }

    fn host(&mut self, changed: &mut Changed, seq: u64, digest: String, message: Message) {
        let (at, local_id) = (Some(message.at), message.local_id);
        let shown = match message.content {
            Content::Turn(turn) => self.turn(changed, (seq, message.at), turn),
            Content::Text(part) => Shown::Text(self.whole(changed, part)),
            Content::Thought(part) => Shown::Thought(self.whole(changed, part)),
            Content::ToolCall(call) => match self.tool(changed, *call) {
                Some(call) => Shown::Tool(call),
                None => return,
            },
            Content::Permission(permission) => {
                let request_id = permission.request_id.clone();
                Shown::Card(self.ask(request_id, digest, Asks::Permission(*permission)))
            }
            Content::Question(question) => {
                Shown::Card(self.ask(question.request_id.clone(), digest, Asks::Question(question)))
            }
            Content::Resolved(resolved) => return self.resolve(changed, resolved),
            Content::Receipt(receipt) => return self.receipt(changed, receipt),
            Content::Plan(plan) => {
                (self.plan, changed.plan) = (Some(plan), true);
                return;
            }
            Content::State(state) => {
                let known = self.state.take();
                (self.state, changed.state) = (Some(state.after(known)), true);
                self.drop_lost();
                return;
            }
            Content::Error(failure) => Shown::Error(failure),
            other => Shown::Newer(other.type_name().into()),
        };
        self.push(changed, Item { id: 0, seq, author: Author::Host, unconfirmed: None, local_id, at, shown });
    }

    fn whole(&mut self, changed: &mut Changed, part: TextPart) -> TextPart {
        self.live.complete(&part.turn_id, part.part);
        changed.live = true;
        part
    }

    /// Amends the call with this id, or gives it back as a new one.
    fn tool(&mut self, changed: &mut Changed, call: ToolCall) -> Option<Box<ToolCall>> {
        let is_over = matches!(call.status, Some(ToolStatus::Completed | ToolStatus::Failed | ToolStatus::Interrupted));
        if let Some(part) = call.part.filter(|_| is_over) {
            self.live.complete(&call.turn_id, part);
            changed.live = true;
        }
        if !self.tools.contains_key(&call.tool_call_id) {
            return Some(Box::new(call));
        }
        self.amend_call(changed, call);
        None
    }

    fn amend_call(&mut self, changed: &mut Changed, call: ToolCall) {
        let Some(id) = self.tools.get(&call.tool_call_id).copied() else { return };
        self.amend(changed, id, |shown| {
            if let Shown::Tool(known) = shown {
                known.amend(call);
            }
        });
    }

    fn ask(&mut self, request_id: String, digest: String, asks: Asks) -> Box<Card> {
        let card = Card { request_id, digest, asks, resolved: None };
        // An id is never used again; a second card with it would be answered as the first.
        if !self.requests.contains_key(&card.request_id)
            && !self.open.iter().any(|one| one.request_id == card.request_id)
        {
            self.open.push_back(card.clone());
            self.open.truncate(MOST_OPEN);
        }
        Box::new(card)
    }

    fn resolve(&mut self, changed: &mut Changed, resolved: Resolved) {
        self.open.retain(|card| card.request_id != resolved.request_id);
        let Some(id) = self.requests.get(&resolved.request_id).copied() else {
            return self.unmatched.resolved(resolved);
        };
        self.amend(changed, id, |shown| {
            if let Shown::Card(card) = shown {
                card.resolved.get_or_insert(resolved);
            }
        });
    }

    fn receipt(&mut self, changed: &mut Changed, receipt: Receipt) {
        let command = (receipt.key.clone(), receipt.command_id.clone());
        let Some(id) = self.commands.get(&command).copied() else {
            return self.unmatched.receipt(receipt);
        };
        if receipt.outcome == ReceiptOutcome::Queued && self.is_open_prompt(id) {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
        if receipt.outcome == ReceiptOutcome::Queued && self.queued.len() < MOST_QUEUED {
            self.queued.insert(receipt.command_id.clone(), id);
        }
        self.amend(changed, id, |shown| {
            if let Some(taken) = shown.taken_mut().filter(|taken| matches!(taken, Taken::NotYet | Taken::Queued)) {
                *taken = Taken::of(receipt);
            }
        });
    }

    fn amend(&mut self, changed: &mut Changed, id: u64, change: impl FnOnce(&mut Shown)) {
        let place = id.checked_sub(self.first_id).and_then(|place| usize::try_from(place).ok());
        let Some(item) = place.and_then(|place| self.items.get_mut(place)) else { return };
        self.bytes = self.bytes.saturating_sub(item.shown.size());
        change(&mut item.shown);
        self.bytes = self.bytes.saturating_add(item.shown.size());
        changed.items.push(id);
        self.shrink();
    }

    fn note(&mut self, changed: &mut Changed, seq: u64, author: Author, note: Note) {
        let shown = Shown::Note(note);
        self.push(changed, Item { id: 0, seq, author, unconfirmed: None, local_id: String::new(), at: None, shown });
    }

    fn push(&mut self, changed: &mut Changed, mut item: Item) {
        item.id = self.first_id.saturating_add(u64::try_from(self.items.len()).unwrap_or(u64::MAX));
        match &item.shown {
            Shown::Tool(call) => drop(self.tools.insert(call.tool_call_id.clone(), item.id)),
            Shown::Card(card) => drop(self.requests.entry(card.request_id.clone()).or_insert(item.id)),
            Shown::Prompt(_, Taken::NotYet) if self.waiting.len() < MOST_QUEUED => drop(self.waiting.insert(item.id)),
            _ => {}
        }
        if let Some(command) = command(&item) {
            self.commands.insert(command, item.id);
        }
        self.bytes = self.bytes.saturating_add(item.shown.size());
        changed.items.push(item.id);
        self.items.push_back(item);
        self.shrink();
    }

    /// Drops the oldest items until the rest is within the bounds.
    fn shrink(&mut self) {
        while self.items.len() > self.keep.items.max(1) || (self.bytes > self.keep.bytes && self.items.len() > 1) {
            let Some(item) = self.items.pop_front() else { return };
            self.first_id = self.first_id.saturating_add(1);
            let size = self.was.remove(&item.id).map_or_else(|| item.shown.size(), |was| was.shown.size());
            self.bytes = self.bytes.saturating_sub(size);
            match &item.shown {
                Shown::Tool(call) => drop(self.tools.remove(&call.tool_call_id)),
                Shown::Card(card) => drop(self.requests.remove(&card.request_id)),
                _ => {}
            }
            self.waiting.remove(&item.id);
            if let Some(command) = command(&item) {
                self.commands.remove(&command);
            }
        }
    }
}
