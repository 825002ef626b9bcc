//! The account keys of other users that were seen first, and their newest device lists.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::UserId;
use ensemble_types::line::inline;

use crate::account::{self, Account};
use crate::devices::{self, List};
use crate::error::{Error, Result};

/// How old the list of another user may be. A program may be open for days.
const OLDEST: Duration = Duration::from_secs(60);

/// How long the list of another user counts as the newest one where the server says that it is.
const A_DAY: Duration = Duration::from_secs(24 * 3_600);

/// The newest lists of other users, as this program has read and checked them, and when.
#[derive(Default)]
pub struct People(Mutex<HashMap<UserId, (List, Instant)>>);

impl People {
    fn get(&self, user: UserId, max_age: Duration) -> Option<List> {
        self.lock().get(&user).filter(|(_, read)| read.elapsed() < max_age).map(|(list, _)| list.clone())
    }

    /// Has the list of a user read again, if it is older than this version.
    pub(crate) fn forget_older(&self, user: UserId, version: u32) {
        self.lock().retain(|known, (list, _)| *known != user || list.version() >= version);
    }

    /// Never held while a request is on its way: a screen does not go on with a command that it sends while it waits for what is shown.
    fn lock(&self) -> MutexGuard<'_, HashMap<UserId, (List, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// The newest device list of a user. The account key that was first seen is remembered, and another one later is refused.
    pub async fn list_of(&self, user: UserId) -> Result<List> {
        self.list_within(user, OLDEST).await
    }

    /// The same, where the server names the newest version. One that is known here is not read again for a day.
    pub(crate) async fn list_since(&self, user: UserId, newest: Option<u32>) -> Result<List> {
        let Some(newest) = newest else { return self.list_of(user).await };
        let known = self.home.recent_list(self.place(), user, A_DAY)?;
        match known.filter(|list| list.version() >= newest) {
            Some(list) => Ok(list),
            None => {
                self.people.forget_older(user, newest);
                self.list_of(user).await
            }
        }
    }

    /// The same, read again when it is older than this. That of the own account is as it was read last.
    pub async fn list_within(&self, user: UserId, max_age: Duration) -> Result<List> {
        if user == self.id {
            return Ok(self.own().list.clone());
        }
        if let Some(list) = self.people.get(user, max_age) {
            return Ok(list);
        }
        let account = self.account_of(user).await?;
        let list = devices::of_user(&self.home, (&self.client, self.place()), user, &account)
            .await?
            .ok_or(Error::NoDevices(user))?;
        self.people.lock().insert(user, (list.clone(), Instant::now()));
        Ok(list)
    }

    /// The fingerprint of the account key to which a user's keys are sealed.
    pub async fn fingerprint_of(&self, user: UserId) -> Result<String> {
        let list = self.list_of(user).await?;
        account::fingerprint(&list.body().account)
    }

    /// The account key of a user: the one that was first seen here.
    pub(crate) async fn account_of(&self, user: UserId) -> Result<String> {
        let (place, id) = (self.place(), user.to_string());
        let seen = self
            .client
            .user(user)
            .await
            .map_err(|error| if error.is_not_found() { Error::NoUser(user) } else { error.into() })?;
        let (first, is_new) = match self.known_account(user)? {
            Some(key) => (key, false),
            None => (self.pinned_anywhere(user, &seen.public_key).await?, true),
        };
        if first != seen.public_key {
            return Err(Error::OtherKey(user));
        }
        if is_new {
            self.home.change_settings(|settings| {
                settings.known_users.entry(place.to_owned()).or_default().insert(id, first.clone());
            })?;
        }
        Ok(first)
    }

    /// The same without the server. `None`: none was seen here.
    pub(crate) fn known_account(&self, user: UserId) -> Result<Option<String>> {
        let users = self.home.settings()?.known_users.remove(self.place()).unwrap_or_default();
        Ok(users.get(&user.to_string()).cloned())
    }

    /// `Ada (01a2…)`, or the id. A name that only the server gives is quoted.
    pub async fn described(&self, user: UserId) -> String {
        self.name_of(user).await.map_or_else(|| user.to_string(), |name| format!("{name} ({user})"))
    }

    /// What this account calls a user, or the quoted name that the server gives.
    pub async fn name_of(&self, user: UserId) -> Option<String> {
        if let Some(name) = self.called(user).await {
            return Some(name);
        }
        let name = self.client.user(user).await.ok()?.display_name?;
        Some(format!("“{}”", inline(&name)))
    }
}

/// Whether this is the fingerprint of the key that the server shows for a user. Only its letters and digits count.
pub fn has_fingerprint(user: &PublicUser, text: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    account::fingerprint(&user.public_key).is_ok_and(|key| letters(&key) == letters(text))
}
