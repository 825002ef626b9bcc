//! What the agent does becomes messages.

use std::sync::Arc;

use ensemble_agent::{Event, Output, Permission as Asked, Reply, StateChange};
use ensemble_protocol::transcript::body::{
    Content, Failure, Permission, Question, Resolved, TextPart, ToolCall, ToolContent,
};
use ensemble_protocol::transcript::rules::OpenRequest;
use ensemble_protocol::transcript::words::{OptionKind, Outcome, ToolStatus};
use ensemble_types::ids::unique;

use super::diffs::Proposed;
use super::{About, Core, Open};
use crate::kept::Change;

/// Tool calls that are known to be open. An agent has a few at a time.
const MOST_TOOLS: usize = 512;

impl Core {
    pub(super) fn take_output(&mut self, output: Output) {
        self.effects.lines.extend(output.lines);
        self.effects.close |= output.close;
        for event in output.events {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Ready { session_id } => {
                self.is_ready = true;
                if self.kept.resume.as_ref() != Some(&session_id) {
                    self.change(Change::Conversation(session_id));
                }
            }
            Event::ResumeFailed(why) => self.begin_again(&why),
            // The turn that begins with it names it.
            Event::Taken(_) => {}
            Event::TurnStarted(cause) => {
                let is_asked_for = self.in_flight.is_some();
                self.begin_turn(cause);
                if !is_asked_for {
                    // The agent has begun it by itself.
                    self.turn_has_cost(0.0);
                }
            }
            Event::TurnEnded { stop, usage, cost_usd } => {
                if let Some(cost) = cost_usd {
                    self.change(Change::Cost(self.kept.cost_usd.unwrap_or_default() + cost));
                }
                if let Some(turn) = self.kept.turn.clone() {
                    self.finish_turn(turn, |said| {
                        (said.stop_reason, said.usage, said.cost_usd) = (Some(stop), usage, cost_usd);
                    });
                }
            }
            Event::Cost(usd) => self.turn_has_cost(usd),
            Event::Delta { part, kind, text } => {
                self.parts.grow(part, &text, kind == ensemble_agent::PartKind::Thought);
            }
            Event::Complete { part, of, kind, text, interrupted, parent } => {
                self.parts.complete(part);
                let turn_id = self.turn_id();
                let said = TextPart { turn_id, part, of, text, interrupted, parent_tool_call_id: parent };
                self.say(match kind {
                    ensemble_agent::PartKind::Text => Content::Text(said),
                    ensemble_agent::PartKind::Thought => Content::Thought(said),
                });
            }
            Event::Tool(call) => self.tool(*call),
            Event::ToolOutput { part, text, .. } => self.parts.grow(part, &text, false),
            Event::Plan(plan) => self.say(Content::Plan(plan)),
            Event::Permission(asked) => self.ask(*asked),
            Event::Question(asked) => {
                let request_id = unique().to_string();
                let question = Question {
                    request_id: request_id.clone(),
                    tool_call_id: asked.tool_call_id,
                    questions: asked.questions,
                };
                let Some(digest) = self.say_whole(Content::Question(question)) else {
                    return self.cannot_show(asked.request, Reply::Refuse { message: None });
                };
                self.change(Change::Ask(request_id.clone(), true));
                let about = About::Question { request: asked.request };
                self.open.insert(request_id, Open { asked: OpenRequest { digest, options: None }, about });
            }
            Event::Withdrawn { request, reason } => {
                let found = self.open.iter().find(|(_, open)| open.about.is_of(&request)).map(|(id, _)| id.clone());
                if let Some(request_id) = found {
                    self.withdraw(request_id, reason);
                }
            }
            Event::State(change) => self.state_changed(*change),
            Event::Failure { code, text, retry_at } => {
                self.last_failure = Some((code.clone(), retry_at));
                self.say(Content::Error(Failure { code, text, retry_at }));
            }
            Event::Retrying { code, text } => {
                let text = format!("{text} The agent tries again.");
                self.say(Content::Error(Failure { code, text, retry_at: None }));
            }
            // Only where no person watches.
            Event::Answer(_) | Event::Denied { .. } => {}
            Event::Raw(_) => {
                tracing::debug!(session.id = %self.kept.session, "The agent sent a line that is no message.")
            }
            Event::Note(note) => tracing::debug!(session.id = %self.kept.session, "{note}"),
        }
    }

    /// The commands that have outlived their turn, as the machine sees them.
    pub(crate) fn still_run(&mut self, commands: Vec<String>) {
        self.still_running = commands.into();
    }

    /// Whether the machine has to look for such commands, because the agent does not list them.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.abilities.is_some_and(|abilities| !abilities.lists_commands)
    }

    pub(crate) fn still_running(&self) -> Arc<[String]> {
        self.still_running.clone()
    }

    pub(crate) fn has_commands(&self) -> bool {
        !self.still_running.is_empty()
    }

    /// The agent has lost the conversation, so it begins another one.
    fn begin_again(&mut self, why: &str) {
        let text = format!(
            "The agent does not have this conversation any more ({why}). It begins a new one and does not know what was said above."
        );
        self.fail(ensemble_protocol::transcript::words::ErrorCode::Context, &text);
        self.change(Change::Forget(unique()));
        self.is_stopping = false;
        // The process is of no use. When it has ended, the next one begins the new conversation.
        self.effects.close = true;
    }

    fn turn_id(&self) -> String {
        self.kept.turn.as_ref().map(|turn| turn.id.clone()).unwrap_or_default()
    }

    fn tool(&mut self, mut call: ToolCall) {
        call.turn_id = self.turn_id();
        let is_over = matches!(call.status, Some(ToolStatus::Completed | ToolStatus::Failed | ToolStatus::Interrupted));
        let is_known = self.kept.tools.contains(&call.tool_call_id);
        match (is_over, is_known) {
            (true, true) => self.change(Change::ToolEnded(call.tool_call_id.clone())),
            (false, false) if call.status.is_some() && self.kept.tools.len() < MOST_TOOLS => {
                self.change(Change::Tool(call.tool_call_id.clone()))
            }
            _ => {}
        }
        if let Some(part) = call.part.filter(|_| is_over) {
            self.parts.complete(part);
        }
        self.say(Content::ToolCall(Box::new(call)));
    }

    fn ask(&mut self, asked: Asked) {
        let request_id = unique().to_string();
        let mut content = asked.content;
        let change = Proposed::of(&asked.input, &self.kept.directory).filter(|_| content.is_empty());
        if let Some(change) = &change {
            content = vec![ToolContent::Diff(change.diff.clone())];
        }
        let permission = Permission {
            request_id,
            tool_call_id: asked.tool_call_id,
            title: asked.title,
            detail: asked.detail,
            cut: asked.cut,
            content,
            options: asked.options,
        };
        self.show(permission, asked.request, change);
    }

    /// Shows a permission request of the agent.
    pub(super) fn show(&mut self, permission: Permission, request: String, change: Option<Proposed>) {
        let Some(digest) = self.say_whole(Content::Permission(Box::new(permission.clone()))) else {
            let refusal = permission.options.iter().find(|option| option.kind == OptionKind::RejectOnce);
            let id = refusal.map(|option| option.option_id.clone()).unwrap_or_default();
            return self.cannot_show(request, Reply::Option { id, message: None });
        };
        self.change(Change::Ask(permission.request_id.clone(), false));
        let asked = OpenRequest { digest, options: Some(permission.options.clone()) };
        let request_id = permission.request_id.clone();
        let about = About::Agent { request, change, permission: Box::new(permission) };
        self.open.insert(request_id, Open { asked, about });
    }

    /// People cannot decide about something that they cannot see.
    fn cannot_show(&mut self, request: String, refusal: Reply) {
        let text = "The agent asked about something that is too long to be shown, so it was refused.";
        self.fail(ensemble_protocol::transcript::words::ErrorCode::Unknown, text);
        if !self.order(ensemble_agent::Command::Answer { request, reply: refusal }) {
            self.interrupt();
        }
    }

    pub(super) fn withdraw(&mut self, request_id: String, reason: &str) {
        self.resolve(Resolved {
            request_id,
            outcome: Outcome::Withdrawn,
            option_id: None,
            by: None,
            reason: Some(reason.to_owned()),
        });
    }

    fn state_changed(&mut self, change: StateChange) {
        if let Some(mode) = change.mode.filter(|mode| *mode != self.kept.mode) {
            self.change(Change::Mode(mode));
        }
        if let Some(model) = change.model.filter(|model| self.kept.model.as_ref() != Some(model)) {
            self.change(Change::Model(model));
        }
        if let Some(commands) = change.still_running {
            self.still_running = commands.into();
        }
        let choices = &mut self.choices;
        choices.modes = change.modes.unwrap_or_else(|| std::mem::take(&mut choices.modes));
        choices.models = change.models.unwrap_or_else(|| std::mem::take(&mut choices.models));
        choices.commands = change.commands.unwrap_or_else(|| std::mem::take(&mut choices.commands));
        choices.context = change.context.or(choices.context);
    }
}

impl About {
    fn is_of(&self, driver_request: &str) -> bool {
        match self {
            Self::Agent { request, .. } | Self::Question { request } => request == driver_request,
            Self::Guest { .. } | Self::Cost => false,
        }
    }
}
