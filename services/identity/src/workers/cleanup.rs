//! Deletes what has expired, and counts the open challenges.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;

use crate::error::Error;
use crate::first_account::{remove, say};
use crate::keys::Vault;
use crate::operations::cleanup;
use crate::operations::invites::{for_first_account, is_first};
use crate::operations::sign_in::{OpenChallenges, count_challenges};

pub(crate) struct Cleanup {
    pub(crate) db: Db,
    pub(crate) challenges: Arc<OpenChallenges>,
    /// While the server has no account.
    pub(crate) first_account: Option<FirstAccount>,
    pub(crate) every: Duration,
    pub(crate) drain: Drain,
}

/// How the first account of the server is made.
pub(crate) struct FirstAccount {
    file: PathBuf,
    base: String,
    vault: Vault,
    /// The invitation that the file has.
    invite: String,
}

impl FirstAccount {
    /// Invites the first user of this server. `None`: there is an account. The file is next to the key-encryption key.
    pub(crate) async fn invited(db: &Db, base: String, key_file: &Path, vault: &Vault) -> Result<Option<Self>, Error> {
        let file = key_file.with_file_name("first-account");
        let Some(code) = for_first_account(db, vault, &base).await? else {
            remove(&file);
            return Ok(None);
        };
        say(&file, &code);
        Ok(Some(Self { file, base, vault: vault.clone(), invite: code.id }))
    }

    /// Whether the address in the file still makes the first account.
    pub(crate) async fn is_open(&self, db: &Db) -> Result<bool, Error> {
        Ok(is_first(db, &self.invite).await?)
    }

    /// Invites again: the time of the invitation is over, it was deleted, or another replica has made a new one.
    pub(crate) async fn again(&self, db: &Db) -> Result<Option<Self>, Error> {
        Self::invited(db, self.base.clone(), &self.file, &self.vault).await
    }
}

impl Cleanup {
    pub(crate) async fn run(mut self) {
        loop {
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "Expired challenges and tokens could not be deleted");
            }
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = self.drain.closing() => return,
            }
        }
    }

    async fn run_once(&mut self) -> Result<(), Error> {
        cleanup::delete_expired(&self.db).await?;
        if let Some(first) = &self.first_account
            && !first.is_open(&self.db).await?
        {
            self.first_account = first.again(&self.db).await?;
        }
        Ok(count_challenges(&self.db, &self.challenges).await?)
    }
}
