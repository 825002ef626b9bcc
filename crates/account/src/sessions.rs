//! Encrypts and decrypts the contents of sessions, changes keys, and checks the keys of other users.

mod create;
mod due;
mod makers;
mod messages;
mod named;
mod next_key;
mod signing;
mod titles;

use std::time::Duration;

use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxPublicKey, KeyRing, Purpose, SealError, SharedRing, SignedRing};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::devices;
use crate::error::{Error, Result};
use crate::known_sessions::KnownSession;
use crate::notice::Notice;
use crate::sharing::{Guests, Members, Use};
use crate::store::Lock;

pub use self::due::Due;
pub(crate) use self::due::lacks_key;
pub use self::messages::Messages;
pub(crate) use self::messages::body;
pub use self::named::Named;
pub use self::titles::{AgentState, Titled, Titles, agent_state};

/// How old the account's list may be by which something is written.
const OLDEST: Duration = Duration::from_secs(60);

/// The decrypted metadata of a session. Unknown members are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Card {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Account {
    /// The epoch of the key to which everything of the account is sealed now.
    pub fn content_epoch(&self) -> Option<ContentEpoch> {
        ContentEpoch::new(self.own().contents.epoch()).ok()
    }

    /// The key to which everything of the account is sealed now.
    pub fn content_key(&self) -> Result<BoxPublicKey> {
        devices::public(&self.own().contents)
    }

    /// A ring that was sealed to the account in this or an earlier content epoch. Who may have made it is for the caller to check.
    pub(crate) fn open_ring(&self, sealed: &str, binding: Binding<'_>) -> seal::Result<SignedRing> {
        self.own().contents.open_with(|pair| seal::open_ring(sealed, pair, binding))
    }

    fn binding<'s>(&self, session: &'s Session) -> Binding<'s> {
        match host_of(session) {
            Some(machine) => Binding::Hosted { session: session.id, owner: self.id, machine },
            None => Binding::Session { session: session.id, owner: self.id },
        }
    }

    /// The keys of a session, for its title. Of an own session who made them is checked: people choose by what it says.
    pub(crate) async fn ring(&self, session: &Session) -> Result<KeyRing> {
        let signed = self.signed_ring(session)?;
        if session.access_level == AccessLevel::Owner {
            self.check_maker(session, &signed.signer).await?;
        }
        Ok(signed.ring)
    }

    /// Whether a listed device, or the machine that hosts the session, has made its key.
    pub(crate) fn is_maker_listed(&self, session: &Session) -> bool {
        self.signed_ring(session).is_ok_and(|signed| self.may_make(session, &signed.signer))
    }

    fn signed_ring(&self, session: &Session) -> Result<SignedRing> {
        let opened = if session.access_level == AccessLevel::Owner {
            let sealed = session.encryption_key.as_deref().ok_or(SealError::Format);
            sealed.and_then(|sealed| self.open_ring(sealed, self.binding(session)))
        } else {
            let shared = session.encrypted_key.as_deref().ok_or(SealError::Format).and_then(SharedRing::from_text);
            let for_me = (session.id, self.id);
            let open =
                |shared: &SharedRing| self.own().contents.open_with(|pair| shared.open(pair, for_me, host_of(session)));
            shared.and_then(|shared| open(&shared))
        };
        opened.map_err(|error| Error::Seal(format!("The key of session {}", session.id), error))
    }

    /// The session as the server has it, if its owner is the same as before.
    pub async fn session(&self, id: SessionId) -> Result<Session> {
        self.as_before(self.client.session(id).await?)
    }

    /// The session, if its owner and its machine are the same as before.
    fn as_before(&self, session: Session) -> Result<Session> {
        let known = self.home.known_session(self.place(), session.id)?;
        self.check_as_before(&session, &known)?;
        Ok(session)
    }

    fn check_as_before(&self, session: &Session, known: &KnownSession) -> Result<()> {
        let is_own = session.owner_id == self.id;
        let is_other =
            known.owner.is_some_and(|owner| owner != session.owner_id || known.host.as_ref() != host_of(session));
        if is_other || is_own != (session.access_level == AccessLevel::Owner) {
            return Err(Error::OtherOwner(session.reference));
        }
        Ok(())
    }

    /// The keys for reading, if who made or gave them may.
    pub(crate) async fn reading_ring(&self, session: &Session) -> Result<KeyRing> {
        Ok(self.readable_so_far(session.clone()).await?.1)
    }

    /// The session with its keys for reading. A server that was restored has lost newer keys of an own session: what it has is read, and
    /// nothing is written under it.
    pub(crate) async fn readable_so_far(&self, session: Session) -> Result<(Session, KeyRing)> {
        let (session, ring, known) = self.newest(session).await?;
        match known.lost(&ring) {
            0 => {}
            lost if session.access_level == AccessLevel::Owner => {
                self.say(Notice::KeysLost { session: session.reference, lost, is_replaced: false });
            }
            _ => return Err(Error::OlderKey(session.reference)),
        }
        Ok((session, ring))
    }

    /// The session with its keys, if who made or gave them may, and they are not older than keys that were used before.
    pub(crate) async fn readable(&self, session: Session) -> Result<(Session, KeyRing)> {
        let (session, ring, known) = self.newest(session).await?;
        if known.lost(&ring) > 0 {
            return Err(Error::OlderKey(session.reference));
        }
        Ok((session, ring))
    }

    /// The session with the newest keys that the server has, and what was known of it before. The session is read again when another program
    /// has just made a newer key: what is judged of it afterwards must be judged of the keys that are returned.
    pub(crate) async fn newest(&self, mut session: Session) -> Result<(Session, KeyRing, KnownSession)> {
        let place = self.place();
        let known = self.home.known_session(place, session.id)?;
        self.check_as_before(&session, &known)?;
        let (mut ring, mut is_fresh) = self.checked_ring(&session).await?;
        if known.lost(&ring) > 0 {
            session = self.session(session.id).await?;
            (ring, is_fresh) = self.checked_ring(&session).await?;
        }
        // A device that was removed since could have made a ring of any epoch and floor.
        self.home.remember_session(place, &session, is_fresh.then_some(&ring))?;
        Ok((session, ring, known))
    }

    /// The keys for reading, if who made or gave them may, and whether no device that was removed since can have made or opened them.
    async fn checked_ring(&self, session: &Session) -> Result<(KeyRing, bool)> {
        let signed = match self.signed_ring(session) {
            // Another program of this person may have removed a device since this one has read the account's keys.
            Err(Error::Seal(..)) => {
                self.refresh_own(Duration::ZERO).await?;
                self.signed_ring(session)?
            }
            opened => opened?,
        };
        let is_fresh = if session.access_level == AccessLevel::Owner {
            self.check_maker(session, &signed.signer).await?;
            !self.is_stale(session)
        } else {
            self.check_grant(session, Use::Read).await?
        };
        Ok((signed.ring, is_fresh))
    }

    /// The session with the keys for writing. The session gets a new key first if devices that were removed, or users who lost
    /// access, have the one that it had. Who lost access here is known without the server.
    pub(crate) async fn writable(&self, id: SessionId) -> Result<(Session, KeyRing)> {
        let (session, ring) = self.writable_despite_removal(id).await?;
        let is_own = session.access_level == AccessLevel::Owner;
        if !is_own || self.home.removed_shares(self.place(), id)?.is_empty() {
            return Ok((session, ring));
        }
        self.renewed_key(session, &Members::default()).await
    }

    /// The same for what users who lost access may read: that they have lost it. Their session's machine is to get it at once, and under a
    /// key that it has.
    pub(crate) async fn writable_despite_removal(&self, id: SessionId) -> Result<(Session, KeyRing)> {
        self.refresh_own(OLDEST).await?;
        let (mut session, mut ring, known) = self.newest(self.session(id).await?).await?;
        let is_own = session.access_level == AccessLevel::Owner;
        if is_own && known.lost(&ring) > 0 {
            return self.renewed_key(session, &Members::default()).await;
        }
        if known.lost(&ring) > 0 {
            return Err(Error::OlderKey(session.reference));
        }
        if lacks_key(&session, &ring) {
            // It may be on its way: the owner's program gives it to people after it has made it.
            session = self.session(id).await?;
            (session, ring) = self.readable(session).await?;
        }
        if is_own {
            if self.due(&session)?.is_some() {
                return self.renewed_key(session, &Members::default()).await;
            }
            let Guests { people, renewed } = self.guests(&session, &ring).await?;
            if !renewed.is_empty() {
                return self.renewed_key(session, &Members::renewed(renewed)).await;
            }
            if !self.home.note_used(self.place(), id, &ring, people)? {
                // Another program here has a newer key.
                return self.renewed_key(session, &Members::default()).await;
            }
            self.say_next_key(&session)?;
        } else {
            self.check_grant(&session, Use::Write).await?;
        }
        if lacks_key(&session, &ring) {
            return Err(Error::LacksKey(session.id));
        }
        Ok((session, ring))
    }

    /// Begins a new epoch, because a person wants it: makes a key for the owner, for every user with a share, and for the machine that hosts
    /// the session.
    pub async fn rekey(&self, session: Session, members: &Members) -> Result<Session> {
        let lock = self.home.lock_keys().await?;
        self.rekey_locked(session, members, true, &lock).await.map(|(session, _)| session)
    }

    /// The same, with the key that was made here, whatever the server answers.
    pub(crate) async fn renewed_key(&self, session: Session, members: &Members) -> Result<(Session, KeyRing)> {
        // Two commands at once would take each other's people for unfinished ones.
        let lock = self.home.lock_keys().await?;
        self.rekey_locked(session, members, false, &lock).await
    }

    /// The same for a session from a list, if it is due for a new key. The server detects another program that was faster.
    pub(crate) async fn rekey_if_due(&self, session: Session, members: &Members) -> Result<bool> {
        let _lock = self.home.lock_keys().await?;
        let session = self.as_before(session)?;
        if self.due(&session)?.is_none() {
            return Ok(false);
        }
        let replaced = self.signed_ring(&session).map_or(u32::MAX, |signed| signed.ring.epoch());
        self.next_key(session, members, (replaced, false)).await.map(|_| true)
    }

    /// The same for a caller that has the lock.
    pub(crate) async fn rekey_locked(
        &self,
        session: Session,
        members: &Members,
        is_wanted: bool,
        _lock: &Lock,
    ) -> Result<(Session, KeyRing)> {
        // As it is now: another program may have given it a new key before this one had the lock. What the server calls its epoch is no
        // proof of that.
        let replaced = self.signed_ring(&session).map_or(u32::MAX, |signed| signed.ring.epoch());
        let session = self.session(session.id).await?;
        self.next_key(session, members, (replaced, is_wanted)).await
    }
}

/// The machine that hosts a session.
pub fn host_of(session: &Session) -> Option<&MachineId> {
    session.machine_id.as_ref().filter(|_| session.hosted)
}

pub(crate) fn seal_ring(
    ring: &KeyRing,
    to: &BoxPublicKey,
    binding: Binding<'_>,
    signer: &AccountKey,
) -> Result<Blob<1, 8_192>> {
    let sealed =
        seal::seal_ring(ring, to, binding, signer).map_err(|error| Error::Seal("The key".to_owned(), error))?;
    Blob::new(sealed).map_err(|_| Error::Seal("The key".to_owned(), SealError::TooManyKeys))
}

/// Seals a value. `what` names it in messages.
pub(crate) fn seal_json<const MAX: usize>(
    ring: &KeyRing,
    purpose: Purpose<'_>,
    what: &str,
    value: &impl Serialize,
) -> Result<Blob<1, MAX>> {
    let sealed = seal::seal_json(ring, purpose, value).map_err(|error| Error::Seal(format!("The {what}"), error))?;
    Blob::new(sealed).map_err(|_| Error::TooLong { what: what.to_owned(), most: MAX })
}

#[cfg(test)]
pub(crate) mod tests;
