//! A person whose share was removed may have a session's key. Nothing more is written under it, also when the server keeps back the next
//! one, which the owner's program has made.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::Keys;
use crate::kept::{Change, Outgoing};

/// The newest key that such a person may have.
#[derive(Clone, Copy, Default)]
pub(super) struct Old {
    epoch: u32,
    /// The count of what the machine says of the removal: the last message that may still be under it.
    upto: u64,
    /// When the machine took the removal. `None`: an earlier process did.
    since: Option<Instant>,
}

/// What a ring for writing needs: a content epoch that its maker knew, and an epoch above this one.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) content_epoch: u32,
    pub(super) above: u32,
}

impl Old {
    /// The epoch that the key for the message with this count is above.
    pub(super) fn below(&self, n: u64) -> u32 {
        if n > self.upto { self.epoch } else { 0 }
    }

    /// The owner's program, which gives it to the others as well, still has time to make the next key.
    pub(super) fn waits(&self, grace: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() < grace)
    }
}

impl Keys {
    /// The newest epoch, and the key of its maker.
    pub(crate) fn newest(&self) -> (u32, String) {
        let held = self.held();
        (held.ring.epoch(), held.maker)
    }

    /// A person whose share was removed may have the key of this epoch. The first message of the step is the receipt of that: the owner's
    /// program waits for it before it makes the next key.
    pub(crate) fn note_old(&self, epoch: Option<u32>, step: &[Change]) {
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(epoch) = epoch.filter(|epoch| *epoch > old.epoch) else { return };
        let receipt = step.iter().find_map(|change| match change {
            Change::Say(message) => Some(message.n),
            _ => None,
        });
        *old = Old { epoch, upto: receipt.unwrap_or_default(), since: receipt.map(|_| Instant::now()) };
    }

    /// The first of these messages, as far as they may be under the same key.
    pub(crate) fn under_one<'a>(&self, messages: &'a [Outgoing]) -> &'a [Outgoing] {
        let upto = self.old.lock().unwrap_or_else(PoisonError::into_inner).upto;
        match messages.partition_point(|message| message.n <= upto) {
            0 => messages,
            before => messages.get(..before).unwrap_or(messages),
        }
    }
}
