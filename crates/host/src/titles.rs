//! What people find a session by: its title, its directory and its agent, signed by the machine that hosts it.
//!
//! The machine says where its agent works. Its owner and admins give the session a title; what they have signed counts while they may, and
//! after that as this machine has seen it count before.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ensemble_client::{Client, Error, Known};
use ensemble_process::disk::{on_disk, replace};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{KeyRing, Metadata, SealError, SignedMetadata, open_earlier_metadata, seal_metadata};
use ensemble_protocol::transcript::bounds::beginning;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions;
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::account::Lists;

/// In the folder of a session: what people have given it.
const FILE: &str = "title.json";
/// The longest title and the longest other members that are kept, in bytes.
const LONGEST: usize = 4 << 10;
/// The title of metadata that is too long otherwise, in bytes.
const SHORT: usize = 200;
/// A version that is further above the known one is not remembered. A guest and the server together could show any number, and nothing
/// below it would count.
const MOST_AHEAD: i64 = 1_000;
/// The same where none is known.
const MOST_AT_FIRST: i64 = 10_000;
/// The machine says again what others have left out, at most once within this time.
const BETWEEN_SIGNATURES: Duration = Duration::from_secs(60);
/// What only the machine says.
const OF_MACHINE: [&str; 3] = ["path", "host", "agent"];

/// The metadata of a session, as its owner's programs read it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Card {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    path: String,
    host: String,
    agent: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Card {
    pub(crate) fn new(agent: &str, directory: &Path) -> Self {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { title: None, path: directory.display().to_string(), host, agent: agent.to_owned(), more: Map::new() }
    }

    pub(crate) fn titled(self, title: Option<String>) -> Self {
        Self { title, ..self }
    }

    /// Signs it as this version of the session's metadata.
    pub(crate) fn seal(
        &self,
        ring: &KeyRing,
        of: (SessionId, i64),
        (owner, key): (UserId, &AccountKey),
    ) -> Result<String, SealError> {
        let body = serde_json::to_string(self).map_err(|_| SealError::Format)?;
        seal_metadata(ring, of, Metadata { body, user: owner, admin: None, of_machine: None }, key)
    }
}

/// What people have given a session, in the newest metadata that has counted here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Given {
    /// Of the session's key. Metadata counts for one key, so a newer key is more than a newer version.
    epoch: u32,
    version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    more: Map<String, Value>,
}

impl Given {
    /// `at` is the epoch of the session's key and the version. `None`: this is no object.
    fn new((epoch, version): (u32, i64), body: &str) -> Option<Self> {
        let mut more: Map<String, Value> = serde_json::from_str(body).ok()?;
        OF_MACHINE.iter().for_each(|member| drop(more.remove(*member)));
        let title = more.remove("title").and_then(|title| Some(beginning(title.as_str()?, LONGEST).0.to_owned()));
        if serde_json::to_string(&more).map_or(usize::MAX, |text| text.len()) > LONGEST {
            more.clear();
        }
        Some(Self { epoch, version, title, more })
    }

    fn at(&self) -> (u32, i64) {
        (self.epoch, self.version)
    }

    /// The same as this machine has signed it in its turn.
    pub(crate) fn signed_in(self, (epoch, version): (u32, i64)) -> Self {
        Self { epoch, version, ..self }
    }

    /// Whether metadata gives the same title.
    pub(crate) fn has_title_of(&self, body: &str) -> bool {
        Self::new(self.at(), body).is_some_and(|other| other.title == self.title)
    }

    /// Whether it is newer than what is known, and not so far ahead that an honest one could not come above it.
    fn follows(&self, known: Option<&Self>) -> bool {
        match known {
            Some(known) => self.at() > known.at() && self.version.saturating_sub(known.version) <= MOST_AHEAD,
            None => self.version <= MOST_AT_FIRST,
        }
    }
}

/// What this machine says of a session, and what it knows that people have given it.
#[derive(Clone)]
pub(crate) struct Said {
    card: Card,
    path: PathBuf,
    known: Arc<Mutex<Remembered>>,
}

#[derive(Default)]
struct Remembered {
    given: Option<Given>,
    /// The epoch, version and metadata that were looked at last.
    looked_at: Option<((u32, i64), String)>,
    signed: Option<Instant>,
}

impl Said {
    /// With what was kept in the session's folder.
    pub(crate) fn open(card: Card, folder: &Path) -> Self {
        let path = folder.join(FILE);
        // Without it what the server shows is judged by the lists of now.
        let given = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { card, path, known: Arc::new(Mutex::new(Remembered { given, ..Remembered::default() })) }
    }

    fn known<T>(&self, look: impl FnOnce(&mut Remembered) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn given(&self) -> Option<Given> {
        self.known(|known| known.given.clone())
    }

    /// Keeps what is newer, on disk too.
    pub(crate) async fn keep(&self, given: &Given) {
        let is_new = self.known(|known| {
            let is_new = given.follows(known.given.as_ref());
            if is_new {
                known.given = Some(given.clone());
            }
            is_new
        });
        let (path, given) = (self.path.clone(), given.clone());
        if is_new && let Err(error) = on_disk(move || replace(&path, &given)).await {
            tracing::warn!("A session may lose its title when a device is removed: {}: {error}", self.path.display());
        }
    }

    /// Whether this metadata is the one that was looked at last.
    pub(crate) fn has_seen(&self, at: (u32, i64), sealed: &str) -> bool {
        self.known(|known| known.looked_at.as_ref().is_some_and(|(seen, text)| *seen == at && text == sealed))
    }

    pub(crate) fn saw(&self, at: (u32, i64), sealed: &str) {
        self.known(|known| known.looked_at = Some((at, sealed.to_owned())));
    }

    /// Whether this machine may sign the metadata again now. It counts as signed.
    pub(crate) fn may_sign(&self) -> bool {
        self.known(|known| {
            let may = known.signed.is_none_or(|at| at.elapsed() >= BETWEEN_SIGNATURES);
            if may {
                known.signed = Some(Instant::now());
            }
            may
        })
    }

    /// Signs what the machine says, with what people have given. `None`: it cannot be signed. A title prevents no new key: one that does not
    /// fit is shortened or left out.
    pub(crate) fn sealed(
        &self,
        ring: &KeyRing,
        of: (SessionId, i64),
        given: Option<&Given>,
        by: (UserId, &AccountKey),
    ) -> Option<sessions::Metadata> {
        let title = given.and_then(|given| given.title.clone());
        let short = title.as_deref().map(|title| beginning(title, SHORT).0.to_owned());
        let more = given.map(|given| given.more.clone()).unwrap_or_default();
        let whole = Card { more, ..self.card.clone().titled(title) };
        let tries = [whole, self.card.clone().titled(short), self.card.clone()];
        tries.iter().find_map(|card| Blob::new(card.seal(ring, of, by).ok()?).ok())
    }
}

/// Metadata that the server shows.
pub(crate) struct Shown<'a> {
    pub(crate) session: SessionId,
    pub(crate) machine: &'a MachineId,
    /// The machine's key.
    pub(crate) own: &'a str,
    pub(crate) ring: &'a KeyRing,
    /// Of the key that the server shows. One that was restored is behind the ring.
    pub(crate) epoch: u32,
    pub(crate) version: i64,
    pub(crate) sealed: &'a str,
}

/// The title that people have given the session: as a person with that right has signed it, or as it has counted here before.
///
/// # Errors
/// Its signer cannot be found now.
pub(crate) async fn given(
    (client, lists): (&Client, &Lists),
    shown: &Shown<'_>,
    kept: Option<Given>,
) -> Result<Option<Given>, Error> {
    let at = (shown.epoch, shown.version);
    // An older one was given before this one.
    if kept.as_ref().is_some_and(|kept| kept.at() >= at) {
        return Ok(kept);
    }
    let opened = open_earlier_metadata((shown.ring, shown.epoch), (shown.session, shown.version), shown.sealed);
    let Ok(signed) = opened else { return Ok(kept) };
    let counts = match counts((client, lists), shown, &signed).await {
        Err(error) if says_no(&error) => false,
        counts => counts?,
    };
    Ok(Given::new(at, &signed.body).filter(|_| counts).or(kept))
}

/// Whether the server has no list of that user, or shows one that is not good. Anything else may be over later.
fn says_no(error: &Error) -> bool {
    let is_refused = |status: u16| matches!(status, 400..=499) && !matches!(status, 401 | 408 | 429);
    matches!(error, Error::OldDeviceList | Error::DeviceList(_) | Error::OtherRecord | Error::OtherRef)
        || error.code().is_some_and(|code| is_refused(code.status()))
}

async fn counts((client, lists): (&Client, &Lists), shown: &Shown<'_>, signed: &SignedMetadata) -> Result<bool, Error> {
    if signed.key == shown.own {
        return Ok(true);
    }
    let list = lists.refreshed().await?;
    if signed.user == lists.owner() {
        return Ok(list.device(&signed.key).is_some_and(|device| device.makes_keys(Some(shown.machine))));
    }
    // An admin of an earlier key may have lost that.
    let is_now = signed.epoch == shown.ring.epoch();
    let admin =
        signed.admin.as_ref().filter(|admin| admin.user == signed.user && is_now && admin.epoch() == signed.epoch);
    let Some((admin, granted)) = admin.and_then(|admin| Some((admin, admin.granted_by(shown.session)?))) else {
        return Ok(false);
    };
    if !list.device(&granted).is_some_and(|device| device.role.shares_sessions()) {
        return Ok(false);
    }
    let theirs = client.newest_list(admin.user, Known::Account(&admin.account())).await?;
    let device = theirs.as_ref().and_then(|list| list.device(&signed.key));
    Ok(device.is_some_and(|device| device.role.shares_sessions()))
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::seal::open_metadata;
    use serde_json::json;

    use super::*;

    fn given(at: (u32, i64), title: &str) -> Given {
        Given::new(at, &json!({ "title": title }).to_string()).unwrap()
    }

    #[test]
    fn what_people_have_given_is_kept_without_what_the_machine_says() {
        let body = json!({"title": "T", "path": "/theirs", "host": "h", "agent": "a", "color": "blue"});
        let kept = Given::new((1, 2), &body.to_string()).unwrap();
        assert_eq!((kept.title.as_deref(), Value::Object(kept.more)), (Some("T"), json!({"color": "blue"})));
        let long = json!({"title": "t".repeat(LONGEST + 1), "color": "x".repeat(LONGEST)});
        let kept = Given::new((1, 2), &long.to_string()).unwrap();
        assert!(kept.title.unwrap().len() <= LONGEST && kept.more.is_empty());
        assert_eq!(Given::new((1, 2), "[]"), None);
        assert_eq!(Given::new((1, 2), r#"{"title":7}"#).unwrap().title, None);
    }

    #[tokio::test]
    async fn the_newest_is_there_again_after_a_start_and_none_that_is_far_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Said::open(Card::new("claude", Path::new("/w")), folder.path());
        let said = open();
        said.keep(&given((1, 3), "T")).await;
        said.keep(&given((1, 2), "old")).await;
        said.keep(&given((1, 3 + MOST_AHEAD + 1), "far")).await;
        said.keep(&given((2, i64::MAX), "far")).await;
        assert_eq!(open().given(), Some(given((1, 3), "T")));
        // A server that was restored has fewer versions, and the next key is a newer one all the same.
        said.keep(&given((2, 2), "next")).await;
        assert_eq!(open().given(), Some(given((2, 2), "next")));
    }

    #[test]
    fn a_title_prevents_no_metadata_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let said = Said::open(Card::new("claude", Path::new("/w")), folder.path());
        let (ring, key, of) = (KeyRing::generate(), AccountKey::generate(), (SessionId::generate(), 5));
        let body = |given: &Given| -> Value {
            let sealed = said.sealed(&ring, of, Some(given), (UserId::generate(), &key)).unwrap();
            serde_json::from_str(&open_metadata(&ring, of, &sealed.into_string()).unwrap().body).unwrap()
        };
        let whole = body(&Given { more: Map::from_iter([("color".to_owned(), json!("blue"))]), ..given((1, 4), "T") });
        assert_eq!((&whole["title"], &whole["path"], &whole["color"]), (&json!("T"), &json!("/w"), &json!("blue")));
        // Numbers that are written longer than they were read.
        let numbers: Vec<Value> = std::iter::repeat_n(json!(1e15), 2_000).collect();
        let grown = body(&Given { more: Map::from_iter([("n".to_owned(), json!(numbers))]), ..given((1, 4), "T") });
        assert_eq!((&grown["title"], &grown["path"], grown.get("n")), (&json!("T"), &json!("/w"), None));
    }

    #[test]
    fn what_others_leave_out_is_signed_again_once_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let said = Said::open(Card::new("claude", Path::new("/w")), folder.path());
        assert!(said.may_sign() && !said.may_sign());
        assert!(!said.has_seen((1, 2), "a"));
        said.saw((1, 2), "a");
        assert!(said.has_seen((1, 2), "a") && !said.has_seen((1, 2), "b") && !said.has_seen((1, 3), "a"));
    }
}
