//! The files of the command line: the account key, the server, its token, this machine, and the keys of other users.
//!
//! Everything is in one directory. Secrets have mode 0600. A file is replaced by a new file that is moved into place,
//! so that a full disk or a power failure leaves either the old or the new one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ensemble_client::AccountKey;
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The directory. Nothing is read from it yet.
#[derive(Clone, Debug)]
pub(crate) struct Home(PathBuf);

/// The settings that are not secret.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Settings {
    /// The server of the last login.
    pub(crate) server: Option<String>,
    /// This machine's id, by server origin.
    pub(crate) machines: BTreeMap<String, MachineId>,
    /// The account key that was first seen for a user, by server origin.
    pub(crate) known_users: BTreeMap<String, BTreeMap<String, String>>,
}

/// The token of the last sign-in. A secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredToken {
    pub(crate) origin: String,
    pub(crate) public_key: String,
    pub(crate) user_id: UserId,
    pub(crate) token: String,
    pub(crate) expires_at: Timestamp,
}

impl Home {
    /// `chosen`, or the default directory of the system.
    pub(crate) fn find(chosen: Option<PathBuf>) -> Result<Self> {
        chosen.or_else(usual).map(Self).ok_or_else(|| {
            Failure::message("There is no home directory for the account key. Set ENSEMBLE_HOME to a directory.")
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn key_path(&self) -> PathBuf {
        self.0.join("account.key")
    }

    /// The file with the token of this machine's runner for one server.
    pub(crate) fn machine_token_path(&self, origin: &str, machine: &MachineId) -> PathBuf {
        let server: String =
            origin.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        self.0.join("machines").join(server).join(format!("{machine}.token"))
    }

    pub(crate) fn key(&self) -> Result<Option<AccountKey>> {
        let path = self.key_path();
        match fs::read_to_string(&path) {
            Ok(text) => {
                private(&path)?;
                AccountKey::from_text(&text).map(Some).ok_or_else(|| {
                    Failure::message(format!("{} is not an account key. Replace it with your backup.", path.display()))
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    /// Fails if the directory is not writable. Checked before a key is created that must not be lost.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let probe = self.0.join("probe");
        self.write_secret(&probe, b"")?;
        fs::remove_file(&probe).map_err(|error| unwritable(&probe, &error))
    }

    /// Stores a new account key. Never replaces a key, because that would destroy an account.
    pub(crate) fn store_key(&self, key: &AccountKey) -> Result<()> {
        let path = self.key_path();
        if path.exists() {
            return Err(Failure::message(format!(
                "An account key exists at {}. Move it away first if you want another account.",
                path.display()
            )));
        }
        self.write_secret(&path, key.to_text().as_bytes())
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        Ok(self.read_json("settings.json")?.unwrap_or_default())
    }

    pub(crate) fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let path = self.0.join("settings.lock");
        let locked = Self::make_directory(&self.0).and_then(|()| {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock().map(|()| file)
        });
        // The lock is held until the new settings are in place, because commands can run at the same time.
        let _lock = locked.map_err(|error| unwritable(&path, &error))?;
        let mut settings = self.settings()?;
        change(&mut settings);
        self.write_json("settings.json", &settings)
    }

    pub(crate) fn token(&self) -> Option<StoredToken> {
        // A token that cannot be read is ignored, because a sign-in creates another one.
        self.read_json("token.json").ok().flatten()
    }

    pub(crate) fn store_token(&self, token: &StoredToken) -> Result<()> {
        self.write_json("token.json", token)
    }

    pub(crate) fn forget_token(&self) -> Result<()> {
        let path = self.0.join("token.json");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(&path, &error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn write_secret(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error: io::Error| unwritable(path, &error);
        Self::make_directory(path.parent().unwrap_or(&self.0)).map_err(failed)?;
        let new = path.with_extension(format!("new{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    }

    fn make_directory(directory: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
    }

    fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Failure::message(format!("{} is damaged ({error}). Remove it and log in again.", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(value).map_err(|error| Failure::message(error.to_string()))?;
        self.write_secret(&self.0.join(name), &bytes)
    }
}

/// `$XDG_CONFIG_HOME/ensemble` or `~/.config/ensemble`; on macOS `~/Library/Application Support/ensemble`.
fn usual() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if cfg!(target_os = "macos") {
        return home().map(|home| home.join("Library/Application Support/ensemble"));
    }
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    configured.or_else(|| home().map(|home| home.join(".config"))).map(|config| config.join("ensemble"))
}

/// Fails if other users can read the key, because it is then no longer secret.
fn private(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(|error| unreadable(path, &error))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Failure::message(format!(
        "Other users of this machine can read {}. Run `chmod 600` on it. If another user may have read it, create a new account.",
        path.display()
    )))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::message(format!(
        "Cannot write {}: {error}. Set ENSEMBLE_HOME to a directory that you can write to.",
        path.display()
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::message(format!("Cannot read {}: {error}.", path.display()))
}
