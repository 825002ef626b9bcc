//! The file that has the address for the first account of a server, until there is one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ensemble_protocol::seal::InviteCode;
use ensemble_store_kit::Db;

use crate::error::Error;
use crate::keys::Vault;
use crate::operations::invites::{for_first_account, is_first};

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

/// Says how the first account is made, in the log and in the file of this user.
fn say(file: &Path, code: &InviteCode) {
    tracing::info!(
        address = code.address().as_str(),
        file = %file.display(),
        "No account exists yet. `ensemble join` makes the first one with this address. Another one follows after seven days"
    );
    if let Err(error) = write_private(file, &code.address()) {
        tracing::warn!(file = %file.display(), %error, "The address for the first account stands in the log only");
    }
}

fn remove(file: &Path) {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "The address for the first account is over, and its file stays");
        }
        _ => {}
    }
}

fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    let _left_over = fs::remove_file(&new);
    let mut to = fs::File::options().create_new(true).write(true).mode(0o600).open(&new)?;
    to.write_all(text.as_bytes())?;
    fs::rename(new, file)
}
