//! Exchanges with an editor, as they were seen on the wire: what comes in, and what goes out. Nothing runs here.

mod hostile;
mod opening;
mod requests;
mod turns;

use std::time::{Duration, Instant};

use ensemble_agent::Line;
use ensemble_protocol::transcript::Frame;
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::view::{Author, Incoming};
use ensemble_protocol::transcript::words::*;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use super::{Core, Event, Opening, Order};
use crate::rpc::Error;

const SESSION: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const ANN: &str = "01890a5d-ac96-774b-bcce-b302099a8058";
const BEN: &str = "01890a5d-ac96-774b-bcce-b302099a8059";
/// The key of the device on which the editor runs, and that of another one.
const HERE: &str = "here";
const ELSEWHERE: &str = "elsewhere";

fn session() -> SessionId {
    SESSION.parse().unwrap()
}

fn ann(key: &str) -> Author {
    Author::Person { user: ANN.parse().unwrap(), key: key.to_owned(), removed_in: None }
}

fn ben() -> Author {
    Author::Person { user: BEN.parse().unwrap(), key: "ben".to_owned(), removed_in: None }
}

/// An editor of Ann, and what its agent has said and done.
struct Editor {
    core: Core,
    now: Instant,
    request: u64,
    seq: u64,
    n: u64,
    /// What was written and not looked at yet.
    written: Vec<Value>,
    done: Vec<Order>,
    /// Why the session that is opened next has no MCP servers of the editor.
    left_out: Option<String>,
    /// What the machine of the session that is opened next has signed.
    directory: Option<String>,
}

impl Editor {
    /// An editor that has been greeted.
    fn new(capabilities: &Value) -> Self {
        let mut count = 0;
        let ids = move || {
            count += 1;
            format!("c{count}")
        };
        let now = Instant::now();
        let core = Core::new(now, Box::new(ids));
        let (written, done) = (Vec::new(), Vec::new());
        let (left_out, directory) = (None, None);
        let mut editor = Self { core, now, request: 0, seq: 0, n: 0, written, done, left_out, directory };
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": client});
        editor.request("initialize", &params);
        editor
    }

    /// One that has a session open.
    fn open(capabilities: &Value) -> Self {
        let mut editor = Self::new(capabilities);
        editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
        editor.opened(false);
        editor.state(Phase::Idle);
        editor.event(Event::CaughtUp);
        editor.forget();
        editor
    }

    fn line(&mut self, line: &str) {
        self.core.line(&Line::Text(line.to_owned()), self.now);
        self.collect();
    }

    fn collect(&mut self) {
        for order in self.core.take() {
            match order {
                Order::Write(message) => self.written.push(message),
                order => self.done.push(order),
            }
        }
    }

    fn forget(&mut self) {
        self.written.clear();
        self.done.clear();
    }

    fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.request += 1;
        let id = self.request;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    fn prompt(&mut self, text: &str) -> u64 {
        let blocks = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", &json!({"sessionId": SESSION, "prompt": blocks}))
    }

    fn cancel(&mut self) {
        self.line(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": SESSION}}).to_string());
    }

    fn opened(&mut self, is_new: bool) {
        let opening = Opening {
            id: session(),
            reference: "abcdefgh".to_owned(),
            title: None,
            directory: self.directory.clone(),
            user: ANN.parse().unwrap(),
            key: HERE.to_owned(),
            online: true,
            is_new,
            left_out: self.left_out.clone(),
            is_cut: false,
        };
        let ticket = self.core.tickets.keys().next().copied().unwrap();
        self.core.opened(ticket, Ok(opening), self.now);
        self.collect();
    }

    fn not_opened(&mut self, error: Error) {
        let ticket = self.core.tickets.keys().next().copied().unwrap();
        self.core.opened(ticket, Err(error), self.now);
        self.collect();
    }

    fn event(&mut self, event: Event) {
        self.core.event(session(), event, self.now);
        self.collect();
    }

    fn said(&mut self, author: Author, local_id: &str, n: Option<u64>, content: Content) {
        self.seq += 1;
        let at = Timestamp::from_unix_seconds(0).plus(Duration::from_secs(self.seq));
        let list = KnownList { version: 1, digest: String::new() };
        let message = Ok(Message { local_id: local_id.to_owned(), at, list, n, content });
        let names = vec![(BEN.parse::<UserId>().unwrap(), "Ben *B*".to_owned())];
        let digest = format!("digest-{}", self.seq);
        self.event(Event::Said(Box::new(Incoming { seq: self.seq, author, digest, message }), names));
    }

    fn host(&mut self, content: Content) {
        self.n += 1;
        let n = self.n;
        self.said(Author::Host, &format!("h{n}"), Some(n), content);
    }

    fn state(&mut self, phase: Phase) {
        self.host(state(phase, Mode::Ask));
    }

    /// The newest command of the editor comes back from the server, and its receipt.
    fn receipt(&mut self, outcome: ReceiptOutcome, code: Option<ReceiptCode>) -> String {
        let sent = self.done.iter().rev().find_map(|order| match order {
            Order::Send { local_id, content, .. } => Some((local_id.clone(), Content::clone(content))),
            _ => None,
        });
        let (local_id, content) = sent.unwrap();
        self.said(ann(HERE), &local_id, None, content);
        let (command_id, key, text) =
            (local_id.clone(), HERE.to_owned(), code.as_ref().map(|_| "It is so.".to_owned()));
        self.host(Content::Receipt(Receipt { command_id, key, outcome, code, text }));
        local_id
    }

    /// A prompt of the editor begins its turn.
    fn begins(&mut self, text: &str) -> (u64, String) {
        let request = self.prompt(text);
        let local_id = self.receipt(ReceiptOutcome::Done, None);
        self.host(turn(TurnState::Started, Some(&local_id), None));
        (request, local_id)
    }

    fn frame(&mut self, part: u32, offset: u64, text: &str, thought: bool) {
        let frame = Frame { turn_id: "t".to_owned(), part, offset, text: text.to_owned(), thought };
        self.event(Event::Frame(frame));
    }

    fn passes(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        assert!(self.core.deadline().is_some_and(|deadline| deadline <= self.now), "nothing is late");
        self.core.tick(self.now);
        self.collect();
    }

    /// The updates since the last call.
    fn updates(&mut self) -> Vec<Value> {
        let written = std::mem::take(&mut self.written);
        let (updates, rest) = written.into_iter().partition(|message| message["method"] == "session/update");
        self.written = rest;
        let updates: Vec<Value> = updates;
        updates.into_iter().map(|message| message["params"]["update"].clone()).collect()
    }

    /// The texts that the editor shows, one for each update that has one.
    fn texts(&mut self) -> Vec<String> {
        self.updates().iter().filter_map(|update| update["content"]["text"].as_str().map(str::to_owned)).collect()
    }

    /// The answer to a request of the editor.
    fn answer(&mut self, request: u64) -> Option<Value> {
        let at = self.written.iter().position(|message| message["id"] == request && message.get("method").is_none())?;
        Some(self.written.remove(at))
    }

    /// The requests of the agent, and that they are withdrawn.
    fn calls(&mut self) -> Vec<Value> {
        let written = std::mem::take(&mut self.written);
        let is_call = |message: &Value| message.get("method").is_some() && message["method"] != "session/update";
        let (calls, rest) = written.into_iter().partition(is_call);
        self.written = rest;
        calls
    }

    /// The server has the newest command.
    fn stored(&mut self) {
        let sent = self.done.iter().rev().find_map(|order| match order {
            Order::Send { local_id, .. } => Some(local_id.clone()),
            _ => None,
        });
        self.core.stored(session(), &sent.unwrap(), self.now);
        self.collect();
    }

    /// The commands that were sent since the last call.
    fn sent(&mut self) -> Vec<Content> {
        let sent = std::mem::take(&mut self.done).into_iter().filter_map(|order| match order {
            Order::Send { content, .. } => Some(*content),
            _ => None,
        });
        sent.collect()
    }
}

fn code(answer: Option<Value>) -> i64 {
    answer.unwrap()["error"]["code"].as_i64().unwrap()
}

fn choice(id: &str) -> Choice {
    Choice { id: id.to_owned(), name: String::new() }
}

fn state(phase: Phase, mode: Mode) -> Content {
    Content::State(Box::new(State {
        phase,
        agent: "claude".to_owned(),
        mode,
        model: Some("small".to_owned()),
        modes: vec![choice("ask"), choice("plan")],
        models: vec![choice("small"), choice("large")],
        commands: vec![SlashCommand { name: "compact".to_owned(), description: "Shorten".to_owned(), hint: None }],
        steers: false,
        does: Vec::new(),
        directory: "/work".to_owned(),
        branch: None,
        provider_session_id: None,
        context: Some(ContextUse { used: 10, size: 100 }),
        cost_usd: None,
        still_running: Vec::new(),
        queue: Vec::new(),
        access: Vec::new(),
        key_epoch: 1,
    }))
}

fn turn(state: TurnState, prompt: Option<&str>, stop: Option<StopReason>) -> Content {
    Content::Turn(Turn {
        turn_id: "t".to_owned(),
        state,
        cause: Cause::Prompt,
        prompt_id: prompt.map(str::to_owned),
        text: None,
        stop_reason: stop,
        usage: None,
        cost_usd: None,
    })
}

fn text(part: u32, text: &str) -> TextPart {
    let (turn_id, text) = ("t".to_owned(), text.to_owned());
    TextPart { turn_id, part, of: None, text, interrupted: false, parent_tool_call_id: None }
}

fn prompt(text: &str) -> Content {
    Content::Prompt(Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None })
}

fn permission(request_id: &str) -> Content {
    let option = |id: &str, kind| PermissionOption { option_id: id.to_owned(), name: id.to_owned(), kind };
    Content::Permission(Box::new(Permission {
        request_id: request_id.to_owned(),
        tool_call_id: Some("call".to_owned()),
        title: "touch x".to_owned(),
        detail: "touch x\n```".to_owned(),
        cut: None,
        content: Vec::new(),
        options: vec![option("yes", OptionKind::AllowOnce), option("no", OptionKind::RejectOnce)],
    }))
}

fn resolved(request_id: &str, by: &str) -> Content {
    let (by, option_id) = (Some(by.parse().unwrap()), Some("no".to_owned()));
    Content::Resolved(Resolved {
        request_id: request_id.to_owned(),
        outcome: Outcome::Selected,
        option_id,
        by,
        reason: None,
    })
}
