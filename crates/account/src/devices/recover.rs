//! Recovery words: new ones for an account, and an account that is brought back with them.

use ensemble_client::devices::Names;
use ensemble_client::{Client, Credential, Error as ClientError, Known};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{ContentRing, RecoveryWords, SealError};
use ensemble_types::devices::{DeviceKind, DeviceList, ListedDevice, Role};
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;

use super::next::{begin_epoch, entry};
use super::{List, Own, change};
use crate::account::{Account, fingerprint};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::kept_lists;
use crate::names::{self, next_list};
use crate::removal::begin_removal;
use crate::store::Lock;

fn unusable(error: SealError) -> Error {
    Error::Seal("The recovery words".to_owned(), error)
}

impl Account {
    /// Makes these the account's recovery words. They replace the ones from before.
    pub async fn set_recovery_words(&self, words: &RecoveryWords) -> Result<()> {
        self.check_primary()?;
        let (key, own) = (words.key().map_err(unusable)?, self.own());
        let mut next = own.list.successor(self.client.now());
        let before = next.devices.len();
        next.devices.retain(|device| device.role != Role::Recovery);
        let is_replaced = next.devices.len() < before;
        let contents = if is_replaced { begin_epoch(&mut next, &own.contents)? } else { own.contents.clone() };
        next.devices.push(ListedDevice { box_key: box_key(words)?, ..entry(&key, Role::Recovery)? });
        let next = self.sign_next(&own.list, (next, self.names().await?), contents, Some(&key))?;
        if is_replaced {
            begin_removal(&self.home, self.place(), next.own.list.version())?;
        }
        self.send_next(next, Vec::new()).await?;
        if is_replaced {
            self.finish_removal().await?.whole()?;
        }
        Ok(())
    }
}

fn box_key(words: &RecoveryWords) -> Result<String> {
    Ok(words.box_key().map_err(unusable)?.public().to_text())
}

/// A computer that is to become a primary device of the account that recovery words belong to. No other program makes a key here meanwhile.
pub struct Recovery {
    home: Home,
    lock: Lock,
}

/// The account that the words belong to, as far as it can be checked with the words alone.
pub struct Found {
    recovery: Recovery,
    client: Client,
    user: UserId,
    /// The key of the words.
    words: AccountKey,
    list: List,
    contents: ContentRing,
}

/// A recovery that the person has agreed to.
pub struct Recovering {
    found: Found,
    key: AccountKey,
    /// The next list. `None`: the key of a command that was killed is listed already, so nothing more is signed.
    next: Option<(DeviceList, Names)>,
    is_one_gone: bool,
}

impl Recovery {
    pub async fn begin(home: &Home) -> Result<Self> {
        let lock = home.lock_account().await?;
        home.check_no_key()?;
        home.check_writable()?;
        Ok(Self { home: home.clone(), lock })
    }

    /// Finds the account: the words are in its list, and what is sealed to them opens.
    pub async fn find(self, client: &Client, words: &RecoveryWords) -> Result<Found> {
        let key = words.key().map_err(unusable)?;
        let client = client.with_credential(Credential::Device(key.clone()));
        let token = client.sign_in().await;
        let user =
            token.map_err(|error| if error.is_not_found() { Error::NoAccountOfWords } else { error.into() })?.user_id;
        let shown = client.devices().await?.list.ok_or(Error::NoDevicesShown)?;
        let account = List::remembered(&shown).map_err(ClientError::from)?.body().account.clone();
        let list = client.newest_list(user, Known::Account(&account)).await?;
        let (boxed, box_key) = (words.box_key().map_err(unusable)?, box_key(words)?);
        let is_ours = |list: &List| {
            let entry = list.device(&key.public_key());
            entry.is_some_and(|entry| entry.role == Role::Recovery && entry.box_key == box_key)
        };
        let list = list.filter(is_ours).ok_or(Error::WordsNotListed)?;
        let sealed = client.content_ring().await?;
        let contents = ContentRing::open(&sealed.sealed, &boxed, &key.public_key(), &list)
            .map_err(|error| Error::Seal("The content keys".to_owned(), error))?;
        Ok(Found { recovery: self, client, user, words: key, list, contents })
    }
}

impl Found {
    /// The words do not say which account they belong to, so the person does.
    pub fn fingerprint(&self) -> Result<String> {
        fingerprint(&self.list.body().account)
    }

    /// Continues: it is the person's account.
    pub async fn agreed(self) -> Result<Recovering> {
        let home = &self.recovery.home;
        let key = home.pending(DeviceKind::Recovery).map_or_else(AccountKey::generate, |(key, _)| key);
        let mut next = None;
        if self.list.device(&key.public_key()).is_none() {
            home.keep_pending(&key, DeviceKind::Recovery, None)?;
            let names = names::of(home, &self.client, self.user, &self.list).await?;
            next = Some((self.list.successor(self.client.now()), names));
        }
        Ok(Recovering { found: self, key, next, is_one_gone: false })
    }
}

impl Recovering {
    /// Removes the devices that are lost. `is_lost` gets each device with its name.
    pub fn remove_lost<E>(
        &mut self,
        mut is_lost: impl FnMut(&ListedDevice, Option<&str>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let Some((next, names)) = &mut self.next else { return Ok(()) };
        for device in next.devices.clone() {
            let is_there = next.devices.iter().any(|entry| entry.key == device.key);
            if !is_there || device.key == self.found.words.public_key() {
                continue;
            }
            if is_lost(&device, names.get(&device.key))? {
                // A machine goes with the computer on which it is.
                next.devices.retain(|entry| entry.key != device.key && entry.by.as_ref() != Some(&device.key));
                self.is_one_gone |= device.role.opens_contents();
            }
        }
        Ok(())
    }

    /// Makes this computer a primary device, and finishes the removal of those that are lost.
    pub async fn finish(self) -> Result<Account> {
        let Self { found, key, next, is_one_gone } = self;
        let Found { recovery: Recovery { home, lock }, client, user, words, list: before, contents } = found;
        let Some((mut next, mut names)) = next else {
            let me = signed_in(&home, client, key, &before, &lock).await?;
            return finished(me).await;
        };
        let contents = if is_one_gone { begin_epoch(&mut next, &contents)? } else { contents };
        let mut entry = entry(&key, Role::Primary)?;
        names.keep(&next);
        names.give(&mut entry, home.computer().device());
        next.devices.push(entry);
        let (list, names) = next_list(&before, next, names, &words)?;
        if is_one_gone {
            begin_removal(&home, &home.place(client.origin(), user)?, list.version())?;
        }
        let change = change(&list, &contents, [&key], names)?;
        let changed = kept_lists::send(&home, &client, (&key, user), &list, (&change, Vec::new())).await;
        if matches!(&changed, Err(Error::Client(error)) if error.is(Code::Conflict)) {
            // The key of the killed command was listed and removed meanwhile. The next try makes another one.
            home.forget_pending()?;
        }
        changed?;
        let me = signed_in(&home, client, key, &list, &lock).await?;
        if !is_one_gone {
            return Ok(me);
        }
        let own = Own { list: before, contents: me.own().contents.clone() };
        Account::new(&home, me.client.clone(), me.key.clone(), me.id, own)?.see_all_titles().await;
        finished(me).await
    }
}

/// Signs in with the key of the new primary device, and keeps it.
async fn signed_in(home: &Home, client: Client, key: AccountKey, list: &List, lock: &Lock) -> Result<Account> {
    let client = client.with_credential(Credential::Device(key.clone()));
    let token = client.sign_in().await?;
    home.keep_new_device(client, key, (list, &token), lock).await
}

async fn finished(me: Account) -> Result<Account> {
    me.settle().await;
    me.finish_removal().await?.whole()?;
    Ok(me)
}
