//! A person takes back a prompt that waits.

use ensemble_protocol::transcript::body::TakeBack;
use ensemble_protocol::transcript::rules::{Right, Signer};
use ensemble_protocol::transcript::words::ReceiptCode;

use super::commands::Done;
use super::*;

const TOO_LATE: &str =
    "That prompt does not wait here, so it was not taken back: the agent has it, or it was decided about before.";

impl Core {
    /// Drops a prompt that the agent does not have. Guests do so with their own only.
    pub(super) fn take_back(&mut self, named: &TakeBack, signer: &Signer) -> Done {
        let TakeBack { local_id, key } = named;
        let is_it = |prompt: &Queued| !prompt.is_task && prompt.key == *key && prompt.local_id == *local_id;
        let asked = self.open.iter().find_map(|(id, open)| match &open.about {
            About::Guest { prompt } if is_it(prompt) => Some((id.clone(), prompt.user)),
            _ => None,
        });
        let queued = self.kept.queue.iter().find(|prompt| is_it(prompt));
        let known = self.kept.taken.iter().find(|command| command.key == *key && command.local_id == *local_id);
        let waits = queued.map(|prompt| prompt.user).or(asked.as_ref().map(|(_, user)| *user));
        let user = waits.or(known.and_then(|command| command.user));
        if user.is_some_and(|user| user != signer.user) && self.rules.right(signer) < Right::Linked {
            return Done::Rejected(ReceiptCode::NotAllowed, None);
        }
        // Another device may have taken it back at the same moment.
        if known.is_some_and(|command| command.rejected == Some(ReceiptCode::TakenBack)) {
            return Done::Now;
        }
        if asked.is_none() && queued.is_none_or(|prompt| prompt.is_given) {
            return Done::Rejected(ReceiptCode::Superseded, Some(TOO_LATE.to_owned()));
        }
        self.change(Change::TakeBack(key.clone(), local_id.clone()));
        if let Some((request_id, _)) = asked {
            self.withdraw(request_id, "the prompt was taken back");
        }
        self.receipt(local_id.clone(), key.clone(), Done::Rejected(ReceiptCode::TakenBack, None));
        self.need_not_cost_more();
        Done::Now
    }

    /// Nothing waits any more for the answer whether the session may cost more.
    fn need_not_cost_more(&mut self) {
        let asked = self.open.iter().find(|(_, open)| matches!(open.about, About::Cost)).map(|(id, _)| id.clone());
        if let Some(request_id) = asked.filter(|_| self.waiting().next().is_none()) {
            self.withdraw(request_id, "no prompt waits any more");
        }
    }
}
