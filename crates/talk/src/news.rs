//! What the voice says by itself about the session: that its agent asks, is ready, or has ended. The words are ours alone. A title would be
//! text of others, and some models can only be asked to speak.

use std::collections::HashSet;

use ensemble_protocol::transcript::view::{Asks, View};
use ensemble_protocol::transcript::words::Phase;

/// What a person who is looking elsewhere knows of the session.
pub(super) struct Known {
    open: HashSet<String>,
    phase: Option<Phase>,
}

impl Known {
    pub(super) fn of(view: &View) -> Self {
        let open = view.open().map(|card| card.request_id.clone()).collect();
        Self { open, phase: view.state().map(|state| state.phase.clone()) }
    }

    /// What is new since then, in words to speak.
    pub(super) fn news(&mut self, view: &View) -> Option<&'static str> {
        let before = std::mem::replace(self, Self::of(view));
        let mut asked = view.open().filter(|card| !before.open.contains(&card.request_id)).peekable();
        if asked.peek().is_some() {
            return Some(if asked.any(|card| matches!(card.asks, Asks::Permission(_))) {
                "The coding agent asks for a permission. It is on your screen."
            } else {
                "The coding agent has a question. It is on your screen."
            });
        }
        if !matches!(before.phase, Some(Phase::Starting | Phase::Working | Phase::Waiting)) {
            return None;
        }
        match self.phase {
            Some(Phase::Idle) => Some("The coding agent has ended its turn."),
            Some(Phase::Ended) => Some("The coding agent has ended."),
            _ => None,
        }
    }
}
