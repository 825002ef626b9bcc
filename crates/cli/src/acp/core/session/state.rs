//! What the session is doing and what can be chosen, told to the editor when it changes.

use ensemble_protocol::transcript::body::{Plan, State};
use ensemble_protocol::transcript::words::{Mode, Phase};
use serde_json::{Value, json};

use super::Session;
use crate::acp::core::blocks;
use crate::acp::core::out::Out;

/// What the editor knows of the state.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) mode: Option<Mode>,
    pub(super) options: Value,
    commands: Value,
    usage: Value,
    pub(super) is_away: bool,
    is_lost: bool,
    has_ended: bool,
}

impl Told {
    pub(super) fn of(is_away: bool) -> Self {
        Self { is_away, ..Self::default() }
    }
}

impl Session {
    pub(super) fn titled(&self, title: &str, out: &mut Out) {
        out.later_update(self.id, &json!({"sessionUpdate": "session_info_update", "title": title}));
    }

    pub(super) fn plan(&self, out: &mut Out) {
        if let Some(plan) = self.view.plan().filter(|plan| **plan != Plan::default()) {
            out.update(self.id, &blocks::plan(plan));
        }
    }

    /// Tells what is new in the state.
    pub(super) fn state(&mut self, out: &mut Out) {
        let Some(state) = self.view.state().cloned() else { return };
        if self.told.mode.as_ref().is_some_and(|told| *told != state.mode) {
            out.update(self.id, &json!({"sessionUpdate": "current_mode_update", "currentModeId": state.mode}));
        }
        self.told.mode = Some(state.mode.clone());
        self.confirm(out);
        self.options(&state, out);
        self.tell(out, blocks::commands(&state), |told| &mut told.commands, !state.commands.is_empty());
        if let Some(context) = state.context {
            let cost = state.cost_usd.map(|usd| json!({"amount": usd, "currency": "USD"}));
            let usage =
                json!({"sessionUpdate": "usage_update", "used": context.used, "size": context.size, "cost": cost});
            if out.editor.is_later {
                self.tell(out, usage, |told| &mut told.usage, true);
            }
        }
        let has_ended = state.phase == Phase::Ended;
        if has_ended && !self.told.has_ended {
            self.note(out, "The session has ended. Its owner goes on with it by /resume in `ensemble attach`.");
            self.ended(out);
        }
        self.told.has_ended = has_ended;
    }

    fn options(&mut self, state: &State, out: &mut Out) {
        let options = blocks::options(state, None, None);
        if options != self.told.options && options != json!([]) {
            out.later_update(self.id, &json!({"sessionUpdate": "config_option_update", "configOptions": options}));
            self.told.options = options;
        }
    }

    fn tell(&mut self, out: &mut Out, new: Value, told: fn(&mut Told) -> &mut Value, is_worth_it: bool) {
        let told = told(&mut self.told);
        if *told != new && (is_worth_it || !told.is_null()) {
            out.update(self.id, &new);
            *told = new;
        }
    }

    pub(super) fn online(&mut self, is_online: bool, out: &mut Out) {
        if self.is_open() && self.told.is_away == is_online {
            self.note(
                out,
                if is_online {
                    "The machine of this session is back."
                } else {
                    "The machine of this session is away. What you send waits until it is back."
                },
            );
        }
        self.told.is_away = !is_online;
    }

    pub(super) fn connected(&mut self, is_there: bool, out: &mut Out) {
        if self.is_open() && self.told.is_lost == is_there {
            self.note(
                out,
                if is_there {
                    "The connection to the server is back."
                } else {
                    "The connection to the server is lost. The agent works on, and what it does is shown when the connection is back."
                },
            );
        }
        self.told.is_lost = !is_there;
    }
}
