//! The keys that a person may have whose share was removed.

use ensemble_protocol::seal::KeyRing;
use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_protocol::transcript::words::May;

use super::Core;
use super::commands::Done;
use crate::kept::Change;

/// How many keys a server can have kept from this machine when it takes the owner's word of a removal.
const MOST_AHEAD: u32 = 16;

impl Core {
    /// What the owner has said about a person, in a message that is sealed with the key of this epoch.
    pub(super) fn access(&mut self, grant: AccessGrant, epoch: u32) -> Done {
        self.note_removed(&grant, epoch);
        self.change(Change::Access(grant));
        Done::Now
    }

    /// A person whose share was removed may have the keys up to the one that the owner has named, whatever the right is that counts, and the
    /// newest one that this machine has. Where the device that has removed them has made that, it is the next one. They could have sealed the
    /// owner's message again with an older key.
    pub(super) fn note_removed(&mut self, grant: &AccessGrant, epoch: u32) {
        if !grant.removed || grant.may != May::Nothing {
            return;
        }
        let is_same = |known: &AccessGrant| known.user == grant.user && known.version == grant.version && known.removed;
        let is_known = self.kept.access.iter().any(is_same);
        let by = |(epoch, maker): &(u32, String)| *epoch == self.key_epoch && Some(maker) == grant.key.as_ref();
        let is_next = self.key_maker.as_ref().is_some_and(by);
        // Nothing is written before a key above it.
        let most = self.key_epoch.saturating_add(MOST_AHEAD).min(KeyRing::LAST_EPOCH - 1);
        let old = match grant.key_epoch.filter(|named| *named <= most) {
            Some(named) if is_known || is_next => named,
            Some(named) => named.max(self.key_epoch),
            None if is_known => return,
            None => epoch.max(self.key_epoch),
        };
        if self.kept.old_key.is_none_or(|known| known < old) {
            self.change(Change::OldKey(old));
        }
    }
}
