//! `session/update`: what the agent says and does.

use ensemble_protocol::transcript::body::{
    ContextUse, Diff, Location, Plan, PlanEntry, Terminal, ToolCall, ToolContent,
};
use ensemble_protocol::transcript::words::{PlanPriority, PlanStatus, ToolKind, ToolStatus};
use serde_json::Value;

use super::prompt::usage;
use super::{Acp, modes};
use crate::core::commands;
use crate::event::{Event, PartKind, StateChange};
use crate::json::{count, list, one_line, some, text};

/// The entries of a plan.
const MOST_ENTRIES: usize = 256;

impl Acp {
    pub(super) fn notice(&mut self, method: &str, params: &Value) {
        match method {
            "session/update"
                if text(params, "/sessionId") == self.session.as_deref().unwrap_or("") && !self.replays =>
            {
                self.update(params.get("update").unwrap_or(&Value::Null));
            }
            "$/cancel_request" => {
                let id = params.get("requestId").or(params.get("id")).cloned().unwrap_or_default();
                self.core.withdraw_agents(&id);
            }
            _ => {}
        }
    }

    fn update(&mut self, update: &Value) {
        let what = text(update, "/sessionUpdate");
        let is_running = self.core.turn.is_some();
        let key = match what {
            "agent_message_chunk" => Some(("text", PartKind::Text)),
            "agent_thought_chunk" => Some(("thought", PartKind::Thought)),
            _ => None,
        };
        if let Some((key, kind)) = key.filter(|_| is_running) {
            if let Some(found) = usage(update, "/_meta/usage") {
                self.usage = Some(found);
            }
            // A text ends where something else begins: the protocol has no end of a text.
            let other = if key == "text" { "thought" } else { "text" };
            self.core.texts.close(&mut self.core.out.events, other);
            self.core.delta(key, kind, text(update, "/content/text"));
            self.is_answering |= kind == PartKind::Text;
            return;
        }
        match what {
            "tool_call" | "tool_call_update" if is_running && some(update, "/toolCallId").is_some() => {
                self.close_texts();
                self.core.tool(tool_call(update));
                self.is_answering = true;
            }
            "plan" => self.core.say(Event::Plan(plan(update))),
            "available_commands_update" => {
                let found = list(update, "/availableCommands").map(|command| {
                    let hint = some(command, "/input/hint").map(str::to_owned);
                    (text(command, "/name").to_owned(), text(command, "/description").to_owned(), hint)
                });
                self.core.state(StateChange { commands: Some(commands(found)), ..StateChange::default() });
            }
            "current_mode_update" => {
                let mode = self.modes.of_id(text(update, "/currentModeId"));
                self.changed_mode(mode);
            }
            "config_option_update" => {
                let mode = modes::current(update, "mode").and_then(|id| self.modes.of_id(id));
                self.changed_mode(mode);
                let model = modes::current(update, "model").map(str::to_owned);
                self.core.state(StateChange { model, ..StateChange::default() });
            }
            "usage_update" => {
                if let (Some(used), Some(size)) = (count(update, "/used"), count(update, "/size")) {
                    self.core.state(StateChange { context: Some(ContextUse { used, size }), ..StateChange::default() });
                }
                let is_dollars = matches!(text(update, "/cost/currency"), "" | "USD");
                let cost = update.pointer("/cost/amount").and_then(Value::as_f64);
                self.cost = cost.filter(|cost| is_dollars && cost.is_finite()).or(self.cost);
                let of_turn = self.cost.unwrap_or(0.0) - self.counted.unwrap_or(0.0);
                if of_turn > 0.0 && self.core.turn.is_some() {
                    self.core.say(Event::Cost(of_turn));
                }
            }
            _ => {}
        }
    }

    fn close_texts(&mut self) {
        for key in ["thought", "text"] {
            self.core.texts.close(&mut self.core.out.events, key);
        }
    }

    fn changed_mode(&mut self, mode: Option<ensemble_protocol::transcript::words::Mode>) {
        if let Some(mode) = mode.filter(|mode| self.modes.now.as_ref() != Some(mode)) {
            self.modes.now = Some(mode.clone());
            self.core.state(StateChange { mode: Some(mode), ..StateChange::default() });
        }
    }
}

/// A call, or what has changed in it.
pub(super) fn tool_call(update: &Value) -> ToolCall {
    let content = contents(update);
    let has_content = update.get("content").is_some_and(Value::is_array);
    let places: Vec<_> = list(update, "/locations")
        .filter_map(|place| {
            let line = count(place, "/line").and_then(|line| u32::try_from(line).ok());
            some(place, "/path").map(|path| Location { path: path.to_owned(), line })
        })
        .take(64)
        .collect();
    ToolCall {
        tool_call_id: text(update, "/toolCallId").to_owned(),
        title: some(update, "/title").map(one_line),
        kind: some(update, "/kind").map(ToolKind::of),
        status: some(update, "/status").map(ToolStatus::of),
        locations: Some(places).filter(|places| !places.is_empty()),
        content: Some(content).filter(|_| has_content),
        ..ToolCall::default()
    }
}

pub(super) fn contents(update: &Value) -> Vec<ToolContent> {
    let one = |content: &Value| match text(content, "/type") {
        "content" => some(content, "/content/text").map(ToolContent::text),
        "diff" => Some(ToolContent::Diff(Diff {
            path: text(content, "/path").to_owned(),
            // Some agents give an empty text for a new file.
            old_text: some(content, "/oldText").map(str::to_owned),
            new_text: text(content, "/newText").to_owned(),
            line: None,
            cut: None,
        })),
        "terminal" => Some(ToolContent::Terminal(Terminal {
            terminal_id: text(content, "/terminalId").to_owned(),
            output: String::new(),
            cut: None,
            exit_status: None,
        })),
        _ => None,
    };
    list(update, "/content").filter_map(one).collect()
}

fn plan(update: &Value) -> Plan {
    let entries = list(update, "/entries").take(MOST_ENTRIES).map(|entry| PlanEntry {
        content: text(entry, "/content").to_owned(),
        priority: PlanPriority::of(some(entry, "/priority").unwrap_or("medium")),
        status: PlanStatus::of(some(entry, "/status").unwrap_or("pending")),
    });
    Plan { entries: entries.collect() }
}
