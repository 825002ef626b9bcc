//! Commands other than prompts, until the machine has confirmed or refused them: modes, models, and answers.

use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::{Content, Control, SetMode, SetModel};
use ensemble_protocol::transcript::plain;
use ensemble_protocol::transcript::view::Taken;
use ensemble_protocol::transcript::words::{Mode, ReceiptCode};
use serde_json::{Value, json};

use super::Session;
use crate::core::blocks;
use crate::core::out::Out;
use crate::rpc::{Error, INTERNAL, INVALID, PARAMS};

/// A machine that is there answers within a second or two.
const RECEIPT_WITHIN: Duration = Duration::from_secs(15);
/// An agent confirms a mode at once, or with its next turn.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);
/// An editor that cancels a turn gives up what it was asked, and may do that first.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);
/// Commands that may wait at once.
const MOST_WAITING: usize = 64;

/// A command that waits for its receipt.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) until: Instant,
    what: What,
}

#[derive(Debug)]
enum What {
    Choice(Choice),
    /// An answer to what the agent asks.
    Answer {
        request_id: String,
    },
    /// The editor has not answered what the agent asks.
    Close {
        request_id: String,
    },
}

/// A request of the editor to choose something.
#[derive(Debug)]
pub(super) struct Choice {
    request: Value,
    chosen: Chosen,
    /// The editor asked for it as a configuration option.
    wants_options: bool,
    /// The machine has taken it, and the agent has not confirmed it yet.
    is_taken: bool,
}

/// What the editor chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum Chosen {
    Mode(String),
    Model(String),
}

impl Session {
    /// Chooses a mode or a model. `wants_options`: the editor asked for it as a configuration option.
    pub(in crate::core) fn choose(&mut self, request: Value, chosen: Chosen, wants_options: bool, out: &mut Out) {
        let Some(state) = self.view.state() else {
            let text = "The agent is not ready yet, so nothing can be chosen.";
            return out.answer(&request, Err(Error::new(INVALID, text)));
        };
        let (offered, id) = match &chosen {
            Chosen::Mode(id) => (&state.modes, id),
            Chosen::Model(id) => (&state.models, id),
        };
        if !offered.iter().any(|choice| choice.id == *id) {
            let ids: Vec<&str> = offered.iter().map(|choice| choice.id.as_str()).collect();
            let text = format!("The agent does not offer {id:?}. It offers: {}.", ids.join(", "));
            return out.answer(&request, Err(Error::new(PARAMS, text)));
        }
        if self.choices.len() >= MOST_WAITING {
            return out.answer(&request, Err(Error::new(INVALID, "Too many commands wait for the machine.")));
        }
        self.choices.push_back(Choice { request, chosen, wants_options, is_taken: false });
        self.choose_next(out);
    }

    /// A choice names the mode in which it was made, so one waits for the other.
    fn choose_next(&mut self, out: &mut Out) {
        let is_choice = |waiting: &Waiting| matches!(waiting.what, What::Choice(_));
        if self.waiting.values().any(is_choice) {
            return;
        }
        let Some((choice, state)) = self.choices.pop_front().zip(self.view.state()) else { return };
        let control = match &choice.chosen {
            Chosen::Mode(id) => Control::SetMode(SetMode { mode: Mode::of(id), seen: state.mode.clone() }),
            Chosen::Model(id) => Control::SetModel(SetModel { model: id.clone() }),
        };
        let local_id = self.send(Content::Control(control), out);
        self.wait(local_id, What::Choice(choice), out);
    }

    /// The state may say now what was chosen.
    pub(super) fn confirm(&mut self, out: &mut Out) {
        let Some(mode) = self.view.state().map(|state| state.mode.clone()) else { return };
        let confirmed = self.waiting.iter().find(|(_, waiting)| match &waiting.what {
            What::Choice(choice) => choice.is_taken && choice.chosen == Chosen::Mode(mode.as_str().to_owned()),
            _ => false,
        });
        if let Some(id) = confirmed.map(|(id, _)| id.clone()) {
            self.chosen(&id, out);
        }
    }

    /// Answers that it was chosen.
    fn chosen(&mut self, local_id: &str, out: &mut Out) {
        if let Some(Waiting { what: What::Choice(choice), .. }) = self.waiting.remove(local_id) {
            let result = if choice.wants_options { self.with(&choice.chosen) } else { json!({}) };
            out.answer(&choice.request, Ok(result));
        }
        self.choose_next(out);
    }

    /// Nothing that waits is done any more.
    pub(super) fn fail_controls(&mut self, error: &Error, out: &mut Out) {
        let waiting = std::mem::take(&mut self.waiting).into_values().filter_map(|waiting| match waiting.what {
            What::Choice(choice) => Some(choice),
            _ => None,
        });
        for choice in waiting.chain(std::mem::take(&mut self.choices)) {
            out.answer(&choice.request, Err(error.clone()));
        }
    }

    pub(super) fn wait_for_answer(&mut self, local_id: String, request_id: String, out: &Out) {
        if self.waiting.len() < MOST_WAITING {
            self.wait(local_id, What::Answer { request_id }, out);
        }
    }

    pub(super) fn wait_for_close(&mut self, request_id: String, out: &Out) {
        let id = format!("close {request_id}");
        self.waiting.insert(id, Waiting { until: out.now + CLOSED_WITHIN, what: What::Close { request_id } });
    }

    fn wait(&mut self, local_id: String, what: What, out: &Out) {
        self.waiting.insert(local_id, Waiting { until: out.now + RECEIPT_WITHIN, what });
    }

    /// The machine's receipt for a command of this process.
    pub(super) fn receipt(&mut self, local_id: &str, taken: &Taken, out: &mut Out) {
        if self.prompt.as_ref().is_some_and(|prompt| prompt.local_id == local_id) {
            return self.prompt_receipt(taken, out);
        }
        match taken {
            Taken::NotYet => {}
            Taken::Queued | Taken::Done => match self.waiting.get_mut(local_id) {
                // The agent says when it has another mode.
                Some(Waiting { until, what: What::Choice(choice) }) if matches!(choice.chosen, Chosen::Mode(_)) => {
                    (choice.is_taken, *until) = (true, out.now + CONFIRMED_WITHIN);
                    self.confirm(out);
                }
                _ => self.chosen(local_id, out),
            },
            Taken::Rejected { code, text } => {
                let Some(waiting) = self.waiting.remove(local_id) else { return };
                let why = plain::rejection(code.as_ref(), text.as_deref());
                let data = code.as_ref().map(|code| json!({"code": code.as_str()}));
                let is_busy = *code == Some(ReceiptCode::Busy);
                self.not_done(waiting, Error { code: INTERNAL, text: why, data }, is_busy, out);
            }
        }
    }

    /// A command was not done. `again`: the same answer may be good later.
    pub(super) fn not_done(&mut self, waiting: Waiting, error: Error, again: bool, out: &mut Out) {
        match waiting.what {
            What::Choice(choice) => {
                let text = format!("The machine did not do it: {}", error.text);
                out.answer(&choice.request, Err(Error { text, ..error }));
                self.choose_next(out);
            }
            What::Answer { request_id } => {
                self.note(out, &format!("Your answer does not count: {}", error.text));
                if again && self.view.open().any(|card| card.request_id == request_id) {
                    self.asked.remove(&request_id);
                    self.requests(out);
                }
            }
            What::Close { .. } => {}
        }
    }

    /// The options with what was chosen just now: the state says it a little later.
    fn with(&mut self, chosen: &Chosen) -> Value {
        let Some(state) = self.view.state() else { return json!({"configOptions": []}) };
        let options = match chosen {
            Chosen::Mode(id) => blocks::options(state, Some(id), None),
            Chosen::Model(id) => blocks::options(state, None, Some(id)),
        };
        json!({"configOptions": options})
    }

    pub(super) fn late_controls(&mut self, out: &mut Out) {
        let late: Vec<String> =
            self.waiting.iter().filter(|(_, waiting)| out.now >= waiting.until).map(|(id, _)| id.clone()).collect();
        for id in late {
            match self.waiting.get(&id).map(|waiting| &waiting.what) {
                // codex takes a mode with its next turn.
                Some(What::Choice(choice)) if choice.is_taken => self.chosen(&id, out),
                Some(What::Choice(_)) => {
                    let text =
                        "it has not taken it yet, because it is away. It does it when it is back within ten minutes.";
                    if let Some(waiting) = self.waiting.remove(&id) {
                        self.not_done(waiting, Error::new(INTERNAL, text), false, out);
                    }
                }
                Some(What::Answer { .. }) => {
                    self.waiting.remove(&id);
                    self.note(
                        out,
                        "The machine has not taken your answer yet: it is away, and takes it when it is back.",
                    );
                }
                Some(What::Close { request_id }) => {
                    let request_id = request_id.clone();
                    self.waiting.remove(&id);
                    self.not_answered(&request_id, out);
                }
                None => {}
            }
        }
    }
}
