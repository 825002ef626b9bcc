//! Claude Code in its stream JSON mode, with control requests for permissions. Checked against 2.1.197.
//!
//! The format is that of the vendor's Agent SDK (code.claude.com/docs, "Agent SDK", "Streaming input").

mod ask;
mod ending;
mod mode;
mod prompt;
mod suggestions;
mod tool;

pub(crate) use tool::side;

use std::collections::{BTreeMap, BTreeSet};

use ensemble_protocol::transcript::body::ContextUse;
use ensemble_protocol::transcript::words::{Cause, ErrorCode, Mode};
use serde_json::{Value, json};

use crate::command::{Command, Exit, Prompt, Refused, Start};
use crate::core::{Core, choices, commands};
use crate::drivers::{Abilities, Driver};
use crate::event::{Event, Output, PartKind, StateChange};
use crate::json::{count, is_true, list, some, text};
use crate::launch::Launch;
use crate::lines::Line;
use crate::mcp;

use ask::About;
use mode::{mode_of, mode_word};

/// The control requests of ours that wait for an answer.
const MOST_WAITING: usize = 64;

/// The session of one `claude` process.
pub(crate) struct Claude {
    start: Start,
    core: Core<About>,
    /// Our control requests, by their id.
    waiting: BTreeMap<String, Order>,
    next_order: u64,
    is_ready: bool,
    /// Prompts that were written and not taken up yet, by their ids.
    prompts: Vec<String>,
    /// The last of them, if it was interrupted before it was taken up: claude interrupts only a turn that runs.
    interrupted: Option<String>,
    mode: Mode,
    costs: ending::Costs,
    plan: tool::Tasks,
    /// The names of the commands that a prompt can be.
    commands: BTreeSet<String>,
}

/// A control request of ours.
#[derive(Clone, Debug, PartialEq)]
enum Order {
    Initialize,
    Interrupt,
    Mode(Mode),
    Model(String),
    Context,
}

/// The arguments for a session. `useAutoModeDuringPlan: false` has it ask in plan mode too; without it a classifier decides.
pub(crate) fn launch(start: &Start) -> Launch {
    let (option, id) = match &start.resume {
        Some(id) => ("--resume", id),
        None => ("--session-id", &start.session_id),
    };
    let mut launch = Launch::default();
    if let Some(folder) = start.private.as_ref().filter(|_| !start.mcp_servers.is_empty()) {
        let path = format!("{folder}/mcp.json");
        launch = launch.args(["--mcp-config", &path]);
        launch.files.insert(path, mcp::for_claude(&start.mcp_servers));
    }
    let launch = launch
        .args(["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"])
        .args(["--include-partial-messages", "--replay-user-messages"])
        // Without people it refuses itself what it would ask, and lists that at the end.
        .args(
            if start.unattended().is_some() { &[][..] } else { &["--permission-prompt-tool", "stdio"] }.iter().copied(),
        )
        .args(["--permission-mode", mode_word(&start.mode)])
        .args(["--settings", r#"{"useAutoModeDuringPlan":false}"#])
        .option(option, Some(id))
        .args(start.is_fork().then_some("--fork-session"))
        .option("--model", start.model.as_deref())
        .each("--allowedTools=", start.unattended().map_or(&[], |unattended| &unattended.tools))
        .option("--max-budget-usd", ending::budget(start).map(|most| most.to_string()).as_deref())
        .env("DISABLE_AUTOUPDATER", "1");
    if start.as_root && start.mode == Mode::Bypass { launch.env("IS_SANDBOX", "1") } else { launch }
}

impl Claude {
    pub(crate) fn new(start: Start) -> Self {
        Self {
            core: Core::with(&start.mcp_servers),
            waiting: BTreeMap::new(),
            next_order: 0,
            is_ready: false,
            prompts: Vec::new(),
            interrupted: None,
            mode: start.mode.clone(),
            costs: ending::Costs::default(),
            plan: tool::Tasks::default(),
            commands: BTreeSet::new(),
            start,
        }
    }

    fn order(&mut self, order: Order, mut request: Value) {
        self.next_order = self.next_order.saturating_add(1);
        let id = format!("host-{}", self.next_order);
        if let (Some(fields), true) = (request.as_object_mut(), self.waiting.len() < MOST_WAITING) {
            let subtype = match &order {
                Order::Initialize => "initialize",
                Order::Interrupt => "interrupt",
                Order::Mode(_) => "set_permission_mode",
                Order::Model(_) => "set_model",
                Order::Context => "get_context_usage",
            };
            fields.insert("subtype".to_owned(), json!(subtype));
            self.core.write(&json!({"type": "control_request", "request_id": id, "request": request}));
            self.waiting.insert(id, order);
        }
    }

    fn prompt(&mut self, prompt: &Prompt) -> Result<(), Refused> {
        if !self.is_ready {
            return Err(Refused::NotReady);
        }
        if self.core.turn.is_some() && !prompt.steer {
            return Err(Refused::Busy);
        }
        let content = prompt::content(prompt, &self.commands)?;
        self.prompts.push(prompt.id.clone());
        self.core.write(&json!({
            "type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": null,
            "session_id": "", "uuid": prompt.id,
        }));
        Ok(())
    }

    fn read(&mut self, event: &Value) {
        match text(event, "/type") {
            "control_response" => self.answer(event),
            "control_request" => self.request(event),
            "control_cancel_request" => {
                let id = event.get("request_id").cloned().unwrap_or_default();
                self.core.withdraw_agents(&id);
            }
            "system" => self.system(event),
            "stream_event" => self.stream(event),
            "assistant" => self.assistant(event),
            "user" => self.user(event),
            "result" => self.result(event),
            "rate_limit_event" => self.costs.limit(event),
            _ => {}
        }
    }

    /// The answer to an order of ours.
    fn answer(&mut self, event: &Value) {
        let Some(order) = self.waiting.remove(text(event, "/response/request_id")) else { return };
        let is_success = text(event, "/response/subtype") == "success";
        let answer = event.pointer("/response/response").unwrap_or(&Value::Null);
        match order {
            Order::Initialize if is_success => self.ready(answer),
            Order::Initialize => {
                self.core.fail(ErrorCode::Unknown, text(event, "/response/error"), None);
            }
            Order::Mode(mode) if is_success => self.changed_mode(mode),
            Order::Model(model) if is_success => {
                self.core.state(StateChange { model: Some(model), ..StateChange::default() });
            }
            Order::Context if is_success => {
                if let (Some(used), Some(size)) = (count(answer, "/totalTokens"), count(answer, "/maxTokens")) {
                    self.core.state(StateChange { context: Some(ContextUse { used, size }), ..StateChange::default() });
                }
            }
            Order::Mode(_) | Order::Model(_) => {
                let text = format!("The agent refused the change: {}", text(event, "/response/error"));
                self.core.fail(ErrorCode::Unknown, &text, None);
            }
            Order::Interrupt | Order::Context => {}
        }
    }

    fn ready(&mut self, answer: &Value) {
        self.is_ready = true;
        let models = list(answer, "/models")
            .map(|model| (text(model, "/value").to_owned(), text(model, "/displayName").to_owned()));
        let found = list(answer, "/commands").map(|command| {
            let hint = some(command, "/argumentHint").map(str::to_owned);
            (text(command, "/name").to_owned(), text(command, "/description").to_owned(), hint)
        });
        self.commands = list(answer, "/commands").map(|command| text(command, "/name").to_owned()).collect();
        let all = [Mode::Ask, Mode::Edit, Mode::Plan, Mode::Bypass].into_iter();
        // bypass can only be left, not be entered later.
        let modes = all.filter(|mode| *mode != Mode::Bypass || self.start.mode == Mode::Bypass);
        let modes = choices(modes.map(|mode| (mode.as_str().to_owned(), String::new())));
        let change = StateChange {
            mode: Some(self.mode.clone()),
            modes: Some(modes),
            models: Some(choices(models)),
            commands: Some(commands(found)),
            ..StateChange::default()
        };
        let session_id = self.start.resume.clone().unwrap_or_else(|| self.start.session_id.clone());
        self.core.say(Event::Ready { session_id });
        self.core.state(change);
    }

    fn changed_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode.clone();
            self.core.state(StateChange { mode: Some(mode), ..StateChange::default() });
        }
    }

    fn system(&mut self, event: &Value) {
        match text(event, "/subtype") {
            "init" => {
                self.costs.version(text(event, "/claude_code_version"), &self.start);
                if let Some(model) = some(event, "/model").filter(|_| self.core.turn.is_none()) {
                    self.core.state(StateChange { model: Some(model.to_owned()), ..StateChange::default() });
                }
                if let Some(mode) = some(event, "/permissionMode") {
                    self.changed_mode(mode_of(mode));
                }
                // The id by which it is resumed, where that is another one than was asked for.
                let names_another = self.start.unattended().is_some() || self.start.is_fork();
                if let Some(id) = some(event, "/session_id").filter(|_| names_another) {
                    self.core.say(Event::Ready { session_id: id.to_owned() });
                }
                self.begin();
            }
            "status" => {
                if let Some(mode) = some(event, "/permissionMode") {
                    self.changed_mode(mode_of(mode));
                }
            }
            "api_retry" => {
                let code = ending::code(text(event, "/error"), count(event, "/error_status"));
                let (attempt, most) =
                    (count(event, "/attempt").unwrap_or(0), count(event, "/max_retries").unwrap_or(0));
                self.core.retry(code, &format!("Attempt {attempt} of {most} failed."));
            }
            _ => {}
        }
    }

    /// A turn begins: with a prompt of ours, or with what the agent had in the background.
    fn begin(&mut self) {
        if self.core.turn.is_none() {
            let cause = if !self.prompts.is_empty() { Cause::Prompt } else { Cause::Background };
            self.core.begin_turn(cause);
        }
    }

    fn stream(&mut self, event: &Value) {
        // The texts of sub-agents come as a whole.
        if some(event, "/parent_tool_use_id").is_some() {
            return;
        }
        match text(event, "/event/delta/type") {
            "text_delta" => {
                self.begin();
                self.core.delta("text", PartKind::Text, text(event, "/event/delta/text"));
            }
            "thinking_delta" => {
                self.begin();
                self.core.delta("thought", PartKind::Thought, text(event, "/event/delta/thinking"));
            }
            _ => {}
        }
    }

    fn assistant(&mut self, event: &Value) {
        let parent = some(event, "/parent_tool_use_id");
        // What the program itself says about an error is in the result again.
        if let Some(error) = some(event, "/error") {
            self.costs.error(error);
            return;
        }
        if parent.is_none() {
            self.begin();
        }
        for block in list(event, "/message/content") {
            let key = |kind: &str| parent.map_or_else(|| kind.to_owned(), |parent| format!("{kind} {parent}"));
            match text(block, "/type") {
                "text" => self.core.whole(&key("text"), PartKind::Text, text(block, "/text"), parent),
                "thinking" => self.core.whole(&key("thought"), PartKind::Thought, text(block, "/thinking"), parent),
                "tool_use" => self.tool_use(block, parent),
                _ => {}
            }
        }
    }

    fn user(&mut self, event: &Value) {
        if is_true(event, "/isReplay") {
            let taken = some(event, "/uuid");
            match self.prompts.iter().position(|id| taken == Some(id)) {
                Some(at) => drop(self.prompts.remove(at)),
                // It is not said which one.
                None => drop(self.prompts.pop()),
            }
            if let Some(id) = taken {
                self.core.say(Event::Taken(id.to_owned()));
            }
            self.begin_prompted();
            if self.interrupted.take_if(|id| taken == Some(id)).is_some() {
                self.order(Order::Interrupt, json!({}));
            }
            return;
        }
        let parent = some(event, "/parent_tool_use_id").map(str::to_owned);
        let results: Vec<&Value> =
            list(event, "/message/content").filter(|block| text(block, "/type") == "tool_result").collect();
        for block in results {
            self.tool_result(block, event.get("tool_use_result"), parent.as_deref());
        }
    }

    fn begin_prompted(&mut self) {
        if self.core.turn.is_none() {
            self.core.begin_turn(Cause::Prompt);
        }
    }
}

impl Driver for Claude {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: true,
            resumes: true,
            shares_process: false,
            refuses_with_message: true,
            says_cost: true,
            lists_commands: false,
        }
    }

    fn begin(&mut self) -> Output {
        self.order(Order::Initialize, json!({"hooks": null}));
        self.core.take()
    }

    fn line(&mut self, line: &Line) -> Output {
        if let Some(event) = self.core.message(line) {
            self.read(&event);
        }
        self.core.take()
    }

    fn command(&mut self, command: Command) -> Result<Output, Refused> {
        match command {
            Command::Prompt(prompt) => self.prompt(&prompt)?,
            Command::Answer { request, reply } => self.reply(&request, &reply)?,
            Command::Interrupt => {
                self.core.withdraw_all("the turn was interrupted");
                if self.core.turn.is_none() {
                    self.interrupted = self.prompts.last().cloned();
                }
                self.order(Order::Interrupt, json!({}));
            }
            Command::SetMode(Mode::Bypass) if self.start.mode != Mode::Bypass => {
                return Err(Refused::Unsupported("claude enters the mode bypass only at its start"));
            }
            Command::SetMode(Mode::Other(_)) => {
                return Err(Refused::Unsupported("the mode is none of ask, edit, plan and bypass"));
            }
            // The program takes any word as a mode, so only ours are sent.
            Command::SetMode(mode) => {
                let word = mode_word(&mode);
                self.order(Order::Mode(mode), json!({"mode": word}));
            }
            Command::SetModel(model) => {
                let request = json!({"model": model});
                self.order(Order::Model(model), request);
            }
            Command::Stop => {
                self.core.withdraw_all("the session was stopped");
                (self.core.stopping, self.core.out.close) = (true, true);
            }
        }
        Ok(self.core.take())
    }

    fn exited(&mut self, exit: &Exit) -> Output {
        self.lost(exit);
        self.core.exited(exit);
        (self.is_ready, self.interrupted) = (false, None);
        self.prompts.clear();
        self.core.take()
    }
}
