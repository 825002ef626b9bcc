//! What this computer remembers of sessions: whose they are, the newest keys that it has used, and what is not finished.

mod missing;
mod records;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_protocol::seal::KeyRing;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions::Session;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use self::records::record_of;
pub use self::used::UsedKey;
use crate::error::Result;
use crate::home::Home;
use crate::sharing::Recipients;

/// Who is still to get which key of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unfinished {
    pub recipients: Recipients,
    /// The newest epoch of the ring and the digest of its key: the recipients get no other one for it.
    epoch: u32,
    ring: String,
    /// The one that this one takes the place of as soon as the server has the new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Box<Unfinished>>,
}

/// What is remembered of a session that this computer has used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownSession {
    pub epoch: u32,
    /// The highest floor of a ring that it has used. A machine or a device that is removed later could have set an older one.
    #[serde(default)]
    pub floor: u32,
    pub owner: Option<UserId>,
    /// The machine that hosts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<MachineId>,
    /// From this epoch on its machine has no key of it, because it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostless: Option<u32>,
    /// When the last key was made here that only the server had asked for. In seconds since 1970, by the clock of this computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// The `asked` for which the person was informed when the next key can follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<u64>,
    /// When keys last took the place of ones that the server had lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
    /// What `asked` is, for the guests who had removed a device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renewed: BTreeMap<UserId, u64>,
    /// The epoch of the last key that was to be made for these reasons. The times count once the session has it: an attempt that
    /// failed has made none.
    #[serde(default)]
    pub tried: u32,
    /// The highest version of a right that this device has signed for a person. A server could keep it back until later.
    #[serde(default)]
    pub given: u64,
    /// The key of an own session that it has made, or written under, last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedKey>,
    /// The key that is to take the place of that one, which the server has lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<UsedKey>,
}

impl Default for KnownSession {
    fn default() -> Self {
        let (epoch, floor) = (KeyRing::FIRST_EPOCH, KeyRing::FIRST_EPOCH);
        let (owner, host, hostless, asked, said, replaced) = (None, None, None, None, None, None);
        let renewed = BTreeMap::new();
        Self {
            epoch,
            floor,
            owner,
            host,
            hostless,
            asked,
            said,
            replaced,
            renewed,
            tried: 0,
            given: 0,
            used: None,
            begun: None,
        }
    }
}

impl KnownSession {
    /// Whether the server's word may replace the key of this epoch now.
    pub(crate) fn may_ask(&self, epoch: u32, now: u64) -> bool {
        epoch < self.tried || self.asked.is_none_or(|at| is_over(at, now))
    }

    /// How many keys that were used here this ring lacks. A server that was restored has lost them.
    pub(crate) fn lost(&self, ring: &KeyRing) -> u32 {
        self.epoch.saturating_sub(ring.epoch()).max(u32::from(self.has_other(ring)))
    }

    /// Whether keys may take the place of lost ones now. A server could show an old key again and again, until the ring is full.
    pub(crate) fn may_replace_lost(&self, now: u64) -> bool {
        // What was begun is completed.
        self.tried > self.epoch || self.replaced.is_none_or(|at| is_over(at, now))
    }

    /// When a removal of this guest may replace the key again.
    pub(crate) fn next_of(&self, guest: UserId) -> Option<Timestamp> {
        self.renewed.get(&guest).map(|at| next_after(*at))
    }

    /// Whether a removal of this guest may replace the key of this epoch now.
    pub(crate) fn may_renew(&self, guest: UserId, epoch: u32, now: u64) -> bool {
        epoch < self.tried || self.renewed.get(&guest).is_none_or(|at| is_over(*at, now))
    }
}

/// Whether the time is over in which no other key is made. A clock that was set back must not make it longer.
fn is_over(at: u64, now: u64) -> bool {
    now.abs_diff(at) >= ONE_KEY.as_secs()
}

/// When another key can be made after one that was made at this time.
fn next_after(at: u64) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(at).unwrap_or(i64::MAX)).plus(ONE_KEY)
}

/// A right that is taken away: the version of that, and the `localId` of the command to the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    pub local_id: String,
    pub version: u64,
    #[serde(flatten)]
    pub share: LostShare,
}

/// Whether a person who loses a right keeps their share.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LostShare {
    /// They have none any more.
    #[serde(default)]
    pub removed: bool,
    /// The newest epoch that this device had used of the session's keys then. They may have that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_epoch: Option<u32>,
}

impl Unfinished {
    /// What is unfinished of this ring.
    pub fn of(self, ring: &KeyRing) -> Option<Self> {
        if self.is_for(ring) { Some(self) } else { self.before?.of(ring) }
    }

    /// Whether people still wait for this ring: it is the one that was made, or a machine's that continues it.
    fn is_for(&self, ring: &KeyRing) -> bool {
        ring.floor() == self.epoch && ring.digest_of(self.epoch).is_some_and(|digest| digest == self.ring)
    }
}

/// A session gets one key within this time for what this device cannot prove by its account's own list: a ring holds 170 keys.
const ONE_KEY: Duration = Duration::from_secs(3_600);

impl Home {
    /// Remembers whose a session is, and the epochs of a ring by which others are judged.
    pub fn remember_session(&self, place: &str, session: &Session, ring: Option<&KeyRing>) -> Result<()> {
        let first = KnownSession::default();
        let (epoch, floor) = ring.map_or((first.epoch, first.floor), |ring| (ring.epoch(), ring.floor()));
        let known = self.known_session(place, session.id)?;
        if epoch <= known.epoch && floor <= known.floor && known.owner.is_some() {
            return Ok(());
        }
        self.change_session(place, session.id, |known| {
            let host = session.machine_id.clone().filter(|_| session.hosted);
            let owner = Some(session.owner_id);
            let known = known.get_or_insert_with(|| KnownSession { owner, host, ..KnownSession::default() });
            (known.epoch, known.floor) = (epoch.max(known.epoch), floor.max(known.floor));
        })
    }

    /// Notes before the key of this epoch is made that the server has asked for it, or that these guests have removed a device. The
    /// session is remembered already.
    pub(crate) fn note_cause(
        &self,
        place: &str,
        session: SessionId,
        epoch: u32,
        (is_asked, guests): (bool, &BTreeSet<UserId>),
        now: u64,
    ) -> Result<()> {
        if !is_asked && guests.is_empty() {
            return Ok(());
        }
        self.change_session(place, session, |known| {
            let Some(known) = known else { return };
            known.tried = epoch;
            known.asked = if is_asked { Some(now) } else { known.asked };
            known.renewed.retain(|_, at| !is_over(*at, now));
            known.renewed.extend(guests.iter().map(|guest| (*guest, now)));
        })
    }

    /// When the server's word may replace the key of a session again, if that was not said yet.
    pub(crate) fn say_next(&self, place: &str, session: SessionId) -> Result<Option<Timestamp>> {
        self.change_session(place, session, |known| {
            let known = known.as_mut().filter(|known| known.asked != known.said)?;
            known.said = known.asked;
            known.asked.map(next_after)
        })
    }

    /// Forgets a session that the person has deleted, with what is not finished of it.
    pub fn forget_session(&self, place: &str, session: SessionId) -> Result<()> {
        self.forget_unfinished(place, session)?;
        self.take_over_sessions()?;
        self.remove(&record_of(place, session))?;
        self.forget_title(place, session)
    }

    /// Notes the version of a right before it is signed, and returns it: `version` of the highest one before. The session is remembered
    /// already.
    pub(crate) fn note_given(&self, place: &str, session: SessionId, version: impl FnOnce(u64) -> u64) -> Result<u64> {
        self.change_session(place, session, |known| {
            let next = version(known.as_ref().map_or(0, |known| known.given));
            if let Some(known) = known {
                known.given = next.max(known.given);
            }
            next
        })
    }

    /// Notes whether the machine that hosts the session lacks the key that was made (`true`), or was given it. The session is remembered
    /// already.
    pub(crate) fn note_host(&self, place: &str, session: SessionId, epoch: u32, is_hostless: bool) -> Result<()> {
        self.change_session(place, session, |known| {
            let Some(known) = known else { return };
            known.hostless = is_hostless.then(|| known.hostless.unwrap_or(epoch));
        })
    }

    /// Notes who is to get the next key, before there is one: a command that is killed after that is finished by the next one.
    pub(crate) fn begin_rekey(
        &self,
        place: &str,
        session: SessionId,
        ring: &KeyRing,
        recipients: &Recipients,
        before: Option<Unfinished>,
    ) -> Result<()> {
        let digest = ring.digest_of(ring.epoch()).unwrap_or_default();
        let before = before.map(|before| Box::new(Unfinished { before: None, ..before }));
        let unfinished = Unfinished { recipients: recipients.clone(), epoch: ring.epoch(), ring: digest, before };
        self.change_settings(|settings| {
            let sessions = settings.unfinished_rekeys.entry(place.to_owned()).or_default();
            if unfinished.recipients.is_empty() {
                sessions.remove(&session);
            } else {
                sessions.insert(session, unfinished);
            }
        })
    }

    /// What is unfinished of a session now.
    pub fn unfinished(&self, place: &str, session: SessionId) -> Result<Option<Unfinished>> {
        Ok(self.settings()?.unfinished_rekeys.remove(place).unwrap_or_default().remove(&session))
    }

    /// The key that was to be made is not: people may still wait for the one before.
    pub(crate) fn restore_rekey(&self, place: &str, session: SessionId, before: Option<Unfinished>) -> Result<()> {
        self.change_settings(|settings| {
            let sessions = settings.unfinished_rekeys.entry(place.to_owned()).or_default();
            match before {
                Some(before) => drop(sessions.insert(session, before)),
                None => drop(sessions.remove(&session)),
            }
        })
    }

    pub(crate) fn end_rekey(&self, place: &str, session: SessionId) -> Result<()> {
        if self.unfinished(place, session)?.is_none() {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.unfinished_rekeys.get_mut(place) {
                sessions.remove(&session);
            }
        })
    }

    /// Who lost access to a session that has no new key since. The server may go on naming them.
    pub(crate) fn removed_shares(&self, place: &str, session: SessionId) -> Result<BTreeSet<UserId>> {
        let removed = self.settings()?.removed_shares.remove(place).unwrap_or_default().remove(&session);
        Ok(removed.unwrap_or_default())
    }

    pub fn begin_share_removal(&self, place: &str, session: SessionId, user: UserId) -> Result<()> {
        self.change_settings(|settings| {
            let sessions = settings.removed_shares.entry(place.to_owned()).or_default();
            sessions.entry(session).or_default().insert(user);
        })
    }

    /// These users do not have the session's key any more. Others may have lost access meanwhile.
    pub(crate) fn end_removal(&self, place: &str, session: SessionId, users: &BTreeSet<UserId>) -> Result<()> {
        if users.is_empty() {
            return Ok(());
        }
        self.change_settings(|settings| {
            settings.missing_sessions.get_mut(place).and_then(|missing| missing.remove(&session));
            if let Some(sessions) = settings.removed_shares.get_mut(place) {
                if let Some(removed) = sessions.get_mut(&session) {
                    removed.retain(|user| !users.contains(user));
                }
                sessions.retain(|_, removed| !removed.is_empty());
            }
        })
    }

    /// Notes what the machine is to get, before anything is sent.
    pub(crate) fn begin_revocation(
        &self,
        place: &str,
        session: SessionId,
        user: UserId,
        revocation: Revocation,
    ) -> Result<()> {
        self.change_settings(|settings| {
            let sessions = settings.revocations.entry(place.to_owned()).or_default();
            sessions.entry(session).or_default().insert(user, revocation);
        })
    }

    /// The machine has confirmed it, or something later counts.
    pub(crate) fn end_revocation(&self, place: &str, session: SessionId, user: UserId) -> Result<()> {
        let known = self.settings()?.revocations.remove(place).unwrap_or_default();
        if !known.get(&session).is_some_and(|users| users.contains_key(&user)) {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.revocations.get_mut(place) {
                if let Some(users) = sessions.get_mut(&session) {
                    users.remove(&user);
                }
                sessions.retain(|_, users| !users.is_empty());
            }
        })
    }
}

#[cfg(test)]
mod tests;
