//! Codex through its app server: JSON-RPC without the member `jsonrpc`, one message a line. Checked against 0.169.0, whose schema
//! `codex app-server generate-json-schema` prints.

mod ask;
mod follow;
mod item;
mod notice;
mod terminals;
pub mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ensemble_protocol::transcript::body::{Attachment, Usage};
use ensemble_protocol::transcript::words::{Cause, Mode};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::command::{Checkpoint, Command, Exit, Prompt, Refused, Start};
use crate::core::{Core, choices};
use crate::drivers::rpc::{self, Calls};
use crate::drivers::{Abilities, Driver};
use crate::event::{Event, Output, StateChange};
use crate::json::{list, some, text};
use crate::launch::Launch;
use crate::lines::Line;
use crate::mcp::{self, McpServer};

use ask::About;
use follow::Following;

/// One thread of an app server.
pub(crate) struct Codex {
    start: Start,
    core: Core<About>,
    calls: Calls<Call>,
    thread: Option<String>,
    /// The threads of sub-agents.
    children: BTreeSet<String>,
    /// The id of the turn that runs.
    turn: Option<String>,
    mode: Mode,
    model: Option<String>,
    /// The changes of files that are running: the request for them does not repeat what they are.
    changes: BTreeMap<String, Value>,
    /// All tokens of the thread, now and when the turn began.
    total: Option<Usage>,
    before: Option<Usage>,
    /// When a limit that is reached ends.
    retry_at: Option<Timestamp>,
    /// The items of the turn that are complete.
    done: BTreeSet<String>,
    /// The turn has run while no client was connected.
    following: Option<Following>,
    /// The commands that have outlived their turn.
    still_running: Vec<String>,
}

/// A request of ours that waits for its answer.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Initialize,
    Start,
    Resume,
    Models,
    /// With the id of the prompt.
    Turn(String),
    Steer(String),
    /// An order whose answer says nothing.
    Order,
    /// The newest turns, and the items of the one that is followed.
    Turns,
    Items,
    /// The commands that still run.
    Terminals,
}

/// `plugins` are off: with them the program asks servers of the vendor at its start.
const QUIET: [&str; 4] = ["--disable", "plugins", "-c", "check_for_update_on_startup=false"];

pub(crate) fn launch(start: &Start) -> Launch {
    let launch = threads::look();
    // It signs in over its wire, and keeps nothing of that.
    match start.unattended().and_then(|unattended| unattended.api_key.as_ref()) {
        Some(_) => launch.args(["-c", "cli_auth_credentials_store=\"ephemeral\""]),
        None => launch,
    }
}

pub(crate) fn serve(socket: &Path) -> Launch {
    let address = format!("unix://{}", socket.display());
    Launch::default().args(["app-server", "--listen", &address]).args(QUIET)
}

/// What the program may do in a mode: when it asks, and what its sandbox allows.
fn policy(mode: &Mode, is_attended: bool) -> (&'static str, Value) {
    let (approval, sandbox) = match mode {
        Mode::Edit if !is_attended => ("never", "workspaceWrite"),
        Mode::Ask if !is_attended => ("never", "readOnly"),
        Mode::Bypass => ("never", "dangerFullAccess"),
        Mode::Edit => ("on-request", "workspaceWrite"),
        // It changes nothing, so it needs no permission.
        Mode::Plan => ("never", "readOnly"),
        _ => ("untrusted", "workspaceWrite"),
    };
    (approval, json!({"type": sandbox}))
}

impl Codex {
    pub(crate) fn new(mut start: Start) -> Self {
        let checkpoint = start.checkpoint.take();
        let mut codex = Self {
            core: Core::with(&start.mcp_servers),
            calls: Calls::default(),
            thread: None,
            children: BTreeSet::new(),
            turn: None,
            mode: start.mode.clone(),
            model: start.model.clone(),
            changes: BTreeMap::new(),
            total: None,
            before: None,
            retry_at: None,
            done: BTreeSet::new(),
            following: None,
            still_running: Vec::new(),
            start,
        };
        checkpoint.into_iter().for_each(|checkpoint| codex.follow(checkpoint));
        codex
    }

    fn call(&mut self, call: Call, method: &str, params: Value) {
        match self.calls.begin(call, method, params) {
            Some(mut line) => {
                if let Some(fields) = line.as_object_mut() {
                    fields.remove("jsonrpc");
                }
                self.core.write(&line);
            }
            None => self.core.note("Too many requests wait for the agent; one was not sent."),
        }
    }

    fn read(&mut self, message: &Value) {
        if message.get("method").is_some() && self.holds(message) {
            return;
        }
        let params = message.get("params").unwrap_or(&Value::Null);
        match (message.get("id"), some(message, "/method")) {
            (Some(id), Some(method)) => self.request(id, method, params),
            (None, Some(method)) => self.notice(method, params),
            (Some(id), None) => self.answer(id, message),
            (None, None) => self.core.note("The agent sent a message that is none of JSON-RPC."),
        }
    }

    fn answer(&mut self, id: &Value, message: &Value) {
        let Some(call) = self.calls.end(id) else {
            self.core.note("The agent answered a request that it was not sent.");
            return;
        };
        let result = message.get("result").unwrap_or(&Value::Null);
        if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
            self.refused(call, error);
            return;
        }
        match call {
            Call::Initialize => self.initialized(),
            Call::Start | Call::Resume => self.opened(result),
            Call::Models => {
                let models = list(result, "/data")
                    .map(|model| (text(model, "/id").to_owned(), text(model, "/displayName").to_owned()));
                self.core.state(StateChange { models: Some(choices(models)), ..StateChange::default() });
            }
            Call::Turn(prompt) => {
                self.core.say(Event::Taken(prompt));
                self.began(text(result, "/turn/id"));
            }
            Call::Steer(prompt) => self.core.say(Event::Taken(prompt)),
            Call::Turns => self.turns_listed(result),
            Call::Items => self.items_listed(result),
            Call::Terminals => self.terminals_listed(result),
            Call::Order => {}
        }
    }

    fn refused(&mut self, call: Call, error: &Value) {
        let (code, text) = (rpc::code(error), rpc::reason(error));
        match call {
            Call::Resume => self.core.resume_failed(&text),
            Call::Initialize | Call::Start => self.core.fail(code, &text, None),
            Call::Turn(_) => {
                self.core.begin_turn(Cause::Prompt);
                self.core.fail(code, &text, None);
                self.core.end_turn(ensemble_protocol::transcript::words::StopReason::Error, None, None);
            }
            Call::Turns => self.lost_the_turn(&format!("The agent does not say what it has done: {text}")),
            Call::Items => self.items_not_listed(&text),
            Call::Models | Call::Steer(_) | Call::Terminals | Call::Order => {
                self.core.note(format!("The agent refused an order: {text}"));
            }
        }
    }

    fn initialized(&mut self) {
        self.core.write(&json!({"method": "initialized"}));
        if let Some(key) = self.start.unattended().and_then(|unattended| unattended.api_key.clone()) {
            self.call(Call::Order, "account/login/start", json!({"type": "apiKey", "apiKey": key.0}));
        }
        let (approval, _) = policy(&self.mode, self.start.unattended().is_none());
        // Each turn says its own sandbox. A thread that begins with one that may write makes the program write into the person's
        // configuration that it trusts the directory, for good.
        let mut params = json!({
            "cwd": self.start.directory, "approvalPolicy": approval, "approvalsReviewer": "user", "sandbox": "read-only",
        });
        let resume = self.start.resume.clone();
        let is_sse = |server: &McpServer| matches!(server, McpServer::Sse { .. });
        let (cannot, can): (Vec<_>, Vec<_>) = std::mem::take(&mut self.start.mcp_servers).into_iter().partition(is_sse);
        self.core.leave_out(&cannot);
        if let Some(fields) = params.as_object_mut() {
            fields.extend(self.start.model.clone().map(|model| ("model".to_owned(), json!(model))));
            fields.extend(resume.clone().map(|thread| ("threadId".to_owned(), json!(thread))));
            if !can.is_empty() {
                fields.insert("config".to_owned(), Value::Object(mcp::for_codex(&can)));
            }
            if resume.is_some() {
                fields.insert("excludeTurns".to_owned(), json!(true));
            }
        }
        match resume {
            Some(_) if self.start.is_fork() => self.call(Call::Resume, "thread/fork", params),
            Some(_) => self.call(Call::Resume, "thread/resume", params),
            None => self.call(Call::Start, "thread/start", params),
        }
    }

    fn opened(&mut self, result: &Value) {
        let Some(thread) = some(result, "/thread/id").map(str::to_owned) else {
            let code = ensemble_protocol::transcript::words::ErrorCode::Unknown;
            self.core.fail(code, "The agent gave the session no id.", None);
            return;
        };
        self.thread = Some(thread.clone());
        self.model = some(result, "/model").map(str::to_owned).or(self.model.take());
        self.core.say(Event::Ready { session_id: thread });
        let all = [Mode::Ask, Mode::Edit, Mode::Plan, Mode::Bypass];
        let modes = choices(all.into_iter().map(|mode| (mode.as_str().to_owned(), String::new())));
        self.core.state(StateChange {
            mode: Some(self.mode.clone()),
            model: self.model.clone(),
            modes: Some(modes),
            ..StateChange::default()
        });
        self.call(Call::Models, "model/list", json!({}));
        if let Some(thread) = self.thread.clone() {
            self.catch_up(&thread);
        }
        if self.start.resume.is_some() {
            self.list_terminals();
        }
    }

    /// A turn of this thread runs.
    fn began(&mut self, turn: &str) {
        if self.core.turn.is_none() && !turn.is_empty() {
            self.turn = Some(turn.to_owned());
            self.before = self.total;
            self.done.clear();
            self.following = None;
            self.core.begin_turn(Cause::Prompt);
        }
    }

    fn prompt(&mut self, prompt: Prompt) -> Result<(), Refused> {
        let thread = self.thread.clone().ok_or(Refused::NotReady)?;
        let input = input(&prompt)?;
        match (&self.turn, prompt.steer) {
            (Some(turn), true) => {
                let params = json!({
                    "threadId": thread, "expectedTurnId": turn, "input": input, "clientUserMessageId": prompt.id,
                });
                self.call(Call::Steer(prompt.id), "turn/steer", params);
            }
            // A second turn would be taken as steering.
            (Some(_), false) => return Err(Refused::Busy),
            (None, _) => {
                let (approval, sandbox) = policy(&self.mode, self.start.unattended().is_none());
                let mut params = json!({
                    "threadId": thread, "input": input, "clientUserMessageId": prompt.id,
                    "approvalPolicy": approval, "approvalsReviewer": "user", "sandboxPolicy": sandbox,
                });
                if let (Some(fields), Some(model)) = (params.as_object_mut(), &self.model) {
                    fields.insert("model".to_owned(), json!(model));
                }
                self.call(Call::Turn(prompt.id), "turn/start", params);
            }
        }
        Ok(())
    }

    fn interrupt(&mut self) {
        self.core.withdraw_all("the turn was interrupted");
        if let (Some(thread), Some(turn)) = (self.thread.clone(), self.turn.clone()) {
            self.call(Call::Order, "turn/interrupt", json!({"threadId": thread, "turnId": turn}));
        } else if !self.still_running.is_empty() {
            self.end_terminals();
        }
    }
}

/// Codex's `UserInput`.
fn input(prompt: &Prompt) -> Result<Vec<Value>, Refused> {
    let words = |text: &str| json!({"type": "text", "text": text, "text_elements": []});
    let mut input = vec![words(&prompt.text)];
    for attachment in &prompt.attachments {
        input.push(match attachment {
            Attachment::Image { mime_type, data } => {
                json!({"type": "image", "url": format!("data:{mime_type};base64,{data}")})
            }
            Attachment::Resource { resource } => words(&format!("{}:\n{}", resource.uri, resource.text)),
            Attachment::Newer => return Err(Refused::Unsupported("the prompt has an attachment of an unknown kind")),
        });
    }
    Ok(input)
}

impl Driver for Codex {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: true,
            resumes: true,
            shares_process: true,
            refuses_with_message: true,
            says_cost: false,
            lists_commands: true,
        }
    }

    fn begin(&mut self) -> Output {
        let version = env!("CARGO_PKG_VERSION");
        // The program lists background terminals for clients of its experimental interface only.
        let params = json!({
            "clientInfo": {"name": "ensemble", "title": "Ensemble", "version": version},
            "capabilities": {"experimentalApi": true},
        });
        self.call(Call::Initialize, "initialize", params);
        self.core.take()
    }

    fn line(&mut self, line: &Line) -> Output {
        if let Some(message) = self.core.message(line) {
            self.read(&message);
        }
        self.core.take()
    }

    fn command(&mut self, command: Command) -> Result<Output, Refused> {
        match command {
            Command::Prompt(prompt) => self.prompt(prompt)?,
            Command::Answer { request, reply } => self.reply(&request, &reply)?,
            Command::Interrupt => self.interrupt(),
            Command::SetMode(Mode::Other(_)) => {
                return Err(Refused::Unsupported("the mode is none of ask, edit, plan and bypass"));
            }
            // Both are sent with the next turn: the program has no other way.
            Command::SetMode(mode) => {
                self.mode = mode.clone();
                self.core.state(StateChange { mode: Some(mode), ..StateChange::default() });
            }
            Command::SetModel(model) => {
                self.model = Some(model.clone());
                self.core.state(StateChange { model: Some(model), ..StateChange::default() });
            }
            Command::Stop => {
                self.interrupt();
                (self.core.stopping, self.core.out.close) = (true, true);
            }
        }
        Ok(self.core.take())
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        self.said_so_far()
    }

    fn exited(&mut self, exit: &Exit) -> Output {
        self.core.exited(exit);
        self.following = None;
        self.still_running.clear();
        (self.thread, self.turn, self.calls) = (None, None, Calls::default());
        self.core.take()
    }
}
