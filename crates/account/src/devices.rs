//! The account's devices as this one has checked them: the newest list, and the content ring.
//!
//! A list is remembered with its digest for ever. A server that shows an older one, or another one of the same version, is
//! not obeyed.

pub mod join;
pub mod link;
pub(crate) mod next;
pub mod recover;
pub mod remove;
mod rename;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use ensemble_client::devices::List;
use ensemble_client::devices::{Names, Removal, proof_text, sign_list};
use ensemble_client::{Client, Error as ClientError, Known};
use ensemble_protocol::AccountKey;
pub use ensemble_protocol::seal::{BadWords, LinkCode, RecoveryWords};
use ensemble_protocol::seal::{BoxKeyPair, BoxPublicKey, ContentRing};
use ensemble_types::devices::{ChangeDevices, DeviceList, DeviceName, Role, SealedContentRing, SignedList};
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::home::Home;
use crate::kept_lists::{MOST_KEPT, send, send_again};
use crate::names;

/// The checked lists, by place and user.
const FILE: &str = "devices.json";
type Lists = BTreeMap<String, BTreeMap<UserId, Remembered>>;

/// A list, and what is known of earlier ones.
#[derive(Deserialize, Serialize)]
struct Remembered {
    #[serde(flatten)]
    signed: SignedList,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removal: Option<Removal>,
    /// When the server has shown it as the newest one, in seconds since 1970 by this computer's clock.
    #[serde(default)]
    checked: u64,
}

/// Within this time it is not noted again that a list is still the newest one.
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// A server that names another time does not make a list younger.
#[expect(clippy::disallowed_methods, reason = "how old something is on this computer is for its own clock to say")]
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Remembered {
    fn new(list: &List) -> Self {
        Self { signed: list.signed().clone(), removal: list.removal().cloned(), checked: seconds() }
    }

    /// Whether it was checked within this time. A time that is still to come says nothing.
    fn is_younger(&self, than: Duration) -> bool {
        seconds().checked_sub(self.checked).is_some_and(|age| age < than.as_secs())
    }

    fn list(&self) -> Result<List> {
        let list = List::remembered(&self.signed).map_err(ClientError::from)?;
        Ok(list.with_removal(self.removal.clone()))
    }
}

/// Held while sessions get new keys because of a removal.
pub const REMOVAL_LOCK: &str = "removal.lock";

/// The account of this device.
pub struct Own {
    pub list: List,
    pub contents: ContentRing,
}

impl Home {
    fn lists(&self) -> Result<Lists> {
        self.read_json(FILE).map(Option::unwrap_or_default).map_err(of_lists)
    }

    /// The list of a user that was checked last.
    pub fn known_list(&self, place: &str, user: UserId) -> Result<Option<List>> {
        let lists = self.lists()?;
        lists.get(place).and_then(|users| users.get(&user)).map(Remembered::list).transpose()
    }

    /// The same, if the server has shown it as the newest one within this time.
    pub(crate) fn recent_list(&self, place: &str, user: UserId, max_age: Duration) -> Result<Option<List>> {
        let lists = self.lists()?;
        let remembered = lists.get(place).and_then(|users| users.get(&user));
        remembered.filter(|remembered| remembered.is_younger(max_age)).map(Remembered::list).transpose()
    }

    /// Remembers a checked list, unless a newer one was remembered meanwhile.
    pub fn remember_list(&self, place: &str, user: UserId, list: &List) -> Result<()> {
        self.remember_newest(place, user, list).map(drop)
    }

    /// The same. `false`: another command has read a newer one, and this one is not to be relied on.
    fn remember_newest(&self, place: &str, user: UserId, list: &List) -> Result<bool> {
        let remember = |lists: &mut Lists| {
            let users = lists.entry(place.to_owned()).or_default();
            let known = users.get(&user).and_then(|remembered| remembered.list().ok());
            match known {
                Some(known) if known.version() > list.version() => return Ok(false),
                Some(known) if known.version() == list.version() && known.digest() != list.digest() => {
                    return Err(ClientError::OldDeviceList.into());
                }
                Some(known) if known.version() == list.version() => {
                    let remembered = users.get_mut(&user).filter(|known| !known.is_younger(NOTED_AGAIN_AFTER));
                    remembered.into_iter().for_each(|remembered| remembered.checked = seconds());
                }
                _ => drop(users.insert(user, Remembered::new(list))),
            }
            Ok(true)
        };
        self.change_json(FILE, |damaged| Err(of_lists(damaged)), remember)
    }
}

fn of_lists(error: Error) -> Error {
    Error::DamagedLists(Box::new(error))
}

/// How often a list is read again because another command has read a newer one meanwhile.
const TRIES: usize = 5;
pub(crate) const OVERTAKEN: Error = Error::Overtaken("the device list");

/// Reads and checks what this device needs. The first device of an account begins its list. A server that was restored gets the lists
/// again that it has lost.
pub async fn own(home: &Home, client: &Client, key: &AccountKey, user: UserId) -> Result<Own> {
    match read(home, client, key, user).await {
        Err(Error::Client(error)) if matches!(*error, ClientError::OldDeviceList) => {
            let again = async {
                send_again(home, client, key, user).await?;
                read(home, client, key, user).await
            };
            Box::pin(again).await
        }
        answer => answer,
    }
}

async fn read(home: &Home, client: &Client, key: &AccountKey, user: UserId) -> Result<Own> {
    let place = &*home.place(client.origin(), user)?;
    let boxed = box_of(key)?;
    let (mut is_first_try, mut tries) = (true, 0..TRIES);
    loop {
        let known = home.known_list(place, user)?;
        let sealed = match client.content_ring().await {
            Err(error) if error.is_not_found() && known.is_none() && is_first_try => {
                is_first_try = false;
                // Another command of this device may have been faster. Then the ring is read again.
                begin(home, client, key, user).await?;
                continue;
            }
            Err(error) if error.is_not_found() && known.is_some() => return Err(ClientError::OldDeviceList.into()),
            answer => answer?,
        };
        let (list, read) = match known {
            Some(list) if list.version() == sealed.version => {
                let signed = list.signed().clone();
                (list, [signed].into())
            }
            known => newest(home, client, user, known, key).await?,
        };
        if list.device(&key.public_key()).is_none_or(|device| device.box_key != boxed.public().to_text()) {
            return Err(Error::NotListed);
        }
        // A change that was made between the two calls.
        if sealed.version > list.version() && is_first_try {
            is_first_try = false;
            continue;
        }
        let contents = ContentRing::open(&sealed.sealed, &boxed, &key.public_key(), &list)
            .map_err(|error| Error::Seal("Your content keys".to_owned(), error))?;
        if home.remember_newest(place, user, &list)? {
            home.keep_lists((place, user), read, &sealed.sealed)?;
            // They are sent again with the lists, should the server be restored from a backup.
            let _names = names::of(home, client, user, &list).await;
            return Ok(Own { list, contents });
        }
        tries.next().ok_or(OVERTAKEN)?;
    }
}

/// The newest list of the caller's account, checked, and the last of those that were read for it.
async fn newest(
    home: &Home,
    client: &Client,
    user: UserId,
    known: Option<List>,
    key: &AccountKey,
) -> Result<(List, VecDeque<SignedList>)> {
    let own = key.public_key();
    let from = known.as_ref().map_or(Known::Account(&own), Known::List);
    let mut read = VecDeque::new();
    let keep = |list: &List| {
        read.push_back(list.signed().clone());
        if read.len() > MOST_KEPT {
            read.pop_front();
        }
    };
    let list = client.read_lists(user, from, keep).await.map_err(|error| match (error, &known) {
        (ClientError::DeviceList(ensemble_client::devices::ListError::OtherAccount), None) => {
            Error::UnknownAccount(home.path().join(FILE))
        }
        (error, _) => error.into(),
    })?;
    Ok((list.ok_or(ClientError::OldDeviceList)?, read))
}

/// The newest list of another user, checked from the one that is remembered or from the account key that was first seen.
/// `None`: the user has none yet.
pub async fn of_user(
    home: &Home,
    (client, place): (&Client, &str),
    user: UserId,
    account: &str,
) -> Result<Option<List>> {
    for _ in 0..TRIES {
        let known = home.known_list(place, user)?;
        if known.as_ref().is_some_and(|list| list.body().account != account) {
            return Err(ClientError::OldDeviceList.into());
        }
        let list = client.newest_list(user, known.as_ref().map_or(Known::Account(account), Known::List)).await?;
        match list {
            Some(list) if !home.remember_newest(place, user, &list)? => {}
            list => return Ok(list),
        }
    }
    Err(OVERTAKEN)
}

/// The first list: this device alone, as a primary one.
async fn begin(home: &Home, client: &Client, key: &AccountKey, user: UserId) -> Result<()> {
    let contents = ContentRing::generate();
    let mut entry = next::entry(key, Role::Primary)?;
    let mut names = Names::default();
    names.give(&mut entry, home.computer().device());
    let list = DeviceList {
        account: key.public_key(),
        version: 1,
        prev: None,
        created: client.now(),
        content_epoch: 1,
        content_public_key: public(&contents)?.to_text(),
        devices: vec![entry],
    };
    let list = List::first(&signed(&list, key)?, &key.public_key()).map_err(ClientError::from)?;
    let change = change(&list, &contents, [key], names.given().clone())?;
    match send(home, client, (key, user), &list, (&change, Vec::new())).await {
        Err(Error::Client(error)) if error.is(Code::DeviceListConflict) => Ok(()),
        answer => answer,
    }
}

/// The request for a list, with the content ring sealed to each device that may open contents. `added`: the keys that it adds and that
/// this program has made.
pub(crate) fn change<'a>(
    list: &List,
    contents: &ContentRing,
    added: impl IntoIterator<Item = &'a AccountKey>,
    names: BTreeMap<String, DeviceName>,
) -> Result<ChangeDevices> {
    let mut sealed = BTreeMap::new();
    for device in list.openers() {
        let ring = contents.seal_to(device, &list.body().account);
        let ring = ring.map_err(|error| Error::Seal("The content keys".to_owned(), error))?;
        let ring = SealedContentRing::new(ring).map_err(|_| Error::RemovedTooOften)?;
        sealed.insert(device.key.clone(), ring);
    }
    let mut proofs = BTreeMap::new();
    for key in added {
        let public = key.public_key();
        let entry = list.device(&public).ok_or_else(|| Error::Form("A new key is not in the list.".to_owned()))?;
        let proof = Blob::new(key.sign(&proof_text(&list.body().account, entry)));
        proofs.insert(public, proof.map_err(|error| Error::Form(format!("A proof {error}.")))?);
    }
    Ok(ChangeDevices { list: Some(list.signed().clone()), sealed, names, proofs, ..ChangeDevices::default() })
}

/// A name as far as a device may have it.
pub(crate) fn shortened(name: &str) -> Option<Text<0, 64>> {
    Text::new(name.chars().filter(|c| !c.is_control()).take(64).collect::<String>()).ok()
}

pub(crate) fn signed(list: &DeviceList, key: &AccountKey) -> Result<SignedList> {
    sign_list(list, key).map_err(Error::from)
}

pub(crate) fn box_of(key: &AccountKey) -> Result<BoxKeyPair> {
    BoxKeyPair::of_device(key).map_err(|error| Error::Seal("The key of this device".to_owned(), error))
}

pub(crate) fn public(contents: &ContentRing) -> Result<BoxPublicKey> {
    contents.public().map_err(|error| Error::Seal("The content key".to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_checked_long_ago_is_read_again() {
        let signed = serde_json::json!({"body": "{}", "signer": "a".repeat(43), "signature": "b".repeat(86)});
        let signed: SignedList = serde_json::from_value(signed).unwrap();
        let is_young = |checked: u64| {
            Remembered { signed: signed.clone(), removal: None, checked }.is_younger(Duration::from_secs(3_600))
        };
        assert!(is_young(seconds()) && is_young(seconds() - 3_000));
        assert!(!is_young(seconds() - 3_601) && !is_young(0), "one of an earlier version of this program says no time");
        assert!(!is_young(seconds() + 100), "this computer's clock was set back");
    }
}
