//! Any agent that speaks the Agent Client Protocol (agentclientprotocol.com, protocol version 1). Checked with gemini 0.61.0 and
//! opencode 1.18.33.

mod ask;
mod modes;
mod prompt;

mod update;

use ensemble_protocol::transcript::words::{ErrorCode, Mode};
use serde_json::{Value, json};

use crate::command::{Command, Exit, Prompt, Refused, Start};
use crate::core::{Core, choices};
use crate::drivers::{Abilities, Driver, Kind};
use crate::event::{Event, Output, StateChange};
use crate::json::{is_true, list, some, text};
use crate::launch::Launch;
use crate::lines::Line;
use crate::mcp::McpServer;

use crate::drivers::rpc::{self, Calls};
use ask::About;
use modes::Modes;

/// One session over ACP.
pub(crate) struct Acp {
    kind: Kind,
    start: Start,
    core: Core<About>,
    calls: Calls<Call>,
    /// The agent's id of the session, once it has one.
    session: Option<String>,
    /// It can load a session that it had before.
    loads: bool,
    images: bool,
    embeds: bool,
    modes: Modes,
    /// The session is ready once the agent has taken the model.
    waits_for_model: bool,
    /// The history is being replayed: the host has it already.
    replays: bool,
    /// The turn that runs was cancelled. Some agents answer `end_turn` all the same.
    is_cancelled: bool,
    /// The agent has said or done something in the turn that runs.
    is_answering: bool,
    usage: Option<ensemble_protocol::transcript::body::Usage>,
    /// What the session has cost so far, where the agent says it.
    cost: Option<f64>,
    counted: Option<f64>,
}

/// A request of ours that waits for its answer.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Initialize,
    New,
    Load,
    Prompt,
    /// The mode that is wanted; at the start the session is ready with it.
    Mode {
        mode: Mode,
        at_start: bool,
    },
    Model(String),
}

pub(crate) fn launch(kind: Kind, start: &Start) -> Launch {
    let launch = Launch::default();
    match kind {
        Kind::Gemini => {
            let launch = launch.args(["--acp"]).option("--model", start.model.as_deref());
            match start.unattended() {
                // Who chose the directory trusts it: there is no person to be asked.
                Some(unattended) => {
                    launch.each("--allowed-tools=", &unattended.tools).env("GEMINI_CLI_TRUST_WORKSPACE", "true")
                }
                None => launch,
            }
        }
        Kind::Opencode => launch
            .env("OPENCODE_PERMISSION", modes::opencode_permission(&start.mode))
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        _ => launch,
    }
}

impl Acp {
    pub(crate) fn new(kind: Kind, start: Start) -> Self {
        Self {
            kind,
            core: Core::with(&start.mcp_servers),
            calls: Calls::default(),
            session: None,
            loads: false,
            images: false,
            embeds: false,
            modes: Modes::new(kind, start.mode.clone()),
            waits_for_model: false,
            replays: false,
            is_cancelled: false,
            is_answering: false,
            usage: None,
            cost: None,
            // The agent counts the whole conversation.
            counted: start.resume.as_ref().map(|_| start.cost_before),
            start,
        }
    }

    fn call(&mut self, call: Call, method: &str, params: Value) {
        let line = self.calls.begin(call, method, params);
        match line {
            Some(line) => self.core.write(&line),
            None => self.core.note("Too many requests wait for the agent; one was not sent."),
        }
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.core.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn read(&mut self, message: &Value) {
        match (message.get("id"), some(message, "/method")) {
            (Some(id), Some(method)) => self.request(id, method, message.get("params").unwrap_or(&Value::Null)),
            (None, Some(method)) => self.notice(method, message.get("params").unwrap_or(&Value::Null)),
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
        match (call, message.get("error").filter(|error| !error.is_null())) {
            (Call::Initialize, None) => self.initialized(result),
            (Call::New, None) => self.opened(result),
            (Call::Load, None) => {
                self.replays = false;
                self.session.clone_from(&self.start.resume);
                self.opened(result);
            }
            (Call::Load, Some(error)) => {
                self.replays = false;
                match rpc::code(error) {
                    code @ (ErrorCode::Login | ErrorCode::Quota | ErrorCode::Overloaded) => {
                        self.core.fail(code, &rpc::reason(error), None);
                    }
                    _ => self.core.resume_failed(&rpc::reason(error)),
                }
            }
            (Call::Prompt, None) => self.ended(result),
            (Call::Prompt, Some(error)) => self.failed(error),
            (Call::Mode { mode, at_start }, None) => self.moded(mode, at_start),
            (Call::Mode { at_start: true, .. }, Some(_)) => self.has_no_mode(),
            (Call::Model(model), None) => {
                self.core.state(StateChange { model: Some(model), ..StateChange::default() });
                if std::mem::take(&mut self.waits_for_model) {
                    self.ready();
                }
            }
            (Call::Model(_), Some(error)) if self.waits_for_model => {
                // No person sees that another model works.
                self.core.fail(rpc::code(error), &rpc::reason(error), None);
            }
            (Call::Mode { .. } | Call::Model(_), Some(error)) => {
                self.core.note(format!("The agent refused an order: {}", rpc::reason(error)));
            }
            (Call::Initialize | Call::New, Some(error)) => {
                let (code, text) = (rpc::code(error), rpc::reason(error));
                self.core.fail(code, &text, None);
            }
        }
    }

    fn initialized(&mut self, result: &Value) {
        self.loads = is_true(result, "/agentCapabilities/loadSession");
        self.images = is_true(result, "/agentCapabilities/promptCapabilities/image");
        self.embeds = is_true(result, "/agentCapabilities/promptCapabilities/embeddedContext");
        let servers = self.mcp_servers(result);
        let directory = self.start.directory.clone();
        match self.start.resume.clone() {
            Some(session) if self.loads => {
                self.replays = true;
                let params = json!({"sessionId": session, "cwd": directory, "mcpServers": servers});
                self.call(Call::Load, "session/load", params);
            }
            Some(_) => self.core.resume_failed("The agent cannot resume a conversation."),
            None => self.call(Call::New, "session/new", json!({"cwd": directory, "mcpServers": servers})),
        }
    }

    /// Those of the editor's MCP servers that the agent can reach. Each agent takes those that it starts itself.
    fn mcp_servers(&mut self, initialized: &Value) -> Vec<Value> {
        let (can, cannot): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.start.mcp_servers).into_iter().partition(|server| {
                let capability = format!("/agentCapabilities/mcpCapabilities/{}", server.kind());
                matches!(server, McpServer::Stdio { .. }) || is_true(initialized, &capability)
            });
        self.core.leave_out(&cannot);
        can.iter().map(McpServer::for_acp).collect()
    }

    /// The session exists. The mode is set explicitly: an agent's own default may be one in which it decides alone.
    fn opened(&mut self, result: &Value) {
        if self.session.is_none() {
            self.session = some(result, "/sessionId").map(str::to_owned);
        }
        if self.session.is_none() {
            self.core.fail(ErrorCode::Unknown, "The agent gave the session no id.", None);
            return;
        }
        self.modes.read(result);
        let models = list(result, "/models/availableModels")
            .map(|model| (text(model, "/modelId").to_owned(), text(model, "/name").to_owned()));
        let options = modes::options(result, "model");
        let models = choices(models.chain(options));
        let model = some(result, "/models/currentModelId").or(modes::current(result, "model")).map(str::to_owned);
        self.core.state(StateChange {
            model,
            models: Some(models).filter(|models| !models.is_empty()),
            modes: Some(self.modes.offered()),
            ..StateChange::default()
        });
        let wanted = self.start.mode.clone();
        match self.modes.order(&wanted) {
            modes::Order::Set { method, params } => {
                let params = self.with_session(params);
                self.call(Call::Mode { mode: wanted, at_start: true }, method, params);
            }
            modes::Order::Already => self.moded(wanted, true),
            modes::Order::Missing => self.has_no_mode(),
        }
    }

    fn with_session(&self, mut params: Value) -> Value {
        if let Some(fields) = params.as_object_mut() {
            fields.insert("sessionId".to_owned(), json!(self.session));
        }
        params
    }

    fn moded(&mut self, mode: Mode, at_start: bool) {
        self.modes.now = Some(mode.clone());
        if at_start {
            let model = self.start.model.clone().filter(|_| self.kind != Kind::Gemini);
            self.waits_for_model = model.is_some() && self.start.unattended().is_some();
            if !self.waits_for_model {
                self.ready();
            }
            if let Some(model) = model {
                self.set_model(model);
            }
        }
        self.core.state(StateChange { mode: Some(mode), ..StateChange::default() });
    }

    fn ready(&mut self) {
        if let Some(session_id) = self.session.clone() {
            self.core.say(Event::Ready { session_id });
        }
    }

    /// Better no session than one in which it is unknown what the agent may do.
    fn has_no_mode(&mut self) {
        self.session = None;
        self.core.fail(ErrorCode::Unknown, "The agent has no mode for what was wanted. Choose another mode.", None);
    }

    fn set_model(&mut self, model: String) {
        let (method, params) = if self.modes.has_option("model") {
            ("session/set_config_option", json!({"configId": self.modes.option_id("model"), "value": model}))
        } else {
            ("session/set_model", json!({"modelId": model}))
        };
        let params = self.with_session(params);
        self.call(Call::Model(model), method, params);
    }
}

impl Driver for Acp {
    fn abilities(&self) -> Abilities {
        // gemini says that it loads sessions, and does not find those that were made over ACP.
        let resumes = match self.kind {
            Kind::Gemini => false,
            Kind::Opencode => true,
            _ => self.loads,
        };
        let says_cost = self.kind == Kind::Opencode;
        Abilities {
            steers: false,
            resumes,
            shares_process: true,
            refuses_with_message: false,
            says_cost,
            lists_commands: false,
        }
    }

    fn begin(&mut self) -> Output {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "ensemble", "title": "Ensemble", "version": env!("CARGO_PKG_VERSION")},
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
        if !matches!(command, Command::Stop) && !self.is_ready() {
            return Err(Refused::NotReady);
        }
        match command {
            Command::Prompt(prompt) => self.prompt(&prompt)?,
            Command::Answer { request, reply } => self.reply(&request, &reply)?,
            Command::Interrupt => self.interrupt(),
            Command::SetMode(mode) => match self.modes.order(&mode) {
                modes::Order::Set { method, params } => {
                    let params = self.with_session(params);
                    self.call(Call::Mode { mode, at_start: false }, method, params);
                }
                modes::Order::Already => self.moded(mode, false),
                modes::Order::Missing => return Err(Refused::Unsupported("the agent has no such mode")),
            },
            Command::SetModel(model) => self.set_model(model),
            Command::Stop => {
                self.interrupt();
                (self.core.stopping, self.core.out.close) = (true, true);
            }
        }
        Ok(self.core.take())
    }

    fn exited(&mut self, exit: &Exit) -> Output {
        self.core.exited(exit);
        (self.session, self.calls) = (None, Calls::default());
        self.core.take()
    }
}

impl Acp {
    fn is_ready(&self) -> bool {
        self.session.is_some() && self.modes.now.is_some()
    }

    fn prompt(&mut self, prompt: &Prompt) -> Result<(), Refused> {
        // A second prompt would cancel the first one, or fail.
        if self.core.turn.is_some() {
            return Err(if prompt.steer { Refused::Unsupported("the agent cannot be steered") } else { Refused::Busy });
        }
        let blocks = self.blocks(prompt)?;
        let params = self.with_session(json!({"prompt": blocks}));
        self.call(Call::Prompt, "session/prompt", params);
        self.is_answering = false;
        self.core.say(Event::Taken(prompt.id.clone()));
        self.core.begin_turn(ensemble_protocol::transcript::words::Cause::Prompt);
        Ok(())
    }
}
