//! Which metadata of a session counts. People choose sessions by it, while the server and every guest could show something else.
//!
//! Its title counts under the signature of somebody who may give one. The directory counts as the session's machine has signed it, in this
//! version or in one before.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ensemble_client::seal::{
    self, KeyRing, Metadata, OfMachine, SealError, SharedRing, SignedMetadata, open_agent_state, open_metadata,
};
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::sessions::{self, AccessLevel, Session, SessionStatus, UpdateSession};
use ensemble_types::text::Blob;
use serde::Deserialize;

use super::{Card, OLDEST, ONE_LISTING, host_of};
use crate::context::{Context, Me};
use crate::devices::List;
use crate::failure::{Failure, Result};

/// More versions than this are not written to get above the one that was seen.
const MOST_BEHIND: i64 = 1_000;

/// What counts of a session's metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Titled {
    /// What somebody has signed who may, in the newest version that this device has seen.
    pub(crate) card: Option<Card>,
    /// What the machine of the session has signed. A session of a directory is found in nothing else.
    pub(crate) of_machine: Option<Card>,
    /// The same, for the next version.
    signed: Option<OfMachine>,
}

impl Titled {
    pub(crate) fn title(&self) -> Option<&str> {
        self.card.as_ref()?.title.as_deref()
    }

    /// Title, directory, agent and host, as far as each counts.
    pub(crate) fn shown(&self) -> Card {
        let card = self.card.clone().unwrap_or_default();
        match &self.of_machine {
            Some(of_machine) => Card { title: card.title, ..of_machine.clone() },
            None => card,
        }
    }

    /// Whether the machine says that this agent works in this directory.
    pub(crate) fn is_in(&self, directory: &str, agent: &str) -> bool {
        let of_agent = |card: &Card| card.more.get("agent").and_then(|agent| agent.as_str()) == Some(agent);
        self.of_machine.as_ref().is_some_and(|card| card.path.as_deref() == Some(directory) && of_agent(card))
    }

    pub(crate) fn directory(&self) -> Option<&str> {
        self.of_machine.as_ref()?.path.as_deref()
    }
}

/// Judges the metadata of several sessions, and remembers which versions were seen.
pub(crate) struct Titles<'a> {
    context: &'a Context,
    me: &'a Me,
    known: BTreeMap<SessionId, i64>,
    seen: Mutex<BTreeMap<SessionId, i64>>,
}

impl<'a> Titles<'a> {
    /// Called before sessions are read: another program may see newer versions meanwhile.
    pub(crate) fn of(context: &'a Context, me: &'a Me) -> Result<Self> {
        Ok(Self { context, me, known: context.home.seen_titles(me.client.origin())?, seen: Mutex::default() })
    }

    /// What counts of a session's metadata. Nothing, where its key does not open.
    pub(crate) async fn title(&self, session: &Session) -> Titled {
        match self.me.ring(session).await {
            Ok(ring) => self.titled(session, &ring).await,
            Err(_) => Titled::default(),
        }
    }

    /// The same with the session's keys.
    pub(crate) async fn titled(&self, session: &Session, ring: &KeyRing) -> Titled {
        let Ok(signed) = open_metadata(ring, (session.id, session.metadata_version), &session.metadata) else {
            return Titled::default();
        };
        let is_new = self.known.get(&session.id).is_none_or(|known| session.metadata_version >= *known);
        let Some(list) = self.owners(session, |list| is_made(list, session, &signed.key)).await else {
            return Titled::default();
        };
        let counts = is_new && self.counts(session, &list, &signed).await;
        let card = serde_json::from_str(&signed.body).ok().filter(|_| counts).map(|card| titled(session, card));
        if card.is_some() && session.metadata_version > 1 {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(session.id, session.metadata_version);
        }
        let machine = machine_of(&list, host_of(session));
        let of_machine = machine.and_then(|machine| serde_json::from_str(signed.body_of(&machine.key)?).ok());
        Titled { card, of_machine, signed: machine.and_then(|machine| signed.of_machine(&machine.key)) }
    }

    /// What the session's machine says of it. Nothing where it is away, or where it has not signed it.
    pub(crate) async fn agent_state(&self, session: &Session) -> AgentState {
        let Some(list) = self.owners(session, |list| machine_of(list, host_of(session)).is_some()).await else {
            return AgentState::default();
        };
        match self.me.ring(session).await {
            Ok(ring) => agent_state(&ring, session, &list),
            Err(_) => AgentState::default(),
        }
    }

    /// The same as JSON, whether the machine is there or not.
    pub(crate) async fn opened_state(&self, session: &Session) -> Option<serde_json::Value> {
        let list = self.owners(session, |list| machine_of(list, host_of(session)).is_some()).await?;
        let body = opened_state(&self.me.ring(session).await.ok()?, session, &list)?;
        serde_json::from_str(&body).ok()
    }

    /// Remembers the versions that were seen.
    pub(crate) fn keep(self) -> Result<()> {
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        let new = seen.into_iter().filter(|(id, version)| self.known.get(id).is_none_or(|known| version > known));
        self.context.home.note_titles(self.me.client.origin(), new.collect())
    }

    /// The device list of a session's owner. The one that is known here does, where it says enough: a page of sessions may have many
    /// owners.
    async fn owners(&self, session: &Session, says_enough: impl Fn(&List) -> bool) -> Option<List> {
        let owner = session.owner_id;
        if owner == self.me.id {
            return Some(self.me.own().list.clone());
        }
        let known = self.context.home.known_list(self.me.client.origin(), owner).ok().flatten();
        match known.filter(says_enough) {
            Some(known) => Some(known),
            None => self.me.list_of(self.context, owner).await.ok(),
        }
    }

    /// Whether the signer is or was a device of the owner, the session's machine, or an admin by grant.
    async fn counts(&self, session: &Session, list: &List, signed: &SignedMetadata) -> bool {
        match signed.user == session.owner_id {
            true => self.may(session, list, &signed.key).await,
            false => self.is_admins(session, list, signed).await.unwrap_or(false),
        }
    }

    async fn is_admins(&self, session: &Session, list: &List, signed: &SignedMetadata) -> Option<bool> {
        // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
        let admin = signed.admin.as_ref().filter(|admin| admin.user == signed.user && admin.epoch() == signed.epoch)?;
        let granted = admin.granted_by(session.id)?;
        if is_machine(list, &granted) || !self.may(session, list, &granted).await {
            return None;
        }
        let theirs = self.me.list_of(self.context, admin.user).await.ok()?;
        let is_listed = theirs.device(&signed.key).is_some_and(|device| device.role.shares_sessions());
        let is_theirs = theirs.body().account == admin.account()
            && (is_listed || self.me.client.ever_shared(admin.user, &admin.account(), &signed.key).await.ok()?);
        Some(is_theirs)
    }

    /// Whether the key is or was an owner's device, or the machine that hosts the session.
    async fn may(&self, session: &Session, list: &List, key: &str) -> bool {
        if is_made(list, session, key) {
            return true;
        }
        let made = |device: &ListedDevice| device.key == key && device.makes_keys(host_of(session));
        if session.owner_id == self.me.id {
            // A key that no list had is not looked for again within a listing.
            for max_age in [OLDEST, ONE_LISTING] {
                if self.me.every_device(max_age).await.is_ok_and(|all| all.iter().any(made)) {
                    return true;
                }
            }
            return false;
        }
        let ever = self.me.client.ever_made(session.owner_id, &list.body().account, key, host_of(session));
        ever.await.unwrap_or(false)
    }
}

/// Where the agent of a hosted session works is for its machine to say. Its title can come from others.
fn titled(session: &Session, card: Card) -> Card {
    if !session.hosted {
        return card;
    }
    let Card { title, mut more, .. } = card;
    more.remove("agent");
    Card { title, path: None, host: None, more }
}

fn is_made(list: &List, session: &Session, key: &str) -> bool {
    list.device(key).is_some_and(|device| device.makes_keys(host_of(session)))
}

fn is_machine(list: &List, key: &str) -> bool {
    list.device(key).is_some_and(|device| device.role == Role::Machine)
}

/// The entry of the machine that hosts a session.
fn machine_of<'l>(list: &'l List, host: Option<&MachineId>) -> Option<&'l ListedDevice> {
    let host = host?;
    let mut devices = list.body().devices.iter();
    devices.find(|device| device.role == Role::Machine && device.machine_id.as_ref() == Some(host))
}

impl Me {
    /// What counts of the metadata of one session.
    pub(crate) async fn titled(&self, context: &Context, session: &Session, ring: &KeyRing) -> Result<Titled> {
        let titles = Titles::of(context, self)?;
        let titled = titles.titled(session, ring).await;
        titles.keep()?;
        Ok(titled)
    }

    /// Signs metadata for the version that it gets. What the machine has signed goes on in it.
    pub(crate) fn seal_card(
        &self,
        session: &Session,
        ring: &KeyRing,
        (version, card): (i64, &Card),
        before: &Titled,
    ) -> Result<sessions::Metadata> {
        let closed = |error| Failure::Seal("The title".to_owned(), error);
        let admin = match (session.access_level, session.encrypted_key.as_deref()) {
            (AccessLevel::Owner, _) => None,
            (_, sealed) => {
                let own = sealed.ok_or(SealError::Format).and_then(SharedRing::from_text).map_err(closed)?;
                Some(own.as_admin(self.id, self.owner().account).map_err(closed)?)
            }
        };
        let body = serde_json::to_string(card).map_err(|error| Failure::message(format!("The title {error}.")))?;
        let metadata = Metadata { body, user: self.id, admin: admin.as_ref(), of_machine: before.signed.clone() };
        let sealed = seal::seal_metadata(ring, (session.id, version), metadata, &self.key).map_err(closed)?;
        Blob::new(sealed).map_err(|_| Failure::message("The title is too long. Shorten it."))
    }

    /// Replaces the metadata. A server that was restored gets it once for each version that it lacks, so that no device takes it for an old
    /// one.
    pub(crate) async fn describe(
        &self,
        context: &Context,
        session: &Session,
        ring: &KeyRing,
        (card, before): (&Card, &Titled),
    ) -> Result<Session> {
        let origin = self.client.origin();
        let known = context.home.seen_titles(origin)?.remove(&session.id).unwrap_or_default();
        let shown = session.metadata_version;
        let newest = known.max(shown);
        if newest.saturating_sub(shown) > MOST_BEHIND {
            return Err(Failure::message(
                "The server has a much older state of this session than this computer has seen.",
            ));
        }
        let mut replaced = shown;
        loop {
            let update = UpdateSession {
                metadata: Some(self.seal_card(session, ring, (replaced + 1, card), before)?),
                expected_metadata_version: Some(replaced),
                ..UpdateSession::default()
            };
            let changed = self.client.update_session(session.id, &update).await?;
            replaced += 1;
            if replaced > newest {
                context.home.note_titles(origin, BTreeMap::from([(session.id, replaced)]))?;
                return Ok(changed);
            }
        }
    }
}

/// What the machine of a session says of it without a message. That of a machine that is away may be out of date.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AgentState {
    /// The commands that have outlived their turn.
    pub(crate) still_running: Vec<String>,
    /// Why no agent works in the session now.
    pub(crate) problem: Option<String>,
}

/// Nothing where its machine is away, or where it has not signed it. `list` is the owner's.
pub(crate) fn agent_state(ring: &KeyRing, session: &Session, list: &List) -> AgentState {
    let is_there = session.online && session.status == SessionStatus::Active;
    let body = opened_state(ring, session, list).filter(|_| is_there);
    body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
}

fn opened_state(ring: &KeyRing, session: &Session, list: &List) -> Option<String> {
    let machine = machine_of(list, host_of(session))?;
    let sealed = session.agent_state.as_deref()?;
    open_agent_state(ring, (session.id, session.agent_state_version), sealed, &machine.key).ok()
}
