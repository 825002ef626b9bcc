//! Whose keys count: the device lists of the machine's owner and of the owner's guests, checked and remembered.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ensemble_client::devices::List;
use ensemble_client::{Client, Error, Known};
use ensemble_process::disk::replace;
use ensemble_protocol::seal::BoxPublicKey;
use ensemble_protocol::transcript::account_digest;
use ensemble_protocol::transcript::body::{AccessGrant, KnownList};
use ensemble_protocol::transcript::rules::Signer;
use ensemble_types::devices::SignedList;
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::UserId;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::Host;
use crate::wake::wall_clock;

/// Guests whose lists are kept in memory.
const MOST_GUESTS: usize = 256;

/// The owner's list, and when the server was asked for it last.
struct Own {
    list: List,
    asked: Option<Asked>,
    /// When the last request for it got no answer that counts.
    failed: Option<Instant>,
    /// A list that one of the owner's devices has seen, and the server does not show here; and that device's key.
    withheld: Option<(KnownList, String)>,
}

/// When something was asked, by two clocks: the monotonic one stands still while the computer sleeps.
#[derive(Clone, Copy)]
struct Asked {
    at: Instant,
    wall: SystemTime,
}

impl Asked {
    fn now() -> Self {
        Self { at: Instant::now(), wall: wall_clock() }
    }

    fn age(self) -> Duration {
        self.at.elapsed().max(wall_clock().duration_since(self.wall).unwrap_or_default())
    }
}

/// Anyone who may append can send commands, and each has to be checked.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);
/// The greatest age of a list that something is written by.
const LONGEST_UNASKED: Duration = Duration::from_secs(60);
/// How long a write waits for the list, and how long until a write waits again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);

/// The newest lists that were seen.
pub(crate) struct Lists {
    client: Client,
    owner: UserId,
    path: PathBuf,
    own: Mutex<Own>,
    /// The version of the owner's list.
    version: watch::Sender<u32>,
    guests: Mutex<HashMap<UserId, List>>,
}

impl Lists {
    /// Reads the owner's list and checks it from the account key, or from the list that was remembered.
    pub(crate) async fn open(client: Client, owner: UserId, account: &str, folder: &Path) -> Result<Self, ListsError> {
        let path = folder.join("owner.json");
        let remembered = match fs::read(&path) {
            Ok(text) => {
                let signed: SignedList = serde_json::from_slice(&text).map_err(io::Error::other)?;
                Some(List::remembered(&signed).map_err(Error::from)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let own = match remembered.filter(|list| list.body().account == account) {
            Some(list) => list,
            None => {
                let list = client.newest_list(owner, Known::Account(account)).await?;
                let list = list.ok_or(ListsError::None)?;
                replace(&path, list.signed())?;
                list
            }
        };
        Ok(Self {
            client,
            owner,
            path,
            version: watch::Sender::new(own.version()),
            own: Mutex::new(Own { list: own, asked: None, failed: None, withheld: None }),
            guests: Mutex::default(),
        })
    }

    /// The newest list of the owner, as the server showed it at most a second ago. While the server is behind, it is the one that is
    /// known here, so a removed device does not come back.
    pub(crate) async fn refreshed(&self) -> Result<List, Error> {
        let mut own = self.own.lock().await;
        if own.asked.is_none_or(|asked| asked.age() >= BETWEEN_QUESTIONS) {
            self.refresh(&mut own).await?;
        }
        Ok(own.list.clone())
    }

    pub(crate) fn owner(&self) -> UserId {
        self.owner
    }

    /// The content epoch of the newest list of the owner that is known here.
    pub(crate) async fn content_epoch(&self) -> u32 {
        self.own.lock().await.list.body().content_epoch
    }

    /// The same, of a list that was asked for within the last minute. While the server cannot be asked, or shows an older list, the known
    /// one counts.
    pub(crate) async fn recent_content_epoch(&self) -> u32 {
        let mut own = self.own.lock().await;
        let has_just_failed = own.failed.is_some_and(|failed| failed.elapsed() < AFTER_A_FAILURE);
        if !has_just_failed && own.asked.is_none_or(|asked| asked.age() >= LONGEST_UNASKED) {
            self.try_to_refresh(&mut own).await;
        }
        own.list.body().content_epoch
    }

    /// The server may have forgotten what this machine has said, as after a restore.
    pub(crate) fn say_again(&self) {
        self.version.send_modify(|_| {});
    }

    /// Asks for the newest list now. Without an answer it is asked for before the next message is written.
    pub(crate) async fn reread(&self) {
        let mut own = self.own.lock().await;
        own.asked = None;
        self.try_to_refresh(&mut own).await;
    }

    async fn try_to_refresh(&self, own: &mut Own) {
        own.failed = match tokio::time::timeout(ANSWERED_WITHIN, self.refresh(own)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::debug!("The owner's device list cannot be read: {error}");
                Some(Instant::now())
            }
            Err(_) => Some(Instant::now()),
        };
    }

    async fn refresh(&self, own: &mut Own) -> Result<(), Error> {
        let newest = self.newest(&own.list).await?;
        own.asked = Some(Asked::now());
        if let Some(list) = newest.filter(|list| list.version() > own.list.version()) {
            if let Err(error) = replace(&self.path, list.signed()) {
                tracing::error!("Cannot write the owner's device list: {error}");
            }
            self.version.send_replace(list.version());
            own.list = list;
        }
        Ok(())
    }

    /// The newest list, or nothing where the server is behind, as after a restore: the known list counts then.
    async fn newest(&self, known: &List) -> Result<Option<List>, Error> {
        let ask = || self.client.newest_list(self.owner, Known::List(known));
        match ask().await {
            Err(Error::OldDeviceList) => {}
            answer => return answer,
        }
        let shown = self.client.newest_list(self.owner, Known::Account(&known.body().account)).await?;
        if shown.is_none_or(|shown| shown.version() < known.version()) {
            return Ok(None);
        }
        // Another list replaces the known one, or the missing ones have just come back.
        ask().await
    }

    /// Whether the server keeps the newest list of the owner back. `said` is the newest one that the signer of a command knows. What
    /// a device of the owner has said stays true for the commands of others, until the server shows that list or one without the
    /// device.
    async fn is_withheld(&self, said: &KnownList, signer: &Signer) -> Result<bool, Error> {
        let mut own = self.own.lock().await;
        let lacks = |list: &List, said: &KnownList| {
            let known = list.version();
            said.version > known || (said.version == known && said.digest != list.digest_text())
        };
        let mut is_withheld = signer.role.is_some() && lacks(&own.list, said);
        if is_withheld {
            self.refresh(&mut own).await?;
            is_withheld = lacks(&own.list, said);
            // A guest does not hold up the others.
            if is_withheld && signer.user == self.owner {
                own.withheld = Some((said.clone(), signer.key.clone()));
            }
        }
        let list = own.list.clone();
        own.withheld.take_if(|(said, by)| !lacks(&list, said) || list.device(by).is_none());
        Ok(is_withheld || own.withheld.is_some())
    }

    /// Whether a device of the owner has seen a newer list than the server shows here.
    pub(crate) async fn lacks_newest(&self) -> bool {
        self.own.lock().await.withheld.is_some()
    }

    /// The version of the owner's list that is known here, as it changes.
    pub(crate) fn versions(&self) -> watch::Receiver<u32> {
        self.version.subscribe()
    }

    /// The newest list of the owner that is known here.
    pub(crate) async fn list(&self) -> List {
        self.own.lock().await.list.clone()
    }

    pub(crate) async fn known(&self) -> KnownList {
        let own = self.own.lock().await;
        KnownList { version: own.list.version(), digest: own.list.digest_text() }
    }

    /// The key to which keys of sessions are sealed for the owner, and its epoch.
    pub(crate) async fn content_key(&self) -> Result<(BoxPublicKey, ContentEpoch), Error> {
        let list = self.refreshed().await?;
        let unusable = || Error::Argument("the owner's content key cannot be used".to_owned());
        let key = BoxPublicKey::from_text(&list.body().content_public_key).map_err(|_| unusable())?;
        Ok((key, ContentEpoch::new(list.body().content_epoch).map_err(|_| unusable())?))
    }

    /// The holder of this key, by the newest list of the user. A guest counts only with a grant of the owner, and only with the account
    /// that the grant names.
    ///
    /// # Errors
    /// The server cannot be reached now.
    pub(crate) async fn signer(
        &self,
        (user, key): (UserId, &str),
        grant: Option<&AccessGrant>,
        said: &KnownList,
    ) -> Result<Found, Error> {
        let list = if user == self.owner {
            match self.refreshed().await {
                // Another list in the place of the known one.
                Err(Error::OldDeviceList | Error::DeviceList(_)) => None,
                list => Some(list?),
            }
        } else {
            self.guest(user, grant).await?
        };
        let account = list.as_ref().and_then(|list| account_digest(&list.body().account)).unwrap_or_default();
        let device = list.as_ref().and_then(|list| list.device(key));
        let (role, box_key) = device.map(|device| (device.role, device.box_key.clone())).unzip();
        let signer = Signer { user, key: key.to_owned(), role, account };
        let list_is_withheld = self.is_withheld(said, &signer).await?;
        Ok(Found { signer, box_key, list_is_withheld })
    }

    async fn guest(&self, user: UserId, grant: Option<&AccessGrant>) -> Result<Option<List>, Error> {
        // Without a grant nothing is done, whatever the key is.
        let Some(grant) = grant else { return Ok(None) };
        // A grant of a device that was removed since is void until a listed device gives it again.
        let own = self.list().await;
        let is_listed = |key: &String| own.device(key).is_some_and(|device| device.role.shares_sessions());
        if !grant.key.as_ref().is_none_or(is_listed) {
            return Ok(None);
        }
        let mut guests = self.guests.lock().await;
        let is_granted = |account: &str| account_digest(account).as_deref() == Some(grant.account.as_str());
        let known = guests.remove(&user).filter(|list| is_granted(&list.body().account));
        let from = known.as_ref().map_or(Known::AccountDigest(&grant.account), Known::List);
        let list = self.client.newest_list(user, from).await;
        let list = match list {
            Err(Error::OldDeviceList | Error::DeviceList(_)) => None,
            Err(error) if error.is_not_found() => None,
            list => list?,
        };
        if guests.len() >= MOST_GUESTS {
            guests.clear();
        }
        // An older list that is refused now stays the one to begin from.
        if let Some(list) = list.clone().or(known) {
            guests.insert(user, list);
        }
        Ok(list)
    }
}

impl Host {
    /// The owner's newest list, by which it is judged who has signed a task or an order.
    ///
    /// # Errors
    /// The outer error: the server cannot be asked for it now. The inner one says why no list counts.
    pub async fn owner_list(&self) -> Result<Result<List, String>, Error> {
        let list = match self.lists.refreshed().await {
            // A server that shows an old list does not bring a removed device back.
            Err(error @ (Error::OldDeviceList | Error::DeviceList(_))) => return Ok(Err(error.to_string())),
            list => list?,
        };
        if self.lists.lacks_newest().await {
            return Ok(Err("the server keeps the newest device list of the owner back".to_owned()));
        }
        Ok(Ok(list))
    }
}

/// The signer of a command.
pub(crate) struct Found {
    pub(crate) signer: Signer,
    /// What is for this device only is sealed to it.
    pub(crate) box_key: Option<String>,
    /// There is a newer list of the owner than the server shows here, so its devices are unknown.
    pub(crate) list_is_withheld: bool,
}

/// Why a host cannot work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListsError {
    #[error("the owner's account has no device list")]
    None,
    #[error("the owner's device list on disk cannot be used")]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Client(#[from] Error),
}

#[cfg(test)]
mod tests;
