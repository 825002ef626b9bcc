//! The prompt of the editor, from its sending to the end of the turn that it began.

use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::{Content, Control, Failure, Prompt, Turn};
use ensemble_protocol::transcript::plain;
use ensemble_protocol::transcript::view::{Changed, Shown, Taken};
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::{Phase, StopReason, TurnState};
use serde_json::{Value, json};

use super::Session;
use crate::core::out::{Order, Out};
use crate::rpc::{Error, INTERNAL, INVALID};

/// After this it is said that the machine has not taken the prompt yet.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
/// A machine takes no prompt that is older.
const GOOD_FOR: Duration = Duration::from_secs(24 * 3_600);
/// An agent that still works 15 s after an interrupt is ended by its machine.
const CANCELLED_WITHIN: Duration = Duration::from_secs(30);
/// Prompts that are to be interrupted when they begin. A machine keeps fewer.
const MOST_CANCELLED: usize = 1_000;

/// A prompt of the editor.
#[derive(Debug)]
pub(in crate::core) struct Running {
    pub(super) request: Value,
    pub(super) local_id: String,
    step: Step,
    /// When it is said that the machine has not taken it.
    said: Option<Instant>,
    until: Instant,
    /// It is being cancelled, and answered as cancelled at this time at the latest.
    cancelled: Option<Instant>,
    /// What went wrong with the agent in its turn.
    error: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    Queued,
    Turn(String),
}

impl Running {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = (!matches!(self.step, Step::Turn(_))).then_some(self.until);
        [self.said, until, self.cancelled].into_iter().flatten().min()
    }
}

impl Session {
    pub(in crate::core) fn prompt(&mut self, request: Value, prompt: Prompt, out: &mut Out) {
        if self.prompt.is_some() {
            let text = "A prompt of this session is being done. Wait for its end, or cancel it.";
            return out.answer(&request, Err(Error::new(INVALID, text)));
        }
        let state = self.view.state().map(|state| state.directory.clone());
        let prompt = Prompt { directory: state.or_else(|| self.opening.directory.clone()), ..prompt };
        let local_id = self.send(Content::Prompt(prompt), out);
        self.prompt = Some(Running {
            request,
            local_id,
            step: Step::Sent,
            said: Some(out.now + TAKEN_WITHIN),
            until: out.now + GOOD_FOR,
            cancelled: None,
            error: None,
        });
    }

    /// Whether this request of the editor is the prompt that runs.
    pub(in crate::core) fn is_prompt(&self, request: &Value) -> bool {
        self.prompt.as_ref().is_some_and(|prompt| prompt.request == *request)
    }

    pub(super) fn is_cancelling(&self) -> bool {
        self.prompt.as_ref().is_some_and(|prompt| prompt.cancelled.is_some())
    }

    /// Its prompt was cancelled, and can be interrupted when the machine says that it has it.
    pub(in crate::core) fn owes_interrupt(&self) -> bool {
        self.prompt.as_ref().is_some_and(|prompt| prompt.cancelled.is_some() && prompt.step == Step::Sent)
    }

    /// The person does not want the turn any more.
    pub(in crate::core) fn cancel(&mut self, out: &mut Out) {
        let works = self.view.state().is_some_and(|state| matches!(state.phase, Phase::Working | Phase::Waiting));
        match &mut self.prompt {
            None if works => drop(self.send(Content::Control(Control::Interrupt), out)),
            None => {}
            Some(prompt) if prompt.cancelled.is_some() => {}
            Some(prompt) => {
                prompt.cancelled = Some(out.now + CANCELLED_WITHIN);
                match prompt.step.clone() {
                    Step::Turn(_) => drop(self.send(Content::Control(Control::Interrupt), out)),
                    Step::Queued => self.cancel_later(out),
                    // Its receipt is on the way.
                    Step::Sent => {}
                }
            }
        }
    }

    /// The editor closes the session, so no one waits for its prompt any more. One that has not begun is interrupted when it does.
    /// Returns the `localId` of the interrupt of a turn, whose prompt is still to be answered.
    pub(super) fn cancel_prompt(&mut self, out: &mut Out) -> Option<String> {
        match self.prompt.as_ref().map(|prompt| (&prompt.step, &prompt.cancelled)) {
            Some((Step::Turn(_), None)) => return Some(self.send(Content::Control(Control::Interrupt), out)),
            Some((Step::Sent | Step::Queued, _)) => self.interrupt_later(),
            Some((Step::Turn(_), Some(_))) | None => {}
        }
        self.finish(out, Ok("cancelled"));
        None
    }

    fn interrupt_later(&mut self) {
        let Some(prompt) = &self.prompt else { return };
        if self.cancelled.len() >= MOST_CANCELLED {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(prompt.local_id.clone());
    }

    /// Takes a message of a session that the editor has closed. False: nothing is left to be interrupted.
    pub(super) fn closed(&mut self, changed: &Changed, out: &mut Out) -> bool {
        for shown in changed.items.iter().filter_map(|id| self.view.item(*id)).cloned().collect::<Vec<_>>() {
            match &shown.shown {
                Shown::Turn(turn) if turn.state == TurnState::Started && self.was_cancelled(turn) => {
                    self.send(Content::Control(Control::Interrupt), out);
                }
                Shown::Prompt(_, Taken::Rejected { .. }) => self.cancelled.retain(|id| *id != shown.local_id),
                _ => {}
            }
        }
        let has_ended = self.view.state().is_some_and(|state| state.phase == Phase::Ended);
        self.closing.is_some() || (!self.cancelled.is_empty() && !has_ended)
    }

    /// Whether the turn is that of a prompt that was cancelled before it began. Says so once.
    fn was_cancelled(&mut self, turn: &Turn) -> bool {
        let known = self.cancelled.len();
        self.cancelled.retain(|cancelled| turn.prompt_id.as_ref() != Some(cancelled));
        self.cancelled.len() < known
    }

    /// A prompt that waits cannot be taken back: it is interrupted when it begins.
    fn cancel_later(&mut self, out: &mut Out) {
        self.interrupt_later();
        self.note(out, "Your prompt waits on the machine behind another one. It is interrupted as soon as it begins.");
        self.finish(out, Ok("cancelled"));
    }

    pub(super) fn prompt_receipt(&mut self, taken: &Taken, out: &mut Out) {
        let Some(prompt) = &mut self.prompt else { return };
        if *taken != Taken::NotYet {
            prompt.said = None;
        }
        match taken {
            Taken::Queued if prompt.step == Step::Sent => {
                prompt.step = Step::Queued;
                if prompt.cancelled.is_some() {
                    self.cancel_later(out);
                }
            }
            Taken::Rejected { code, text } => {
                let why = plain::rejection(code.as_ref(), text.as_deref());
                let data = code.as_ref().map(|code| json!({"code": code.as_str()}));
                let text = format!("The machine did not take the prompt: {why}");
                self.finish(out, Err(Error { code: INTERNAL, text, data }));
            }
            _ => {}
        }
    }

    pub(super) fn turn(&mut self, turn: &Turn, out: &mut Out) {
        self.texts.clear();
        if !self.is_open() {
            return;
        }
        let of = |prompt: &Running| {
            turn.prompt_id.as_ref() == Some(&prompt.local_id) || prompt.step == Step::Turn(turn.turn_id.clone())
        };
        let is_ours = self.prompt.as_ref().is_some_and(of);
        if turn.state != TurnState::Started {
            if is_ours {
                self.ended_with(turn.stop_reason.as_ref(), out);
            }
            return;
        }
        let mut is_unwanted = self.was_cancelled(turn);
        if let Some(prompt) = self.prompt.as_mut().filter(|_| is_ours) {
            prompt.step = Step::Turn(turn.turn_id.clone());
            prompt.said = None;
            is_unwanted |= prompt.cancelled.is_some();
        }
        self.show_early(out);
        if is_unwanted {
            self.send(Content::Control(Control::Interrupt), out);
        }
    }

    fn ended_with(&mut self, stop: Option<&StopReason>, out: &mut Out) {
        let error = self.prompt.as_mut().and_then(|prompt| prompt.error.take());
        let result = match stop {
            Some(StopReason::EndTurn) => Ok("end_turn"),
            Some(StopReason::Cancelled) => Ok("cancelled"),
            Some(StopReason::MaxTokens) => Ok("max_tokens"),
            Some(StopReason::Refusal) => Ok("refusal"),
            stop => Err(match error {
                Some(failure) => Error {
                    code: INTERNAL,
                    text: visible(&failure.text).into_owned(),
                    data: Some(json!({"code": failure.code, "retryAt": failure.retry_at})),
                },
                None if stop == Some(&StopReason::Limit) => {
                    Error::new(INTERNAL, "A limit of use or of cost is reached.")
                }
                None => Error::new(
                    INTERNAL,
                    "The agent ended before the turn did. A new prompt continues the conversation.",
                ),
            }),
        };
        self.finish(out, result);
    }

    /// Answers the prompt. A cancelled one is always answered as cancelled, as the protocol requires.
    pub(super) fn finish(&mut self, out: &mut Out, result: Result<&str, Error>) {
        let Some(prompt) = self.prompt.take() else { return };
        let result = if prompt.cancelled.is_some() { Ok("cancelled") } else { result };
        out.answer(&prompt.request, result.map(|reason| json!({"stopReason": reason})));
    }

    pub(super) fn failure(&mut self, failure: &Failure, out: &mut Out) {
        match &mut self.prompt {
            // The answer to the prompt says it.
            Some(prompt) if matches!(prompt.step, Step::Turn(_)) => prompt.error = Some(failure.clone()),
            _ => self.note(out, &failure.text),
        }
    }

    /// The session has ended: what waits in it is not done any more.
    pub(super) fn ended(&mut self, out: &mut Out) {
        if self.prompt.as_ref().is_some_and(|prompt| prompt.step == Step::Queued) {
            self.finish(out, Err(Error::new(INTERNAL, "The session was ended before the prompt had begun.")));
        }
    }

    pub(super) fn late_prompt(&mut self, out: &mut Out) {
        let Some(prompt) = &mut self.prompt else { return };
        let now = out.now;
        if prompt.cancelled.is_some_and(|late| now >= late) {
            if !matches!(prompt.step, Step::Turn(_)) {
                return self.cancel_later(out);
            }
            self.note(out, "The machine has not confirmed that the turn is cancelled. The agent may continue.");
            return self.finish(out, Ok("cancelled"));
        }
        if !matches!(prompt.step, Step::Turn(_)) && now >= prompt.until {
            let text = "The machine did not begin the prompt within a day, and does not begin it any more.";
            return self.finish(out, Err(Error::new(INTERNAL, text)));
        }
        if prompt.said.take_if(|said| now >= *said).is_some() {
            out.orders.push(Order::Wake(self.id));
            self.note(
                out,
                "The machine has not taken the prompt yet: it is away, or its owner is asked first. Cancel it to stop waiting.",
            );
        }
    }
}
