//! The account keys of other users that were seen first, on any device of this account. They lie in the account's client state, which
//! only its own devices read and sign.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use ensemble_client::Error as ClientError;
use ensemble_protocol::seal::{open_client_state, seal_client_state};
use ensemble_types::accounts::{Account as Stored, UpdateAccount};
use ensemble_types::devices::Role;
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::text::Blob;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::account::Account;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::invites;

/// What the clients of an account share. Members of later versions are kept.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Shared {
    #[serde(default)]
    pinned: BTreeMap<UserId, String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Shared {
    /// The entries of a member that have a form which is known here.
    pub(crate) fn entries<K: FromStr + Ord, T: DeserializeOwned>(&self, member: &str) -> BTreeMap<K, T> {
        let entries = self.more.get(member).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.parse().ok()?, T::deserialize(value).ok()?))).collect()
    }

    /// How many entries a member has, also in other forms.
    pub(crate) fn count(&self, member: &str) -> usize {
        self.more.get(member).and_then(Value::as_object).map_or(0, Map::len)
    }

    pub(crate) fn set(&mut self, member: &str, key: &str, entry: &impl Serialize) {
        let all = self.more.entry(member).or_insert_with(|| Value::Object(Map::new()));
        if let (Value::Object(all), Ok(entry)) = (all, serde_json::to_value(entry)) {
            all.insert(key.to_owned(), entry);
        }
    }

    /// Whether there was one.
    pub(crate) fn remove(&mut self, member: &str, key: &str) -> bool {
        self.more.get_mut(member).and_then(Value::as_object_mut).is_some_and(|all| all.remove(key).is_some())
    }
}

/// The state that this computer has used last, as it was sealed. A server that shows an older one was restored, or lies.
#[derive(Serialize, Deserialize)]
struct Kept {
    user: UserId,
    version: i64,
    sealed: String,
}

const KEPT: &str = "shared-state.json";
/// More versions than this are not written to get above the one that is kept.
const MOST_BEHIND: i64 = 1_000;
/// A change is made again so often when another device was faster.
const TRIES: usize = 5;

impl Home {
    fn kept_state(&self, place: &str, user: UserId) -> Result<Option<Kept>> {
        let mut all: BTreeMap<String, Kept> = self.read_json(KEPT)?.unwrap_or_default();
        Ok(all.remove(place).filter(|kept| kept.user == user))
    }

    fn keep_state(&self, place: &str, kept: Kept) -> Result<()> {
        self.update_json(KEPT, |all: &mut BTreeMap<String, Kept>| {
            let known = all.get(place).filter(|known| known.user == kept.user);
            if known.is_none_or(|known| known.version < kept.version) {
                all.insert(place.to_owned(), kept);
            }
            Ok(())
        })
    }
}

impl Account {
    /// The account key of a user that another device of this account has seen first; or remembers this one for the others.
    pub(crate) async fn pinned_anywhere(&self, user: UserId, seen: &str) -> Result<String> {
        let pin = |shared: &mut Shared| match shared.pinned.get(&user) {
            Some(key) => (key.clone(), false),
            None => {
                shared.pinned.insert(user, seen.to_owned());
                (seen.to_owned(), true)
            }
        };
        // A state that has grown too long is no reason to do nothing; this computer remembers the key itself.
        Ok(self.change_shared(pin).await?.0)
    }

    /// Changes what the devices of the account share. `change` may be called again, and says whether it has changed something.
    pub(crate) async fn change_shared<T>(
        &self,
        mut change: impl FnMut(&mut Shared) -> (T, bool),
    ) -> Result<(T, Result<(), ClientError>)> {
        let mut tries = 0;
        loop {
            let account = self.client.account().await?;
            let mut shared = self.shared(&account).await?;
            let (found, is_changed) = change(&mut shared);
            if !is_changed {
                return Ok((found, Ok(())));
            }
            tries += 1;
            match self.write_shared(&shared, account.client_state_version).await {
                // Another device was faster.
                Err(error) if error.is(Code::VersionMismatch) && tries < TRIES => {}
                written => return Ok((found, written)),
            }
        }
    }

    /// What the devices of the account share now.
    pub async fn shared_state(&self) -> Result<Shared> {
        self.shared(&self.client.account().await?).await
    }

    /// Signs it for the newest content epoch: a device that signed it was removed. What others have written meanwhile stays; invitations
    /// whose secret that device knows do not.
    pub async fn keep_state(&self, shared: &Shared) -> Result<()> {
        for _ in 0..TRIES {
            let account = self.client.account().await?;
            if account.client_state.is_none() {
                return Ok(());
            }
            // What does not open is the removed device's.
            let mut now = self.shared(&account).await.unwrap_or_default();
            for (user, key) in &shared.pinned {
                now.pinned.entry(*user).or_insert_with(|| key.clone());
            }
            for (name, value) in &shared.more {
                now.more.entry(name.clone()).or_insert_with(|| value.clone());
            }
            invites::forget_known(&mut now, shared);
            match self.write_shared(&now, account.client_state_version).await {
                // Another device has just written one.
                Err(error) if error.is(Code::VersionMismatch) => {}
                done => return done.map_err(Error::from),
            }
        }
        Ok(())
    }

    async fn shared(&self, account: &Stored) -> Result<Shared> {
        let place = self.place();
        let kept = self.home.kept_state(place, self.id)?;
        let version = account.client_state_version;
        let shown = account.client_state.as_ref().filter(|_| kept.as_ref().is_none_or(|kept| kept.version <= version));
        let mut opened = shown.map_or(Ok(None), |sealed| self.listed(sealed, version));
        if shown.is_some() && !matches!(opened, Ok(Some(_))) {
            // A device that was added since this program has read the list may have written it.
            self.refresh_own(Duration::ZERO).await?;
            opened = shown.map_or(Ok(None), |sealed| self.listed(sealed, version));
        }
        if let (Some(sealed), Ok(Some(shared))) = (shown, &opened) {
            self.home.keep_state(place, Kept { user: self.id, version, sealed: sealed.as_str().to_owned() })?;
            return Ok(shared.clone());
        }
        // A device that was removed has written it, or the server, or the server is behind. Who signed the kept one was listed then.
        match kept.map(|kept| self.opened(&kept.sealed, kept.version)) {
            Some(Ok((shared, _))) => Ok(shared),
            _ => opened.map(Option::unwrap_or_default),
        }
    }

    /// The state, if a device that is listed has signed it.
    fn listed(&self, sealed: &str, version: i64) -> Result<Option<Shared>> {
        let (shared, signer) = self.opened(sealed, version)?;
        let role = self.own().list.device(&signer).map(|device| device.role);
        Ok(role.is_some_and(Role::shares_sessions).then_some(shared))
    }

    /// The state, and who has signed it.
    fn opened(&self, sealed: &str, version: i64) -> Result<(Shared, String)> {
        let own = self.own();
        let state = (own.list.body().account.as_str(), version);
        let opened = own.contents.open_with(|pair| open_client_state(sealed, pair, state));
        let (json, signer) = opened.map_err(|error| Error::Seal("What your devices share".to_owned(), error))?;
        let shared = serde_json::from_slice(&json)
            .map_err(|error| Error::Form(format!("What your devices share has another form: {error}.")))?;
        Ok((shared, signer))
    }

    /// Replaces the version that the server has shown. A server that was restored gets it once for each version that it lacks, so that
    /// no device takes it for an old one.
    async fn write_shared(&self, shared: &Shared, shown: i64) -> Result<(), ClientError> {
        let unusable = |error: String| ClientError::Argument(error);
        let json = serde_json::to_vec(shared).map_err(|error| unusable(error.to_string()))?;
        let to = self.content_key().map_err(|failure| unusable(failure.to_string()))?;
        let place = self.place();
        let kept = self.home.kept_state(place, self.id).map_err(|failure| unusable(failure.to_string()))?;
        let newest = kept.map_or(shown, |kept| kept.version.max(shown));
        if newest.saturating_sub(shown) > MOST_BEHIND {
            return Err(unusable("the server has a much older state than this computer has seen".to_owned()));
        }
        for replaced in shown..=newest {
            let version = replaced + 1;
            let sealed = seal_client_state(&json, &to, (&self.own().list.body().account, version), &self.key);
            let sealed = sealed.map_err(|error| unusable(error.to_string()))?;
            let update = UpdateAccount {
                client_state: Some(Blob::new(sealed.clone()).map_err(|error| unusable(error.to_string()))?),
                expected_version: Some(replaced),
                ..UpdateAccount::default()
            };
            self.client.update_account(&update).await?;
            let kept = self.home.keep_state(place, Kept { user: self.id, version, sealed });
            kept.map_err(|failure| unusable(failure.to_string()))?;
        }
        Ok(())
    }
}
