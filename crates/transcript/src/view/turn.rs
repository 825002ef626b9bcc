//! Turns: their prompts are taken when they begin, and the prompt of a task is shown with its turn.

use ensemble_types::time::Timestamp;

use super::{Author, Changed, Item, Shown, Taken, View};
use crate::body::{Prompt, Turn};
use crate::words::{TurnState, When};

impl View {
    pub(super) fn turn(&mut self, changed: &mut Changed, (seq, at): (u64, Timestamp), mut turn: Turn) -> Shown {
        if let Some(text) = turn.text.take() {
            let prompt = Prompt { text, attachments: Vec::new(), when: When::Next };
            let local_id = turn.prompt_id.clone().unwrap_or_default();
            let shown = Shown::Prompt(prompt, Taken::Done);
            self.push(changed, Item { id: 0, seq, author: Author::Host, local_id, at: Some(at), shown });
        }
        match turn.state {
            TurnState::Started => {
                self.live.begin(&turn.turn_id);
                if let Some(id) = turn.prompt_id.as_ref().and_then(|prompt| self.queued.remove(prompt)) {
                    self.amend(changed, id, |shown| {
                        if let Some(taken) = shown.taken_mut() {
                            *taken = Taken::Done;
                        }
                    });
                }
            }
            _ => self.live.finish(),
        }
        Shown::Turn(turn)
    }
}
