//! What all drivers share: the turn that runs, its texts and tools, and the requests that are open.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::{
    Choice, PermissionOption, QuestionItem, SlashCommand, ToolCall, ToolContent, Usage,
};
use ensemble_protocol::transcript::words::{Cause, ErrorCode, OptionKind, StopReason, ToolStatus};
use ensemble_protocol::transcript::{detail, visible};
use ensemble_types::time::Timestamp;
use serde_json::Value;

use crate::command::{Exit, Refused};
use crate::event::{Event, Output, PartKind, Permission, Question, StateChange};
use crate::json::one_line;
use crate::lines::Line;
use crate::mcp::{McpServer, Secrets};
use crate::texts::Texts;
use crate::tools::Tools;

/// The requests that may be open at once.
const MOST_ASKED: usize = 99;
/// The options of a request, and the questions of one.
const MOST_OPTIONS: usize = 32;
/// The commands and models that are listed.
const MOST_CHOICES: usize = 256;

/// The state of one session. `A` is what a driver remembers of a request.
#[derive(Debug)]
pub(crate) struct Core<A> {
    pub(crate) out: Output,
    pub(crate) turn: Option<Cause>,
    pub(crate) texts: Texts,
    pub(crate) tools: Tools,
    pub(crate) asked: BTreeMap<String, Asked<A>>,
    next_request: u64,
    /// The end of the process is wanted.
    pub(crate) stopping: bool,
    secrets: Secrets,
}

/// A request that is open.
#[derive(Debug)]
pub(crate) struct Asked<A> {
    /// The agent's id of it, as JSON.
    pub(crate) agent_id: Value,
    /// All that the agent asked with.
    pub(crate) whole: Value,
    /// What a person may choose.
    pub(crate) options: Vec<String>,
    pub(crate) about: A,
}

impl<A> Default for Core<A> {
    fn default() -> Self {
        Self {
            out: Output::default(),
            turn: None,
            texts: Texts::default(),
            tools: Tools::default(),
            asked: BTreeMap::new(),
            next_request: 0,
            stopping: false,
            secrets: Secrets::default(),
        }
    }
}

/// What a driver knows of a permission request.
pub(crate) struct Wish {
    pub(crate) tool_call_id: Option<String>,
    pub(crate) title: String,
    /// The whole of it, not yet made visible.
    pub(crate) detail: String,
    pub(crate) content: Vec<ToolContent>,
    pub(crate) options: Vec<PermissionOption>,
    pub(crate) input: Value,
}

impl<A> Core<A> {
    /// Of an agent that gets these servers.
    pub(crate) fn with(servers: &[McpServer]) -> Self {
        Self { secrets: Secrets::of(servers), ..Self::default() }
    }

    /// What is to be given back to the host.
    pub(crate) fn take(&mut self) -> Output {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn write(&mut self, line: &Value) {
        self.out.lines.push(line.to_string());
    }

    /// The message that a line is.
    pub(crate) fn message(&mut self, line: &Line) -> Option<Value> {
        match line {
            Line::Overlong(bytes) => {
                self.note(format!("The agent sent a line of {bytes} bytes, which is not read."));
                None
            }
            Line::Piece(piece) => {
                self.say(Event::Raw(piece.clone()));
                None
            }
            Line::Text(line) if line.trim().is_empty() => None,
            Line::Text(line) => {
                let message = serde_json::from_str(line).ok().filter(Value::is_object);
                if message.is_none() {
                    self.say(Event::Raw(format!("{line}\n")));
                }
                message
            }
        }
    }

    pub(crate) fn say(&mut self, event: Event) {
        self.out.events.push(event);
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.say(Event::Note(what.into()));
    }

    pub(crate) fn state(&mut self, change: StateChange) {
        if change != StateChange::default() {
            self.say(Event::State(Box::new(change)));
        }
    }

    pub(crate) fn fail(&mut self, code: ErrorCode, text: &str, retry_at: Option<Timestamp>) {
        let text = self.secrets.hide(text);
        let text = visible(ensemble_protocol::transcript::bounds::beginning(&text, 4 << 10).0).into_owned();
        self.say(Event::Failure { code, text, retry_at });
    }

    pub(crate) fn retry(&mut self, code: ErrorCode, text: &str) {
        let text = self.secrets.hide(text);
        self.say(Event::Retrying { code, text });
    }

    pub(crate) fn resume_failed(&mut self, why: &str) {
        let why = self.secrets.hide(why);
        self.say(Event::ResumeFailed(why));
    }

    /// The agent does not reach these servers of the editor.
    pub(crate) fn leave_out(&mut self, servers: &[McpServer]) {
        for server in servers {
            let text =
                format!("The agent takes no MCP servers by {}, so {} is left out.", server.kind(), server.name());
            self.fail(ErrorCode::Unknown, &text, None);
        }
    }

    pub(crate) fn begin_turn(&mut self, cause: Cause) {
        if self.turn.is_none() {
            self.turn = Some(cause.clone());
            self.texts.begin();
            self.say(Event::TurnStarted(cause));
        }
    }

    /// Ends the turn, and all that is open in it.
    pub(crate) fn end_turn(&mut self, stop: StopReason, usage: Option<Usage>, cost_usd: Option<f64>) {
        let interrupted = !matches!(stop, StopReason::EndTurn);
        self.withdraw_all("the turn has ended");
        self.texts.close_all(&mut self.out.events, interrupted);
        let status = if interrupted { ToolStatus::Interrupted } else { ToolStatus::Failed };
        self.tools.close_all(&mut self.out.events, &status);
        if self.turn.take().is_some() {
            self.say(Event::TurnEnded { stop, usage, cost_usd });
        }
    }

    pub(crate) fn delta(&mut self, key: &str, kind: PartKind, text: &str) {
        self.texts.delta(&mut self.out.events, key, kind, text);
    }

    pub(crate) fn whole(&mut self, key: &str, kind: PartKind, text: &str, parent: Option<&str>) {
        self.texts.whole(&mut self.out.events, key, kind, text, parent);
    }

    pub(crate) fn tool(&mut self, call: ToolCall) {
        self.tools.take(&mut self.out.events, call);
    }

    /// The output of a tool grows.
    pub(crate) fn output(&mut self, id: &str, text: &str) {
        let part = match self.tools.get(id) {
            Some(known) => known.part,
            None => return,
        };
        let part = part.unwrap_or_else(|| self.texts.number());
        if let Some(known) = self.tools.get_mut(id) {
            known.part = Some(part);
        }
        for piece in ensemble_protocol::transcript::bounds::split(text) {
            self.say(Event::ToolOutput { id: id.to_owned(), part, text: piece.to_owned() });
        }
    }

    /// Remembers a request. `None`: it is the same one again, or one too many.
    fn remember(&mut self, agent_id: &Value, whole: &Value, options: Vec<String>, about: A) -> Option<String> {
        let before = self.asked.iter().find(|(_, asked)| asked.agent_id == *agent_id);
        if let Some((request, asked)) = before {
            if asked.whole == *whole {
                self.note("The agent sent a request again.");
                return None;
            }
            // An answer to the old request would not be for this one.
            let request = request.clone();
            self.withdraw(&request, "the agent changed the request");
        }
        if self.asked.len() >= MOST_ASKED {
            self.note("The agent has too many open requests; one is not shown.");
            return None;
        }
        self.next_request = self.next_request.saturating_add(1);
        let request = self.next_request.to_string();
        self.asked.insert(request.clone(), Asked { agent_id: agent_id.clone(), whole: whole.clone(), options, about });
        Some(request)
    }

    /// Asks for a permission. When the detail does not fit, only what refuses is offered.
    pub(crate) fn ask(&mut self, agent_id: &Value, whole: &Value, wish: Wish, about: A) {
        let (shown, cut) = detail(&wish.detail);
        let mut options = wish.options;
        options.truncate(MOST_OPTIONS);
        options.retain(|option| cut.is_none() || is_refusal(&option.kind));
        for option in &mut options {
            option.name = visible(&option.name).into_owned();
        }
        let ids = options.iter().map(|option| option.option_id.clone()).collect();
        let Some(request) = self.remember(agent_id, whole, ids, about) else { return };
        self.say(Event::Permission(Box::new(Permission {
            request,
            agent_request: agent_id.to_string(),
            tool_call_id: wish.tool_call_id,
            title: one_line(&wish.title),
            detail: shown,
            cut,
            content: wish.content,
            options,
            input: wish.input,
        })));
    }

    /// Asks questions.
    pub(crate) fn question(
        &mut self,
        agent_id: &Value,
        whole: &Value,
        tool_call_id: Option<String>,
        mut questions: Vec<QuestionItem>,
        about: A,
    ) {
        questions.truncate(MOST_OPTIONS);
        let ids = questions.iter().map(|question| question.id.clone()).collect();
        let Some(request) = self.remember(agent_id, whole, ids, about) else { return };
        let agent_request = agent_id.to_string();
        self.say(Event::Question(Box::new(Question { request, agent_request, tool_call_id, questions })));
    }

    /// The request that a person answers. It is closed with that.
    pub(crate) fn answered(&mut self, request: &str) -> Result<Asked<A>, Refused> {
        self.asked.remove(request).ok_or(Refused::Closed)
    }

    pub(crate) fn withdraw(&mut self, request: &str, reason: &'static str) {
        if self.asked.remove(request).is_some() {
            self.say(Event::Withdrawn { request: request.to_owned(), reason });
        }
    }

    /// The agent no longer asks what it asked with this id.
    pub(crate) fn withdraw_agents(&mut self, agent_id: &Value) {
        let found =
            self.asked.iter().find(|(_, asked)| asked.agent_id == *agent_id).map(|(request, _)| request.clone());
        if let Some(request) = found {
            self.withdraw(&request, "the agent withdrew the request");
        }
    }

    pub(crate) fn withdraw_all(&mut self, reason: &'static str) {
        for request in std::mem::take(&mut self.asked).into_keys() {
            self.say(Event::Withdrawn { request, reason });
        }
    }

    /// The process has ended.
    pub(crate) fn exited(&mut self, exit: &Exit) {
        self.withdraw_all("agent restarted");
        let stop = if self.stopping { StopReason::Cancelled } else { StopReason::Error };
        if !self.stopping {
            let how = exit.code.map_or("by a signal".to_owned(), |code| format!("with exit code {code}"));
            let said = one_line(exit.stderr.trim().lines().next_back().unwrap_or_default());
            let text = format!("The agent ended {how}. {said}");
            self.fail(ErrorCode::Crashed, text.trim(), None);
        }
        self.end_turn(stop, None, None);
    }
}

pub(crate) fn option(id: &str, name: impl Into<String>, kind: OptionKind) -> PermissionOption {
    PermissionOption { option_id: id.to_owned(), name: name.into(), kind }
}

pub(crate) fn is_refusal(kind: &OptionKind) -> bool {
    matches!(kind, OptionKind::RejectOnce | OptionKind::RejectAlways)
}

/// Choices with an id, at most as many as are listed.
pub(crate) fn choices(found: impl Iterator<Item = (String, String)>) -> Vec<Choice> {
    let named = found.filter(|(id, _)| !id.is_empty()).take(MOST_CHOICES);
    named.map(|(id, name)| Choice { name: if name.is_empty() { id.clone() } else { one_line(&name) }, id }).collect()
}

/// Commands with a name, at most as many as are listed.
pub(crate) fn commands(found: impl Iterator<Item = (String, String, Option<String>)>) -> Vec<SlashCommand> {
    let named = found.filter(|(name, ..)| !name.is_empty()).take(MOST_CHOICES);
    named.map(|(name, about, hint)| SlashCommand { name, description: one_line(&about), hint }).collect()
}

/// All of an input, one field after the other, so that nothing of it is hidden.
pub(crate) fn whole_input(first: &[&str], input: &Value) -> String {
    let Some(fields) = input.as_object() else { return show(input) };
    let mut shown = Vec::new();
    for name in first.iter().filter(|name| fields.contains_key(**name)) {
        shown.extend(fields.get(*name).map(|value| field(name, value)));
    }
    shown.extend(
        fields.iter().filter(|(name, _)| !first.contains(&name.as_str())).map(|(name, value)| field(name, value)),
    );
    shown.join("\n")
}

fn field(name: &str, value: &Value) -> String {
    let text = show(value);
    if text.contains('\n') { format!("{name}:\n{text}") } else { format!("{name}: {text}") }
}

fn show(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
