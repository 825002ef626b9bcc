//! When a session gets a new key. What the account's own list proves makes one always. What the server says may make one, at most once an
//! hour and session, because a ring has a bounded number of keys, and prevents none.

use ensemble_protocol::seal::{self, KeyRing, SignedRing};
use ensemble_types::devices::Role;
use ensemble_types::sessions::{AccessLevel, Session};

use crate::account::Account;
use crate::devices::seconds;
use crate::error::Result;
use crate::known_sessions::KnownSession;
use crate::notice::Notice;

/// Why a session is to get a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A device that is not in the account's list any more may have the key of now.
    Removal,
    /// The machine that hosts it is not in the list any more.
    RemovalOfHost,
    /// Its key was made for a server that had lost some, and the one above all lost ones is not made.
    Interrupted,
    /// The server says so.
    Asked,
}

impl Account {
    /// Why an own session is to get a new key before anything is written there.
    pub fn due(&self, session: &Session) -> Result<Option<Due>> {
        let known = self.home.known_session(self.place(), session.id)?;
        Ok(self.due_at(session, &known, seconds()))
    }

    /// Whether a key is due, for one of many sessions whose known state was read at once.
    pub fn is_due(&self, session: &Session, known: Option<&KnownSession>) -> bool {
        self.due_at(session, known.unwrap_or(&KnownSession::default()), seconds()).is_some()
    }

    /// The same at a time, in seconds since 1970.
    pub(super) fn due_at(&self, session: &Session, known: &KnownSession, now: u64) -> Option<Due> {
        if session.access_level != AccessLevel::Owner || session.encryption_key.is_none() {
            return None;
        }
        let Some(signed) = self.fresh_ring(session) else { return Some(Due::Removal) };
        if self.may_its_host_read(session, signed.ring.epoch(), known) {
            return Some(Due::RemovalOfHost);
        }
        // A machine makes a key because of a list that was signed, and gives it to no people. So one may follow each of its keys.
        let is_by_machine = self.own().list.device(&signed.signer).is_some_and(|device| device.role == Role::Machine);
        // A person's device leaves the floor only where another key follows at once.
        if !is_by_machine && signed.ring.floor() < signed.ring.epoch() {
            return Some(Due::Interrupted);
        }
        (session.rekey_needed && (is_by_machine || known.may_ask(signed.ring.epoch(), now))).then_some(Due::Asked)
    }

    /// Says when the server's word makes the next key of a session that gets none now. It is said once.
    pub(super) fn say_next_key(&self, session: &Session) -> Result<()> {
        if !session.rekey_needed {
            return Ok(());
        }
        if let Some(at) = self.home.say_next(self.place(), session.id)? {
            self.say(Notice::NextKey { session: session.reference, at });
        }
        Ok(())
    }

    /// Whether devices that were removed since could open this ring: it was sealed in an earlier content epoch, or by a device that
    /// is not listed any more. Everybody knows the content key, so a ring that opens with it proves nothing.
    pub fn is_stale(&self, session: &Session) -> bool {
        let is_own = session.access_level == AccessLevel::Owner && session.encryption_key.is_some();
        is_own && self.fresh_ring(session).is_none()
    }

    /// The ring of an own session, if no device that was removed since can have it.
    pub(crate) fn fresh_ring(&self, session: &Session) -> Option<SignedRing> {
        let own = self.own();
        let newest = own.contents.pair(own.contents.epoch()).ok()?;
        let signed = seal::open_ring(session.encryption_key.as_deref()?, &newest, self.binding(session)).ok()?;
        self.may_make(session, &signed.signer).then_some(signed)
    }

    /// Whether the machine that hosts the session is not in the account's list any more.
    pub(crate) fn is_without_its_host(&self, session: &Session) -> bool {
        let is_listed = |id| self.own().list.body().devices.iter().any(|device| device.machine_id.as_ref() == Some(id));
        session.hosted && !session.machine_id.as_ref().is_some_and(is_listed)
    }

    /// Whether a machine that was removed has the key of this epoch, as far as this computer knows. A key that a person's device has made
    /// does not show whether the machine was given it.
    pub(super) fn may_its_host_read(&self, session: &Session, epoch: u32, known: &KnownSession) -> bool {
        self.is_without_its_host(session) && known.hostless.is_none_or(|hostless| epoch < hostless)
    }
}

/// Whether a session has a newer key than this guest was given, as the server says. An epoch that no ring has is made up. An owner's ring
/// comes in the same answer, and is judged by what was signed.
pub(crate) fn lacks_key(session: &Session, ring: &KeyRing) -> bool {
    let newer = i64::from(ring.epoch()) + 1..=i64::from(KeyRing::LAST_EPOCH);
    session.access_level != AccessLevel::Owner && newer.contains(&session.key_epoch)
}
