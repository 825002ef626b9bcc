//! Turns: their prompts are taken when they begin, and the prompt of a task is shown with its turn.

use ensemble_types::time::Timestamp;

use super::{Author, Changed, Item, Shown, Taken, View};
use crate::transcript::body::{Prompt, Turn};
use crate::transcript::words::{Phase, TurnState, When};

impl View {
    /// The prompts that wait for a turn, oldest first. A screen shows them below what the turn that runs has said.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.waiting.iter().filter_map(|id| self.item(*id))
    }

    pub(super) fn turn(&mut self, changed: &mut Changed, (seq, at): (u64, Timestamp), mut turn: Turn) -> Shown {
        if let Some(text) = turn.text.take() {
            let prompt = Prompt { text, attachments: Vec::new(), when: When::Next, directory: None };
            let local_id = turn.prompt_id.clone().unwrap_or_default();
            let shown = Shown::Prompt(prompt, Taken::Done);
            let (author, at) = (Author::Host, Some(at));
            self.push(changed, Item { id: 0, seq, author, unconfirmed: None, local_id, at, shown });
        }
        match turn.state {
            TurnState::Started => {
                self.live.begin(&turn.turn_id);
                self.stop_waiting();
                if let Some(id) = turn.prompt_id.as_ref().and_then(|prompt| self.queued.remove(prompt)) {
                    self.begins_with(changed, id);
                }
            }
            _ => self.live.finish(),
        }
        Shown::Turn(turn)
    }

    /// Whether a prompt has not been done nor rejected.
    pub(super) fn is_open_prompt(&self, id: u64) -> bool {
        self.item(id).is_some_and(|item| matches!(&item.shown, Shown::Prompt(_, Taken::NotYet | Taken::Queued)))
    }

    /// A prompt that has waited is taken. It stands where its turn begins, below what was said while it waited.
    fn begins_with(&mut self, changed: &mut Changed, id: u64) {
        self.waiting.remove(&id);
        self.amend(changed, id, |shown| {
            if let Some(taken) = shown.taken_mut() {
                *taken = Taken::Done;
            }
        });
        let is_last = self.items.back().is_none_or(|item| item.id == id);
        let Some(item) = self.item(id).filter(|_| !is_last).cloned() else { return };
        self.amend(changed, id, |shown| *shown = Shown::Moved);
        self.push(changed, item);
    }

    /// A machine that does nothing has in its queue all that waits: other prompts were lost, with its agent or its log.
    pub(super) fn drop_lost(&mut self) {
        let Some(state) = &self.state else { return };
        if matches!(state.phase, Phase::Working | Phase::Waiting | Phase::Starting) {
            return;
        }
        let (items, first, has_ended) = (&self.items, self.first_id, state.phase == Phase::Ended);
        self.waiting.retain(|id| {
            let place = id.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            let is_lost =
                |item: &Item| item.shown.taken() == Some(&Taken::Queued) && !state.queue.contains(&item.local_id);
            place.and_then(|place| items.get(place)).is_some_and(|item| !has_ended && !is_lost(item))
        });
    }

    /// A turn begins: a prompt of which the machine has said nothing yet is not known to be one of those that come after it.
    fn stop_waiting(&mut self) {
        let (items, first) = (&self.items, self.first_id);
        self.waiting.retain(|id| {
            let place = id.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            place.and_then(|place| items.get(place)).is_some_and(|item| item.shown.taken() == Some(&Taken::Queued))
        });
    }
}
