//! Which key of an own session this computer has used last, and who had it. Another key in its place was made by a device that did not know
//! it, so it may be with people who were removed.

use std::collections::BTreeSet;

use ensemble_protocol::seal::KeyRing;
use ensemble_types::ids::{SessionId, UserId};
use serde::{Deserialize, Serialize};

use super::KnownSession;
use crate::error::Result;
use crate::home::Home;

/// A key that was made here, or written under, and who had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedKey {
    epoch: u32,
    /// Which key it is, without the key.
    digest: String,
    floor: u32,
    /// The same of the key at the floor, which a person's device has made. Each removal of a person sets the floor.
    digest_of_floor: String,
    /// Without those to whom an admin has given it.
    people: BTreeSet<UserId>,
}

impl UsedKey {
    fn newest_of(ring: &KeyRing, people: BTreeSet<UserId>) -> Self {
        let digest = |epoch| ring.digest_of(epoch).unwrap_or_default();
        let (epoch, floor) = (ring.epoch(), ring.floor());
        Self { epoch, digest: digest(epoch), floor, digest_of_floor: digest(floor), people }
    }

    fn is_in(&self, ring: &KeyRing) -> bool {
        ring.digest_of(self.epoch).is_some_and(|digest| digest == self.digest)
    }

    /// Whether the ring has another key in the place of this one, or of the one at its floor.
    fn is_replaced_in(&self, ring: &KeyRing) -> bool {
        let is_other = |epoch, known: &String| ring.digest_of(epoch).is_some_and(|digest| digest != *known);
        is_other(self.epoch, &self.digest) || is_other(self.floor, &self.digest_of_floor)
    }

    fn is_newest_of(&self, ring: &KeyRing) -> bool {
        self.epoch == ring.epoch() && self.is_in(ring)
    }
}

impl KnownSession {
    /// Whether this ring has another key in the place of the one that was used here.
    pub(super) fn has_other(&self, ring: &KeyRing) -> bool {
        let is_replaced = self.used.as_ref().is_some_and(|used| used.is_replaced_in(ring));
        is_replaced && !self.begun.as_ref().is_some_and(|begun| begun.is_in(ring))
    }

    /// Whether a person who has this ring's key may have the next one.
    pub(crate) fn may_have_next(&self, ring: &KeyRing, user: UserId) -> bool {
        !self.has_other(ring) || self.used.as_ref().is_some_and(|used| used.people.contains(&user))
    }

    /// Who had this ring's key when it was used here last.
    pub(crate) fn people_of(&self, ring: &KeyRing) -> Option<&BTreeSet<UserId>> {
        self.used.as_ref().filter(|used| used.is_newest_of(ring)).map(|used| &used.people)
    }

    /// Who had the newest key that this computer knows, and that the server has lost.
    pub(crate) fn people_of_lost(&self, ring: &KeyRing) -> BTreeSet<UserId> {
        let is_newest = |key: &&UsedKey| key.epoch == self.epoch || self.has_other(ring);
        let keys = [&self.used, &self.begun].into_iter().flatten().filter(is_newest).filter(|_| self.lost(ring) > 0);
        keys.flat_map(|key| key.people.iter().copied()).collect()
    }
}

impl Home {
    /// Notes that this ring's key was made here, or is written under, and who has it. The session is remembered already. `false`: another
    /// program has noted another key meanwhile.
    pub(crate) fn note_used(
        &self,
        place: &str,
        session: SessionId,
        ring: &KeyRing,
        people: BTreeSet<UserId>,
    ) -> Result<bool> {
        let used = UsedKey::newest_of(ring, people);
        let known = self.known_session(place, session)?;
        if known.epoch <= ring.epoch() && known.used.as_ref() == Some(&used) {
            return Ok(true);
        }
        self.change_session(place, session, |known| {
            let newest = known.as_mut().filter(|known| known.epoch <= ring.epoch() && !known.has_other(ring));
            let Some(known) = newest else { return false };
            (known.epoch, known.floor) = (ring.epoch(), ring.floor().max(known.floor));
            (known.used, known.begun) = (Some(used), None);
            true
        })
    }

    /// Notes that a person was given this ring's key.
    pub(crate) fn note_person(&self, place: &str, session: SessionId, ring: &KeyRing, user: UserId) -> Result<()> {
        self.change_session(place, session, |known| {
            if let Some(used) =
                known.as_mut().and_then(|known| known.used.as_mut()).filter(|used| used.is_newest_of(ring))
            {
                used.people.insert(user);
            }
        })
    }

    /// Notes before keys take the place of lost ones which is to be the last one, who gets it, and when that is. In seconds since 1970.
    pub(crate) fn begin_replacing(
        &self,
        place: &str,
        session: SessionId,
        ring: &KeyRing,
        people: BTreeSet<UserId>,
        now: u64,
    ) -> Result<()> {
        self.change_session(place, session, |known| {
            let Some(known) = known else { return };
            (known.tried, known.replaced) = (ring.epoch(), Some(now));
            known.begun = Some(UsedKey::newest_of(ring, people));
        })
    }

    /// The server has another key than it has shown, so nothing was begun.
    pub(crate) fn end_replacing(&self, place: &str, session: SessionId, tried: u32) -> Result<()> {
        self.change_session(place, session, |known| {
            let Some(known) = known else { return };
            known.tried = tried;
        })
    }
}
