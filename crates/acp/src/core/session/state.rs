//! What the session is doing and what can be chosen, sent to the editor when it changes.

use ensemble_protocol::transcript::body::{Plan, State};
use ensemble_protocol::transcript::words::{Mode, Phase};
use serde_json::{Value, json};

use super::Session;
use crate::core::blocks;
use crate::core::out::Out;

/// What the editor knows of the state.
#[derive(Debug, Default)]
pub(super) struct EditorState {
    pub(super) mode: Option<Mode>,
    pub(super) options: Value,
    commands: Value,
    usage: Value,
    pub(super) is_away: bool,
    is_lost: bool,
    has_ended: bool,
}

impl EditorState {
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

    /// Sends what is new in the state.
    pub(super) fn state(&mut self, out: &mut Out) {
        let Some(state) = self.view.state().cloned() else { return };
        if self.shown.mode.as_ref().is_some_and(|shown| *shown != state.mode) {
            out.update(self.id, &json!({"sessionUpdate": "current_mode_update", "currentModeId": state.mode}));
        }
        self.shown.mode = Some(state.mode.clone());
        self.confirm(out);
        self.options(&state, out);
        self.update(out, blocks::commands(&state), |shown| &mut shown.commands, !state.commands.is_empty());
        if let Some(context) = state.context {
            let cost = state.cost_usd.map(|usd| json!({"amount": usd, "currency": "USD"}));
            let usage =
                json!({"sessionUpdate": "usage_update", "used": context.used, "size": context.size, "cost": cost});
            if out.editor.is_later {
                self.update(out, usage, |shown| &mut shown.usage, true);
            }
        }
        let has_ended = state.phase == Phase::Ended;
        if has_ended && !self.shown.has_ended {
            self.note(out, "The session has ended. Its owner can resume it with /resume in `ensemble attach`.");
            self.ended(out);
        }
        self.shown.has_ended = has_ended;
    }

    fn options(&mut self, state: &State, out: &mut Out) {
        let options = blocks::options(state, None, None);
        if options != self.shown.options && options != json!([]) {
            out.later_update(self.id, &json!({"sessionUpdate": "config_option_update", "configOptions": options}));
            self.shown.options = options;
        }
    }

    fn update(&mut self, out: &mut Out, new: Value, field: fn(&mut EditorState) -> &mut Value, is_worth_it: bool) {
        let shown = field(&mut self.shown);
        if *shown != new && (is_worth_it || !shown.is_null()) {
            out.update(self.id, &new);
            *shown = new;
        }
    }

    pub(super) fn online(&mut self, is_online: bool, out: &mut Out) {
        if self.is_open() && self.shown.is_away == is_online {
            self.note(
                out,
                if is_online {
                    "The machine of this session is back."
                } else {
                    "The machine of this session is away. What you send waits until it is back."
                },
            );
        }
        self.shown.is_away = !is_online;
    }

    pub(super) fn connected(&mut self, is_there: bool, out: &mut Out) {
        if self.is_open() && self.shown.is_lost == is_there {
            self.note(
                out,
                if is_there {
                    "The connection to the server is back."
                } else {
                    "The connection to the server is lost. The agent works on, and what it does is shown when the connection is back."
                },
            );
        }
        self.shown.is_lost = !is_there;
    }
}
