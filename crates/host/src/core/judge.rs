//! The signer of a prompt that has waited is checked again when its turn comes: the device may have been removed since.

use std::time::Duration;

use ensemble_protocol::transcript::rules::Signer;

use super::*;

/// How long the result about a signer is good. So a prompt that need not wait is not held up.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// A prompt whose signer is to be looked for in the newest device lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) user: UserId,
    pub(crate) key: String,
    pub(crate) local_id: String,
}

impl Asked {
    pub(super) fn of(signer: &Signer, local_id: &str) -> Self {
        Self { user: signer.user, key: signer.key.clone(), local_id: local_id.to_owned() }
    }
}

/// What was found.
pub(super) struct Judged {
    asked: Asked,
    at: Timestamp,
    pub(super) signer: Signer,
    pub(super) list_is_withheld: bool,
}

impl Core {
    /// The signer of a prompt, as the newest lists have it.
    pub(crate) fn judged(&mut self, asked: Asked, signer: Signer, list_is_withheld: bool) {
        self.judging.take_if(|judging| *judging == asked);
        self.judged = Some(Judged { asked, at: self.now, signer, list_is_withheld });
    }

    /// Whether the signer of this prompt is known. If not, it is asked for.
    pub(super) fn is_judged(&mut self, prompt: &Queued) -> bool {
        let asked = Asked { user: prompt.user, key: prompt.key.clone(), local_id: prompt.local_id.clone() };
        let is_new = |judged: &Judged| judged.asked == asked && self.now.since(judged.at) <= GOOD_FOR;
        if prompt.is_task || self.judged.as_ref().is_some_and(is_new) {
            return true;
        }
        if self.judging.as_ref() != Some(&asked) {
            self.judging = Some(asked.clone());
            self.effects.judge = Some(asked);
        }
        false
    }
}
