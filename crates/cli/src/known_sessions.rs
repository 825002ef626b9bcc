//! What this computer remembers of sessions: whose they are, the newest keys that it has used, and what is not finished.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_client::seal::KeyRing;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions::Session;
use serde::{Deserialize, Serialize};

use crate::failure::Result;
use crate::home::Home;
use crate::sharing::Recipients;

/// Who is still to get which key of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unfinished {
    pub(crate) recipients: Recipients,
    /// The newest epoch of the ring and the digest of its key: nobody gets another one for it.
    epoch: u32,
    ring: String,
}

/// What is remembered of a session that this computer has used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KnownSession {
    pub(crate) epoch: u32,
    /// The highest floor of a ring that it has used. A machine or a device that is removed later could have set an older one.
    #[serde(default)]
    pub(crate) floor: u32,
    pub(crate) owner: Option<UserId>,
    /// The machine that hosts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<MachineId>,
    /// From this epoch on its machine has no key of it, because it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hostless: Option<u32>,
}

/// A right that is taken away: the version of that, and the `localId` of the command to the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revocation {
    pub(crate) local_id: String,
    pub(crate) version: u64,
}

impl Unfinished {
    /// Whether people still wait for this ring: it is the one that was made, or one of a machine that goes on from it.
    pub(crate) fn is_for(&self, ring: &KeyRing) -> bool {
        ring.floor() == self.epoch && ring.digest_of(self.epoch).is_some_and(|digest| digest == self.ring)
    }
}

const SESSIONS: &str = "sessions.json";

/// By server origin.
type KnownSessions = BTreeMap<String, BTreeMap<SessionId, KnownSession>>;

impl Home {
    /// What this computer remembers of a session: its owner, and the newest epoch of a key that it has used.
    pub(crate) fn known_session(&self, origin: &str, session: SessionId) -> Result<KnownSession> {
        let known: KnownSessions = self.read_json(SESSIONS)?.unwrap_or_default();
        let known = known.get(origin).and_then(|sessions| sessions.get(&session)).cloned();
        let (epoch, floor) = (KeyRing::FIRST_EPOCH, KeyRing::FIRST_EPOCH);
        Ok(known.unwrap_or(KnownSession { epoch, floor, owner: None, host: None, hostless: None }))
    }

    pub(crate) fn remember_session(&self, origin: &str, session: &Session, ring: &KeyRing) -> Result<()> {
        let (epoch, floor) = (ring.epoch(), ring.floor());
        let known = self.known_session(origin, session.id)?;
        if epoch <= known.epoch && floor <= known.floor && known.owner.is_some() {
            return Ok(());
        }
        let _lock = self.lock("sessions.lock")?;
        let mut all: KnownSessions = self.read_json(SESSIONS)?.unwrap_or_default();
        let known = all.entry(origin.to_owned()).or_default().entry(session.id);
        let host = session.machine_id.clone().filter(|_| session.hosted);
        let known = known.or_insert(KnownSession { epoch, floor, owner: Some(session.owner_id), host, hostless: None });
        (known.epoch, known.floor) = (epoch.max(known.epoch), floor.max(known.floor));
        self.write_json(SESSIONS, &all)
    }

    /// Forgets a session that was deleted.
    pub(crate) fn forget_session(&self, origin: &str, session: SessionId) -> Result<()> {
        let _lock = self.lock("sessions.lock")?;
        let mut all: KnownSessions = self.read_json(SESSIONS)?.unwrap_or_default();
        let found = all.get_mut(origin).and_then(|sessions| sessions.remove(&session));
        if found.is_some() { self.write_json(SESSIONS, &all) } else { Ok(()) }
    }

    /// Notes that a key was made of which the machine that hosts the session knows nothing (`true`), or which it was given. The session
    /// is remembered already.
    pub(crate) fn note_host(&self, origin: &str, session: SessionId, epoch: u32, is_hostless: bool) -> Result<()> {
        let _lock = self.lock("sessions.lock")?;
        let mut all: KnownSessions = self.read_json(SESSIONS)?.unwrap_or_default();
        if let Some(known) = all.entry(origin.to_owned()).or_default().get_mut(&session) {
            known.hostless = is_hostless.then(|| known.hostless.unwrap_or(epoch));
        }
        self.write_json(SESSIONS, &all)
    }

    /// Notes who is to get the next key, before there is one: a command that is killed after that is finished by the next one.
    pub(crate) fn begin_rekey(
        &self,
        origin: &str,
        session: SessionId,
        ring: &KeyRing,
        recipients: &Recipients,
    ) -> Result<()> {
        let digest = ring.digest_of(ring.epoch()).unwrap_or_default();
        let unfinished = Unfinished { recipients: recipients.clone(), epoch: ring.epoch(), ring: digest };
        self.change_settings(|settings| {
            let sessions = settings.unfinished_rekeys.entry(origin.to_owned()).or_default();
            if unfinished.recipients.is_empty() {
                sessions.remove(&session);
            } else {
                sessions.insert(session, unfinished);
            }
        })
    }

    /// What is unfinished of a session now.
    pub(crate) fn unfinished(&self, origin: &str, session: SessionId) -> Result<Option<Unfinished>> {
        Ok(self.settings()?.unfinished_rekeys.remove(origin).unwrap_or_default().remove(&session))
    }

    pub(crate) fn end_rekey(&self, origin: &str, session: SessionId) -> Result<()> {
        if self.unfinished(origin, session)?.is_none() {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.unfinished_rekeys.get_mut(origin) {
                sessions.remove(&session);
            }
        })
    }

    /// Who lost access to a session that has no new key since. The server may go on naming them.
    pub(crate) fn removed_shares(&self, origin: &str, session: SessionId) -> Result<BTreeSet<UserId>> {
        let removed = self.settings()?.removed_shares.remove(origin).unwrap_or_default().remove(&session);
        Ok(removed.unwrap_or_default())
    }

    pub(crate) fn begin_share_removal(&self, origin: &str, session: SessionId, user: UserId) -> Result<()> {
        self.change_settings(|settings| {
            let sessions = settings.removed_shares.entry(origin.to_owned()).or_default();
            sessions.entry(session).or_default().insert(user);
        })
    }

    /// These users do not have the session's key any more. Others may have lost access meanwhile.
    pub(crate) fn end_removal(&self, origin: &str, session: SessionId, users: &BTreeSet<UserId>) -> Result<()> {
        if users.is_empty() {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.removed_shares.get_mut(origin) {
                if let Some(removed) = sessions.get_mut(&session) {
                    removed.retain(|user| !users.contains(user));
                }
                sessions.retain(|_, removed| !removed.is_empty());
            }
        })
    }

    /// Notes what the machine is to hear, before anything is sent.
    pub(crate) fn begin_revocation(
        &self,
        origin: &str,
        session: SessionId,
        user: UserId,
        revocation: Revocation,
    ) -> Result<()> {
        self.change_settings(|settings| {
            let sessions = settings.revocations.entry(origin.to_owned()).or_default();
            sessions.entry(session).or_default().insert(user, revocation);
        })
    }

    /// The machine has confirmed it, or something later counts.
    pub(crate) fn end_revocation(&self, origin: &str, session: SessionId, user: UserId) -> Result<()> {
        let known = self.settings()?.revocations.remove(origin).unwrap_or_default();
        if !known.get(&session).is_some_and(|users| users.contains_key(&user)) {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.revocations.get_mut(origin) {
                if let Some(users) = sessions.get_mut(&session) {
                    users.remove(&user);
                }
                sessions.retain(|_, users| !users.is_empty());
            }
        })
    }
}
