//! The account keys of other users that were seen first, on any device of this account. They lie in the account's client state, which
//! only its own devices read and sign.

use std::collections::BTreeMap;

use ensemble_client::Error;
use ensemble_client::seal::{open_client_state, seal_client_state};
use ensemble_types::accounts::{Account, UpdateAccount};
use ensemble_types::devices::Role;
use ensemble_types::ids::UserId;
use ensemble_types::problem::Code;
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};

use crate::context::Me;
use crate::failure::{Failure, Result};

/// What the clients of an account share. Members of later versions are kept.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Shared {
    #[serde(default)]
    pinned: BTreeMap<UserId, String>,
    #[serde(flatten)]
    more: serde_json::Map<String, serde_json::Value>,
}

impl Me {
    /// The account key of a user that another device of this account has seen first; or remembers this one for the others.
    pub(crate) async fn pinned_anywhere(&self, user: UserId, seen: &str) -> Result<String> {
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            let account = self.client.account().await?;
            let mut shared = self.shared(&account)?;
            if let Some(key) = shared.pinned.get(&user) {
                return Ok(key.clone());
            }
            shared.pinned.insert(user, seen.to_owned());
            match self.share(&shared, account.client_state_version).await {
                // Another device was faster.
                Err(error) if error.is(Code::VersionMismatch) => {}
                // A state that has grown too long is no reason to do nothing; this computer remembers the key itself.
                _ => return Ok(seen.to_owned()),
            }
        }
        Ok(seen.to_owned())
    }

    /// What the devices of the account share now.
    pub(crate) async fn shared_state(&self) -> Result<Shared> {
        self.shared(&self.client.account().await?)
    }

    /// Signs it anew, for the newest content epoch: a device that signed it was removed.
    pub(crate) async fn keep_state(&self, shared: &Shared) -> Result<()> {
        let account = self.client.account().await?;
        if account.client_state.is_none() {
            return Ok(());
        }
        match self.share(shared, account.client_state_version).await {
            // Another device has just written one.
            Err(error) if error.is(Code::VersionMismatch) => Ok(()),
            done => done.map_err(Failure::from),
        }
    }

    fn shared(&self, account: &Account) -> Result<Shared> {
        let Some(sealed) = &account.client_state else { return Ok(Shared::default()) };
        let own = self.own();
        let state = (own.list.body().account.as_str(), account.client_state_version);
        let opened = own.contents.open_with(|pair| open_client_state(sealed, pair, state));
        let (json, signer) = opened.map_err(|error| Failure::Seal("What your devices share".to_owned(), error))?;
        if !own.list.device(&signer).map(|device| device.role).is_some_and(Role::shares_sessions) {
            // A device that was removed has written it, or the server.
            return Ok(Shared::default());
        }
        serde_json::from_slice(&json)
            .map_err(|error| Failure::message(format!("What your devices share has another form: {error}.")))
    }

    async fn share(&self, shared: &Shared, replaced: i64) -> Result<(), Error> {
        let unusable = |error: String| Error::Argument(error);
        let json = serde_json::to_vec(shared).map_err(|error| unusable(error.to_string()))?;
        let to = self.content_key().map_err(|failure| unusable(failure.to_string()))?;
        let sealed = seal_client_state(&json, &to, (&self.own().list.body().account, replaced + 1), &self.key);
        let sealed = sealed.map_err(|error| unusable(error.to_string()))?;
        let update = UpdateAccount {
            client_state: Some(Blob::new(sealed).map_err(|error| unusable(error.to_string()))?),
            expected_version: Some(replaced),
            ..UpdateAccount::default()
        };
        self.client.update_account(&update).await.map(drop)
    }
}
