//! The turn of a task, without I/O: what the agent asks is refused, what it does is counted and shown, and its end is judged.

use std::time::{Duration, UNIX_EPOCH};

use ensemble_agent::{Command, Event, PartKind, Permission, Prompt, Reply};
use ensemble_host::wake::wall_clock;
use ensemble_process::Exit;
use ensemble_protocol::transcript::body;
use ensemble_protocol::transcript::words::{ErrorCode, OptionKind, StopReason};
use ensemble_types::leases::{FinishStatus, LeaseError, LeaseFinish};
use ensemble_types::runs::{PermissionDenial, PermissionDenials, Provider, Usage};
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;

use super::text::Shown;
use crate::excerpt::{excerpt, one_line};
use crate::outcome::{MESSAGE_BYTES, Outcome, Stop, error};

/// The interface's limits of refusals.
const LISTED_DENIALS: usize = 32;
const DENIAL_BYTES: usize = 512;

/// What an event makes necessary.
#[derive(Debug, PartialEq)]
pub(super) enum Do {
    Tell(Command),
    /// The agent has nothing to do any more.
    End,
    /// It has cost more than it may.
    TooExpensive,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Because {
    Other,
    /// The model refused the request.
    Model,
    /// The program is not signed in.
    SignIn,
    /// The provider's usage limit is reached, and the program gave up.
    Limit,
    /// It has cost what it may.
    Cost,
    /// It was not ready for the prompt in time.
    Start,
}

/// How the agent has ended its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    Failed { message: String, because: Because },
}

/// The turn of a task.
#[derive(Debug)]
pub(super) struct Turn {
    provider: Provider,
    max_cost_usd: Option<f64>,
    /// Until the agent takes it.
    prompt: Option<Prompt>,
    shown: Shown,
    session: Option<String>,
    /// The conversation to resume does not exist.
    has_lost_session: bool,
    usage: Usage,
    /// What the turn that runs has cost so far, where the agent says it.
    cost_so_far: f64,
    denials: PermissionDenials,
    failure: Option<(ErrorCode, String)>,
    /// When the provider can be used again, as it said last.
    limit_ends: Option<Timestamp>,
    ended: Option<Ended>,
}

impl Turn {
    pub(super) fn new(provider: Provider, max_cost_usd: Option<f64>, prompt: Prompt) -> Self {
        Self {
            provider,
            max_cost_usd,
            prompt: Some(prompt),
            shown: Shown::new(),
            session: None,
            has_lost_session: false,
            usage: Usage::default(),
            cost_so_far: 0.0,
            denials: PermissionDenials::default(),
            failure: None,
            limit_ends: None,
            ended: None,
        }
    }

    /// The text for people since the last call.
    pub(super) fn take_text(&mut self) -> String {
        self.shown.take()
    }

    /// The agent's id of its conversation.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(super) fn has_lost_session(&self) -> bool {
        self.has_lost_session
    }

    /// Something that the agent did.
    pub(super) fn event(&mut self, event: Event) -> Option<Do> {
        match event {
            Event::Ready { session_id } => {
                if is_session(&session_id) {
                    self.session = Some(session_id);
                }
                return self.prompt.take().map(Command::Prompt).map(Do::Tell);
            }
            // A turn that has ended was no lost one, whatever the agent says at its end.
            Event::ResumeFailed(_) if self.ended.is_none() => {
                self.has_lost_session = true;
                return Some(Do::End);
            }
            Event::TurnEnded { stop, usage, cost_usd } => return Some(self.turn_ended(stop, usage, cost_usd)),
            Event::Cost(usd) => {
                self.cost_so_far = usd;
                return self.is_too_expensive().then_some(Do::TooExpensive);
            }
            Event::Delta { part, kind, text } => self.shown.delta(part, kind, &text),
            Event::Complete { part, of, kind: PartKind::Text, text, parent, .. } => {
                self.shown.complete(part, of.is_some(), parent.is_some(), &text);
            }
            Event::Tool(call) => self.shown.tool(&call),
            Event::Permission(asked) => return Some(self.refuse(&asked)),
            Event::Question(asked) => {
                let text = asked.questions.first().map_or("", |question| &question.text);
                self.deny("question", text);
                let reply = Reply::Refuse { message: Some(NO_PERSON.to_owned()) };
                return Some(Do::Tell(Command::Answer { request: asked.request, reply }));
            }
            Event::Denied { tool, detail } => self.deny(&tool, &detail),
            Event::Answer(answer) => self.shown.set_answer(&answer),
            Event::Failure { code, text, retry_at } => {
                self.shown.note(&format!("[error] {}", one_line(&text)));
                self.limit_ends = retry_at;
                let is_at_start = self.prompt.is_some();
                self.failure = Some((code, text));
                if is_at_start {
                    self.ended = Some(self.failed(Because::Other));
                    return Some(Do::End);
                }
            }
            Event::Retrying { text, .. } => self.shown.note(&format!("[error] {}", one_line(&text))),
            Event::Raw(text) => self.shown.raw(&text),
            Event::ResumeFailed(_)
            | Event::Complete { .. }
            | Event::Taken(_)
            | Event::TurnStarted(_)
            | Event::ToolOutput { .. }
            | Event::Plan(_)
            | Event::Withdrawn { .. }
            | Event::State(_)
            | Event::Note(_) => {}
        }
        None
    }

    /// Whether the agent is still to be ready for the prompt.
    pub(super) fn is_starting(&self) -> bool {
        self.prompt.is_some() && self.ended.is_none()
    }

    /// It was not in this time.
    pub(super) fn not_ready(&mut self, within: Duration) {
        let message = format!("{} was not ready for the prompt within {} s.", self.provider, within.as_secs());
        self.ended = Some(Ended::Failed { message, because: Because::Start });
    }

    /// The agent does not take the prompt.
    pub(super) fn not_taken(&mut self, why: &str) {
        self.ended = Some(Ended::Failed { message: why.to_owned(), because: Because::Other });
    }

    fn turn_ended(&mut self, stop: StopReason, usage: Option<body::Usage>, cost_usd: Option<f64>) -> Do {
        self.shown.end_line();
        let plus = |sum: Option<u64>, more: Option<u64>| more.map(|more| sum.unwrap_or(0).saturating_add(more)).or(sum);
        self.usage.input_tokens = plus(self.usage.input_tokens, usage.map(|usage| usage.input_tokens));
        self.usage.output_tokens = plus(self.usage.output_tokens, usage.map(|usage| usage.output_tokens));
        let so_far = std::mem::take(&mut self.cost_so_far);
        let cost = cost_usd.or(Some(so_far).filter(|cost| *cost > 0.0));
        self.usage.cost_usd = cost.map(|cost| self.usage.cost_usd.unwrap_or(0.0) + cost).or(self.usage.cost_usd);
        self.ended = Some(match stop {
            StopReason::EndTurn => Ended::Well,
            StopReason::MaxTokens if self.failure.is_none() => Ended::Well,
            StopReason::Refusal => self.failed(Because::Model),
            StopReason::Limit if !matches!(self.failure, Some((ErrorCode::Quota, _))) => self.failed(Because::Cost),
            _ => self.failed(Because::Other),
        });
        self.failure = None;
        if self.is_too_expensive() { Do::TooExpensive } else { Do::End }
    }

    /// With what the agent has said last of a failure.
    fn failed(&self, because: Because) -> Ended {
        let said = self.failure.as_ref().map(|(_, text)| text.clone());
        let because = match (because, &self.failure) {
            (Because::Other, Some((ErrorCode::Login, _))) => Because::SignIn,
            (Because::Other, Some((ErrorCode::Quota, _))) => Because::Limit,
            (because, _) => because,
        };
        let message = match (said, because) {
            (Some(said), _) => said,
            (None, Because::Model) => {
                self.shown.answer().unwrap_or_else(|| "The model refused the request.".to_owned())
            }
            (None, _) => String::new(),
        };
        Ended::Failed { message: excerpt(&message, MESSAGE_BYTES), because }
    }

    fn is_too_expensive(&self) -> bool {
        let cost = self.usage().cost_usd.unwrap_or(0.0);
        self.max_cost_usd.is_some_and(|max| cost > max)
    }

    /// With what the turn that runs has cost.
    fn usage(&self) -> Usage {
        let cost_usd = match self.cost_so_far {
            cost if cost > 0.0 => Some(self.usage.cost_usd.unwrap_or(0.0) + cost),
            _ => self.usage.cost_usd,
        };
        Usage { cost_usd, ..self.usage }
    }

    fn refuse(&mut self, asked: &Permission) -> Do {
        let tool =
            asked.tool_call_id.as_deref().and_then(|id| self.shown.begun(id)).unwrap_or_else(|| "tool".to_owned());
        self.deny(&tool, &asked.title);
        let of_kind = |kind| asked.options.iter().find(|option| option.kind == kind);
        let refusal = of_kind(OptionKind::RejectOnce).or_else(|| of_kind(OptionKind::RejectAlways));
        Do::Tell(match refusal {
            Some(option) => {
                let reply = Reply::Option { id: option.option_id.clone(), message: None };
                Command::Answer { request: asked.request.clone(), reply }
            }
            None => Command::Interrupt,
        })
    }

    /// The program was refused something, because no person was there to allow it.
    fn deny(&mut self, tool: &str, detail: &str) {
        self.denials.count = self.denials.count.saturating_add(1);
        let tool = Text::new(excerpt(&one_line(tool), 64)).or_else(|_| Text::new("unknown"));
        let summary = Text::new(excerpt(&one_line(detail).replace('\0', "\u{fffd}"), DENIAL_BYTES));
        if let (Ok(tool), Ok(summary)) = (tool, summary)
            && self.denials.denials.len() < LISTED_DENIALS
        {
            self.denials.denials.push(PermissionDenial { tool, summary });
        }
    }

    /// Adds what the turn was to a report.
    pub(super) fn report(&self, finish: LeaseFinish) -> LeaseFinish {
        LeaseFinish {
            output_summary: self.shown.answer().and_then(|answer| Blob::new(answer).ok()),
            provider_session_id: self.session().and_then(|id| Text::new(id).ok()),
            usage: Some(self.usage()).filter(|usage| *usage != Usage::default()),
            permission_denials: (self.denials.count > 0).then(|| self.denials.clone()),
            ..finish
        }
    }

    /// The outcome: both the exit and what was said last must be good. `exit` is `None` where the runner has ended a program that had
    /// nothing to do any more. `stderr` is the end of its standard error.
    pub(super) fn verdict(&self, exit: Option<Exit>, stop: Option<Stop>, stderr: &str) -> Outcome {
        let exit_code = if let Some(Exit::Code(code)) = exit { Some(code) } else { None };
        let outcome = |status, error| Outcome { exit_code, ..Outcome::of(status, error) };
        let too_expensive = self.is_too_expensive() || self.is_because(Because::Cost) || stop == Some(Stop::Cost);
        let succeeded = self.ended == Some(Ended::Well) && matches!(exit, None | Some(Exit::Code(0)));
        match stop {
            // The program finished before the order to stop reached it.
            _ if succeeded && !too_expensive => outcome(FinishStatus::Completed, None),
            Some(Stop::Cancel) => outcome(FinishStatus::Cancelled, None),
            Some(Stop::Timeout) => outcome(FinishStatus::Timeout, error("TIMEOUT", TOO_LONG)),
            Some(Stop::HandBack) => outcome(FinishStatus::Cancelled, Outcome::handed_back().error),
            _ if too_expensive => outcome(FinishStatus::Failed, error("COST_LIMIT_REACHED", self.cost_limit())),
            _ if self.is_because(Because::Limit) => Outcome {
                resume_at: self.resume_at(),
                ..outcome(FinishStatus::Quota, error("PROVIDER_LIMIT_REACHED", self.message()))
            },
            _ => outcome(FinishStatus::Failed, self.failure(exit.unwrap_or(Exit::Code(0)), stderr)),
        }
    }

    fn is_because(&self, of: Because) -> bool {
        matches!(&self.ended, Some(Ended::Failed { because, .. }) if *because == of)
    }

    fn message(&self) -> &str {
        if let Some(Ended::Failed { message, .. }) = &self.ended { message } else { "" }
    }

    fn cost_limit(&self) -> String {
        let cost = self.usage().cost_usd.map_or(String::new(), |cost| format!(" The attempt has cost ${cost:.4}."));
        format!("{} has cost as much as the task may.{cost}", self.provider)
    }

    /// When the provider can be used again. Less far ahead than the interface allows, because clocks differ.
    fn resume_at(&self) -> Option<Timestamp> {
        const LONGEST: Duration = Duration::from_secs((7 * 24 - 1) * 60 * 60);
        Some(self.limit_ends?.min(now().plus(LONGEST)).max(Timestamp::from_unix_seconds(0)))
    }

    fn failure(&self, exit: Exit, stderr: &str) -> Option<LeaseError> {
        let (provider, stderr) = (self.provider, stderr_tail(stderr));
        match (&self.ended, exit) {
            (Some(Ended::Failed { message, because: Because::Model }), _) => error("REFUSED", message.as_str()),
            (Some(Ended::Failed { message, because: Because::Start }), _) => {
                error("PROVIDER_FAILED", format!("{message}{stderr}"))
            }
            (Some(Ended::Failed { message, because: Because::SignIn }), _) => {
                error("PROVIDER_NOT_SIGNED_IN", message.as_str())
            }
            // Gemini's exit code when it has no way to sign in.
            (None, Exit::Code(41)) if provider == Provider::Gemini => {
                error("PROVIDER_NOT_SIGNED_IN", format!("gemini is not signed in.{stderr}"))
            }
            (Some(Ended::Failed { message, .. }), _) if !message.is_empty() => error("MODEL_ERROR", message.as_str()),
            (_, Exit::Signal(signal)) => error(
                "CRASHED",
                format!("{provider} was ended by signal {signal}, which the runner did not send.{stderr}"),
            ),
            (_, Exit::Unknown) => error("CRASHED", format!("The exit of {provider} was not observed.{stderr}")),
            (None, Exit::Code(0)) => error("NO_RESULT", format!("{provider} ended without a result.{stderr}")),
            (_, Exit::Code(code)) => {
                error("PROVIDER_FAILED", format!("{provider} ended with exit code {code}.{stderr}"))
            }
        }
    }
}

const NO_PERSON: &str = "No person is there to answer. Decide yourself, or end with what you need to know.";
const TOO_LONG: &str =
    "The attempt took longer than its timeout. Give it more time: --timeout, or `timeout` in the plan.";

/// Whether it looks like an agent's id of a conversation. Other ids are not passed to agents.
pub(super) fn is_session(id: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    id.len() <= 128 && id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && id.bytes().all(inside)
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(0).plus(wall_clock().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The end of standard error, as an addition to a sentence.
fn stderr_tail(stderr: &str) -> String {
    let stderr = stderr.trim();
    if stderr.is_empty() { String::new() } else { format!(" The end of its standard error: {}", excerpt(stderr, 1024)) }
}

#[cfg(test)]
mod tests;
