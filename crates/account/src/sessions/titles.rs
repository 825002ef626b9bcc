//! Which metadata of a session counts. People choose sessions by it, while the server and every guest could show something else.
//!
//! Its title counts under the signature of who may give one now, or as this computer has seen it count before. The directory
//! counts as the session's machine has signed it, in this version or in one before.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_client::{Error as ClientError, SessionFilter};
use ensemble_protocol::seal::{KeyRing, OfMachine, SignedMetadata, open_agent_state, open_metadata};
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions::{Session, SessionStatus};
use futures_util::{StreamExt, TryStreamExt};
use serde::Deserialize;
use tokio::sync::Mutex as AsyncMutex;

use super::{Card, host_of};
use crate::account::Account;
use crate::devices::List;
use crate::error::{Error, Result};
use crate::seen_titles::SeenTitle;
use crate::sharing::shares;

/// How old the remembered list of another user may be by which a title is judged. A page of sessions may have many owners.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Sessions among which those of a directory are looked for.
const MOST_LOOKED_AT: usize = 500;
/// A list that lacks a key is read again, unless it was read within this time.
const JUST_READ: Duration = Duration::from_secs(1);

/// What counts of a session's metadata.
#[derive(Clone, Debug, Default)]
pub struct Titled {
    /// What an authorized signer has signed, in the newest version that this device has seen.
    pub card: Option<Card>,
    /// What has counted here last, where the server shows nothing that counts now.
    kept: Option<Card>,
    /// What the machine of the session has signed. A session of a directory is found in nothing else.
    pub of_machine: Option<Card>,
    /// The same, for the next version. Where the machine is not known: what may be the machine's.
    pub(super) signed: Option<OfMachine>,
}

impl Titled {
    pub fn title(&self) -> Option<&str> {
        self.card.as_ref()?.title.as_deref()
    }

    /// What is signed again: what counts, or what has counted here last.
    pub fn lasting(&self) -> Option<&Card> {
        self.card.as_ref().or(self.kept.as_ref())
    }

    /// Title, directory, agent and host, as far as each counts.
    pub fn shown(&self) -> Card {
        let Card { title, path, host, mut more } = self.card.clone().unwrap_or_default();
        let of_machine = self.of_machine.clone().unwrap_or_default();
        more.extend(of_machine.more);
        Card { title, path: of_machine.path.or(path), host: of_machine.host.or(host), more }
    }

    /// Whether the machine says that this agent works in this directory.
    pub fn is_in(&self, directory: &str, agent: &str) -> bool {
        self.directory() == Some(directory) && self.agent() == Some(agent)
    }

    /// The agent that works there, as the machine says.
    pub fn agent(&self) -> Option<&str> {
        self.of_machine.as_ref()?.more.get("agent")?.as_str()
    }

    pub fn directory(&self) -> Option<&str> {
        self.of_machine.as_ref()?.path.as_deref()
    }
}

/// Judges the metadata of several sessions, and remembers what was seen.
pub struct Titles<'a> {
    me: &'a Account,
    known: BTreeMap<SessionId, SeenTitle>,
    seen: Mutex<BTreeMap<SessionId, SeenTitle>>,
    /// Held while the list of this user is read. True: it could not be read, and is not asked for again.
    reading: Mutex<HashMap<UserId, Arc<AsyncMutex<bool>>>>,
}

impl<'a> Titles<'a> {
    /// Called before sessions are read: another program may see newer versions meanwhile.
    pub fn of(me: &'a Account) -> Result<Self> {
        let known = me.home.seen_titles(me.place())?;
        Ok(Self { me, known, seen: Mutex::default(), reading: Mutex::default() })
    }

    /// The last sessions of an agent in a directory of this computer, with their titles, and what was seen is remembered.
    pub async fn in_directory(
        self,
        (agent, directory): (&str, &str),
        most: usize,
    ) -> Result<Vec<(Session, Option<String>)>> {
        let this = self.me.this_machine()?;
        let filter = SessionFilter { active_only: false, shared: false };
        let mut sessions = pin!(self.me.client.sessions(filter).take(MOST_LOOKED_AT));
        let mut found = Vec::new();
        while found.len() < most
            && let Some(session) = sessions.try_next().await?
        {
            // The server could say that any session is one of this directory.
            if session.hosted && this.is_some() && session.machine_id == this {
                let titled = self.title(&session).await;
                let title = titled.title().map(str::to_owned);
                found.extend(titled.is_in(directory, agent).then_some((session, title)));
            }
        }
        self.keep()?;
        Ok(found)
    }

    /// What counts of a session's metadata. Nothing, where its key does not open.
    pub async fn title(&self, session: &Session) -> Titled {
        self.opened(session).await.unwrap_or_default()
    }

    /// The same, for who says why nothing counts.
    ///
    /// # Errors
    /// The session's key does not open, or no device of the account has made it.
    pub async fn opened(&self, session: &Session) -> Result<Titled> {
        Ok(self.titled(session, &self.me.ring(session).await?).await)
    }

    /// The same with the session's keys. There is no title now, where it cannot be found out now whether it counts.
    pub(super) async fn titled(&self, session: &Session, ring: &KeyRing) -> Titled {
        self.judged(session, ring).await.0
    }

    /// The same, and why it cannot be found out now whether the title counts.
    pub(super) async fn judged(&self, session: &Session, ring: &KeyRing) -> (Titled, Option<Error>) {
        let known = self.known.get(&session.id);
        let kept = known.and_then(|known| card_of(session, known.body()?));
        let opened = open_metadata(ring, (session.id, session.metadata_version), &session.metadata);
        let Ok(signed) = opened else { return (Titled { kept, ..Titled::default() }, None) };
        let at = (signed.epoch, session.metadata_version);
        let is_new = known.is_none_or(|known| at >= known.at());
        // It was judged before. Whose key it is may have been removed since.
        let is_seen = known.is_some_and(|known| known.at() == at && known.body() == Some(&*signed.body));
        let (list, failed) = self.owners(session, |list| is_enough(list, session, (!is_seen).then_some(&signed))).await;
        let counted = match &list {
            _ if is_seen => Ok(true),
            Some(list) if is_new => self.counts(session, list, &signed).await,
            _ => Ok(false),
        };
        let (counts, failed) = match counted {
            Ok(counts) => (counts, failed.filter(|_| is_new && !counts)),
            Err(failure) => (false, Some(failure)),
        };
        let card = card_of(session, &signed.body).filter(|_| counts);
        if card.is_some() {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(session.id, SeenTitle::new(at, &signed.body));
        }
        let machine = list.as_ref().and_then(|list| machine_of(list, host_of(session)));
        let of_machine = machine.and_then(|machine| serde_json::from_str(signed.body_of(&machine.key)?).ok());
        let is_listed = || list.as_ref().is_some_and(|list| list.device(&signed.key).is_some());
        let part = match machine {
            Some(machine) => signed.of_machine(&machine.key),
            None => host_of(session).and_then(|_| signed.unchecked(!is_listed())),
        };
        (Titled { card, kept, of_machine, signed: part }, failed)
    }

    /// What the session's machine says of it. Nothing where it is offline, or where it has not signed it.
    pub async fn agent_state(&self, session: &Session) -> AgentState {
        let Some(list) = self.owners(session, |list| is_enough(list, session, None)).await.0 else {
            return AgentState::default();
        };
        match self.me.ring(session).await {
            Ok(ring) => agent_state(&ring, session, &list),
            Err(_) => AgentState::default(),
        }
    }

    /// The same as JSON, whether the machine is there or not.
    pub async fn opened_state(&self, session: &Session) -> Option<serde_json::Value> {
        let list = self.owners(session, |list| is_enough(list, session, None)).await.0?;
        let body = opened_state(&self.me.ring(session).await.ok()?, session, &list)?;
        serde_json::from_str(&body).ok()
    }

    /// Remembers what was seen.
    pub fn keep(self) -> Result<()> {
        let seen = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        let is_new = |id: &SessionId, title: &SeenTitle| self.known.get(id).is_none_or(|known| title.at() > known.at());
        let new = seen.into_iter().filter(|(id, title)| is_new(id, title));
        self.me.home.note_titles(self.me.place(), new.collect())
    }

    /// The device list of a session's owner, and why there may be a newer one. The one that is known here does, where it says enough.
    async fn owners(&self, session: &Session, is_enough: impl Fn(&List) -> bool) -> (Option<List>, Option<Error>) {
        let owner = session.owner_id;
        let known = || match owner == self.me.id {
            true => Some(self.me.own().list.clone()),
            false => self.me.home.recent_list(self.me.place(), owner, REMEMBERED).ok().flatten(),
        };
        if let Some(known) = known().filter(&is_enough) {
            return (Some(known), None);
        }
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner).entry(owner).or_default().clone();
        let mut has_failed = reading.lock().await;
        if *has_failed {
            let why = Error::DevicesUnreadable(owner);
            return (known(), Some(why));
        }
        match self.newest(owner, is_enough).await {
            Ok(list) => (Some(list), None),
            Err(failure) => {
                *has_failed = true;
                (known(), passing(failure))
            }
        }
    }

    async fn newest(&self, owner: UserId, is_enough: impl Fn(&List) -> bool) -> Result<List> {
        if owner == self.me.id {
            self.me.refresh_own(JUST_READ).await?;
            return Ok(self.me.own().list.clone());
        }
        let list = self.me.list_of(owner).await?;
        if is_enough(&list) { Ok(list) } else { self.me.list_within(owner, JUST_READ).await }
    }

    /// Whether the signer is a device of the owner, the session's machine, or an admin by grant.
    ///
    /// # Errors
    /// It cannot be found out now.
    async fn counts(&self, session: &Session, list: &List, signed: &SignedMetadata) -> Result<bool> {
        if signed.user == session.owner_id {
            return Ok(is_made(list, session, &signed.key));
        }
        // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
        let admin = signed.admin.as_ref().filter(|admin| admin.user == signed.user && admin.epoch() == signed.epoch);
        let granted = admin.and_then(|admin| Some((admin, admin.granted_by(session.id)?)));
        let Some((admin, _)) = granted.filter(|(_, by)| shares(list, by)) else { return Ok(false) };
        match self.me.list_of(admin.user).await {
            Ok(theirs) => Ok(theirs.body().account == admin.account() && shares(&theirs, &signed.key)),
            Err(failure) => passing(failure).map_or(Ok(false), Err),
        }
    }
}

/// What says nothing of a user: asked again later, the server may say something else. `None`: it has no such user or no list of theirs, or
/// shows one that is not good.
fn passing(failure: Error) -> Option<Error> {
    let says_no = match &failure {
        Error::Client(error) => match error.as_ref() {
            ClientError::DeviceList(_)
            | ClientError::OldDeviceList
            | ClientError::OtherRecord
            | ClientError::OtherRef => true,
            error => error
                .code()
                .is_some_and(|code| matches!(code.status(), 400..=499) && !matches!(code.status(), 401 | 408 | 429)),
        },
        _ => true,
    };
    (!says_no).then_some(failure)
}

/// The card that is said. Where the agent of a hosted session works is for its machine to say; its title can come from others.
fn card_of(session: &Session, body: &str) -> Option<Card> {
    let card: Card = serde_json::from_str(body).ok()?;
    if !session.hosted {
        return Some(card);
    }
    let Card { title, mut more, .. } = card;
    more.remove("agent");
    Some(Card { title, path: None, host: None, more })
}

/// Whether a list says who has signed the metadata, or made its signer an admin, and what the session's machine is.
fn is_enough(list: &List, session: &Session, signed: Option<&SignedMetadata>) -> bool {
    let signer = signed.and_then(|signed| match signed.user == session.owner_id {
        true => Some(signed.key.clone()),
        false => signed.admin.as_ref()?.granted_by(session.id),
    });
    let has_host = host_of(session).is_none() || machine_of(list, host_of(session)).is_some();
    has_host && signer.is_none_or(|signer| is_made(list, session, &signer))
}

fn is_made(list: &List, session: &Session, key: &str) -> bool {
    list.device(key).is_some_and(|device| device.makes_keys(host_of(session)))
}

/// The entry of the machine that hosts a session.
fn machine_of<'l>(list: &'l List, host: Option<&MachineId>) -> Option<&'l ListedDevice> {
    let host = host?;
    let mut devices = list.body().devices.iter();
    devices.find(|device| device.role == Role::Machine && device.machine_id.as_ref() == Some(host))
}

/// What the machine of a session says of it without a message. That of an offline machine may be out of date.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentState {
    /// The commands that have outlived their turn.
    pub still_running: Vec<String>,
    /// Why no agent works in the session now.
    pub problem: Option<String>,
}

/// Nothing where its machine is offline, or where it has not signed it. `list` is the owner's.
pub fn agent_state(ring: &KeyRing, session: &Session, list: &List) -> AgentState {
    let is_there = session.online && session.status == SessionStatus::Active;
    let body = opened_state(ring, session, list).filter(|_| is_there);
    body.and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
}

fn opened_state(ring: &KeyRing, session: &Session, list: &List) -> Option<String> {
    let machine = machine_of(list, host_of(session))?;
    let sealed = session.agent_state.as_deref()?;
    open_agent_state(ring, (session.id, session.agent_state_version), sealed, &machine.key).ok()
}

#[cfg(test)]
mod tests {
    use ensemble_types::problem::{Code, Problem};
    use serde_json::{Value, json};

    use super::*;

    fn card(card: &Value) -> Option<Card> {
        Some(serde_json::from_value(card.clone()).unwrap())
    }

    #[test]
    fn what_is_shown_is_the_title_of_people_and_what_the_machine_says() {
        let titled = Titled {
            card: card(&json!({"title": "T", "color": "blue"})),
            of_machine: card(&json!({"title": "old", "path": "/w", "host": "desk", "agent": "claude"})),
            ..Titled::default()
        };
        let shown = json!({"title": "T", "path": "/w", "host": "desk", "agent": "claude", "color": "blue"});
        assert_eq!(json!(titled.shown()), shown);
        // A session of people has the directory from who has made it.
        let people = json!({"title": "T", "path": "/theirs"});
        assert_eq!(json!(Titled { card: card(&people), ..Titled::default() }.shown()), people);
        let kept = Titled { kept: card(&people), ..Titled::default() };
        assert_eq!((json!(kept.shown()), json!(kept.lasting())), (json!({}), people));
    }

    #[test]
    fn a_list_that_is_missing_or_not_good_says_no_and_anything_else_may_pass() {
        let problem = |code: Code| Error::from(ClientError::from(Problem::new(code, "")));
        for failure in [
            problem(Code::UserNotFound),
            ClientError::OldDeviceList.into(),
            ClientError::DeviceList(ensemble_client::devices::ListError::OtherAccount).into(),
            Error::OtherKey(UserId::generate()),
        ] {
            assert!(passing(failure).is_none());
        }
        let origin = || "https://ensemble.example".to_owned();
        for failure in [
            problem(Code::RateLimited),
            problem(Code::Unavailable),
            problem(Code::Internal),
            ClientError::ForeignServer { origin: origin(), status: 500 }.into(),
            ClientError::TimedOut { origin: origin(), waited: Duration::from_secs(1) }.into(),
        ] {
            assert!(passing(failure).is_some());
        }
    }
}
