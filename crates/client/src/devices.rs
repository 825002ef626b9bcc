//! The caller's devices, linking a device, and the device lists of users.

use std::time::Duration;

pub use ensemble_protocol::lists::{
    LinkText, List, ListError, MOST_DEVICES, NameError, Names, Removal, encode, is_possession, proof_text, seen_text,
};
use ensemble_types::devices::{
    ChangeDevices, CreatedDeviceLink, DeviceContentRing, DeviceLink, DeviceLinkRequest, DeviceList, DeviceListPage,
    Devices, ListedDevice, SignedList,
};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::text::{Blob, Text};
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;
use ensemble_protocol::AccountKey;

/// What is known of an account before its newest list is read.
#[derive(Clone, Debug)]
pub enum Known<'a> {
    /// The public key of its first device.
    Account(&'a str),
    /// SHA-256 of that key's 32 bytes, base64url.
    AccountDigest(&'a str),
    /// A list that was checked before.
    List(&'a List),
    /// The public key of its first device, and a version with its digest, by a device of the account.
    Vouched { account: &'a str, version: u32, digest: &'a str },
}

/// How a key stands in the lists of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No list had it.
    Never,
    /// The newest list has it.
    Listed,
    /// This version was the first without it.
    Removed(u32),
}

impl Standing {
    /// After a list that has the key or not.
    fn then(self, has_it: bool, version: u32) -> Self {
        match self {
            _ if has_it => Self::Listed,
            Self::Listed => Self::Removed(version),
            other => other,
        }
    }
}

/// Signs a list. What signs and what is signed is checked by [`List::next`].
pub fn sign_list(list: &DeviceList, key: &AccountKey) -> Result<SignedList> {
    let too_long = |_| Error::Argument("the device list is too long".to_owned());
    let body = serde_json::to_string(list).map_err(|error| Error::Argument(error.to_string()))?;
    let signature = key.sign(&ensemble_protocol::lists::signed_text(&body));
    Ok(SignedList {
        body: Text::new(body).map_err(too_long)?,
        signer: Blob::new(key.public_key()).map_err(too_long)?,
        signature: Blob::new(signature).map_err(too_long)?,
    })
}

/// The account key that a first list names, if it has this digest. The list is checked with it.
fn account_of(signed: &SignedList, digest: &str) -> Result<String> {
    let other = || Error::DeviceList(ListError::OtherAccount);
    let list: DeviceList = serde_json::from_str(&signed.body).map_err(|_| other())?;
    let key = ensemble_protocol::lists::decode::<32>(&list.account).ok_or_else(other)?;
    if encode(&Sha256::digest(key)) == digest { Ok(list.account) } else { Err(other()) }
}

impl Client {
    /// The caller's devices, and the newest list as the service has it. Check it with [`Self::newest_list`].
    pub async fn devices(&self) -> Result<Devices> {
        self.get(&["v1", "devices"]).send().await
    }

    /// Puts the next list on top of the newest one, or those that the service has lost. The same may be sent again.
    pub async fn change_devices(&self, change: &ChangeDevices) -> Result<()> {
        let call = self.post(&["v1", "devices"], Repeat::Harmless).json(change);
        call.send_created::<IgnoredAny>().await.map(drop)
    }

    /// The content ring that is sealed to the calling device.
    pub async fn content_ring(&self) -> Result<DeviceContentRing> {
        self.get(&["v1", "devices", "content-ring"]).send().await
    }

    /// The newest list of a user, checked version by version from what is known. `None`: the user has no list, and none was
    /// known.
    ///
    /// A list that is older than the known one, or another one of the same version, is an error: the server shows an old or
    /// a forked list.
    pub async fn newest_list(&self, user: UserId, known: Known<'_>) -> Result<Option<List>> {
        self.read_lists(user, known, |_| {}).await
    }

    /// Whether any list of this account has or had the key with a role that may share sessions.
    pub async fn ever_shared(&self, user: UserId, account: &str, key: &str) -> Result<bool> {
        self.ever_made(user, account, key, None).await
    }

    /// Whether the newest list of this account has the key with a role that may share sessions, and else which one had it last.
    pub async fn standing(&self, user: UserId, account: &str, key: &str) -> Result<Standing> {
        let mut standing = Standing::Never;
        let each = |list: &List| {
            let shares = list.device(key).is_some_and(|device| device.role.shares_sessions());
            standing = standing.then(shares, list.version());
        };
        self.read_lists(user, Known::Account(account), each).await?;
        Ok(standing)
    }

    /// Whether any list of this account has or had the key with a role that may make keys of sessions, or as this machine.
    pub async fn ever_made(&self, user: UserId, account: &str, key: &str, machine: Option<&MachineId>) -> Result<bool> {
        let all = self.every_device(user, account).await?;
        Ok(all.iter().any(|device| device.key == key && device.makes_keys(machine)))
    }

    /// The entries that any list of this account has or had, each once.
    pub async fn every_device(&self, user: UserId, account: &str) -> Result<Vec<ListedDevice>> {
        let mut all: Vec<ListedDevice> = Vec::new();
        let add = |list: &List| {
            for device in &list.body().devices {
                if !all.contains(device) {
                    all.push(device.clone());
                }
            }
        };
        self.read_lists(user, Known::Account(account), add).await?;
        Ok(all)
    }

    /// The same. `each` gets every list that was read, the oldest first and the known one among them.
    pub async fn read_lists(
        &self,
        user: UserId,
        known: Known<'_>,
        mut each: impl FnMut(&List),
    ) -> Result<Option<List>> {
        let mut newest = match known {
            Known::Account(_) | Known::AccountDigest(_) | Known::Vouched { .. } => None,
            Known::List(list) => Some(list.clone()),
        };
        // The known one comes again, so that a server that has forgotten it is noticed.
        let mut after = newest.as_ref().map_or(0, |list| list.version().saturating_sub(1));
        let mut is_met = newest.is_none();
        loop {
            let page: DeviceListPage =
                self.get(&["v1", "users", &user.to_string(), "devices"]).query("after", Some(after)).send().await?;
            for signed in &page.lists {
                newest = match newest {
                    Some(list) if !is_met => {
                        if *signed != *list.signed() {
                            return Err(Error::OldDeviceList);
                        }
                        is_met = true;
                        Some(list)
                    }
                    Some(list) => Some(list.next(signed)?),
                    None => match known {
                        Known::Account(account) | Known::Vouched { account, .. } => Some(List::first(signed, account)?),
                        Known::AccountDigest(digest) => Some(List::first(signed, &account_of(signed, digest)?)?),
                        Known::List(list) => Some(list.next(signed)?),
                    },
                };
                newest.iter().for_each(&mut each);
                if let (Known::Vouched { version, digest, .. }, Some(list)) = (&known, &newest)
                    && list.version() == *version
                    && list.digest_text() != *digest
                {
                    return Err(Error::OldDeviceList);
                }
            }
            match (&newest, page.next_cursor) {
                (Some(list), Some(_)) if list.version() > after => after = list.version(),
                _ if !is_met => return Err(Error::OldDeviceList),
                _ => return Ok(newest),
            }
        }
    }

    /// Begins a linking, which ends after ten minutes.
    pub async fn create_device_link(&self) -> Result<CreatedDeviceLink> {
        self.post(&["v1", "auth", "links"], Repeat::Harmful).send().await
    }

    /// Asks to be linked. Needs no credential.
    pub async fn ask_to_link(&self, id: &str, request: &DeviceLinkRequest) -> Result<()> {
        let call = self.post(&["v1", "auth", "links", id, "request"], Repeat::Harmful).anonymous().json(request);
        call.send::<IgnoredAny>().await.map(drop)
    }

    /// A linking, when it changes or after this time. Only the account that began it sees the request.
    pub async fn device_link(&self, id: &str, wait: Duration) -> Result<DeviceLink> {
        let call = self.get(&["v1", "auth", "links", id]).query("waitMs", Some(wait.as_millis()));
        call.waiting(wait).send().await
    }

    /// Ends a linking without a device.
    pub async fn refuse_device_link(&self, id: &str) -> Result<()> {
        self.post(&["v1", "auth", "links", id, "refusal"], Repeat::Harmless).send::<IgnoredAny>().await.map(drop)
    }
}

impl From<ListError> for Error {
    fn from(error: ListError) -> Self {
        Self::DeviceList(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_removed_in_the_first_list_without_it() {
        let of = |lists: &[bool]| {
            (1..).zip(lists).fold(Standing::Never, |standing, (version, has_it)| standing.then(*has_it, version))
        };
        assert_eq!(of(&[false, false]), Standing::Never);
        assert_eq!(of(&[false, true, true]), Standing::Listed);
        assert_eq!(of(&[true, false, false]), Standing::Removed(2));
    }
}
