//! What the command line remembers: the account key, the server, its token, this machine, and whose keys it has seen.
//!
//! Everything is in one directory; what is secret has mode 0600 and is written to a new file that then takes the old
//! one's place, so that a full disk or a power cut leaves one of the two.

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

/// The directory, and nothing read from it yet.
#[derive(Clone, Debug)]
pub(crate) struct Home(PathBuf);

/// What is not secret.
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
pub(crate) struct KeptToken {
    pub(crate) origin: String,
    pub(crate) public_key: String,
    pub(crate) user_id: UserId,
    pub(crate) token: String,
    pub(crate) expires_at: Timestamp,
}

impl Home {
    /// `chosen`, or the place where the system wants such things.
    pub(crate) fn find(chosen: Option<PathBuf>) -> Result<Self> {
        chosen.or_else(usual).map(Self).ok_or_else(|| {
            Failure::said("There is no home directory to keep the account key in. Set ENSEMBLE_HOME to a directory.")
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn key_path(&self) -> PathBuf {
        self.0.join("account.key")
    }

    /// Where the token of this machine's runner is kept, for a server.
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
                    Failure::said(format!("{} is not an account key. Put your backup in its place.", path.display()))
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    /// Whether something can be kept here. To be asked before there is something that must not be lost.
    pub(crate) fn can_keep(&self) -> Result<()> {
        let probe = self.0.join("probe");
        self.write_secret(&probe, b"")?;
        fs::remove_file(&probe).map_err(|error| unwritable(&probe, &error))
    }

    /// Keeps a new account key. Never replaces one: that would be the end of an account.
    pub(crate) fn keep_key(&self, key: &AccountKey) -> Result<()> {
        let path = self.key_path();
        if path.exists() {
            return Err(Failure::said(format!(
                "There is an account key already, at {}. Move it away first if you want another account.",
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
        // Held until the new settings are in place: commands run side by side.
        let _lock = locked.map_err(|error| unwritable(&path, &error))?;
        let mut settings = self.settings()?;
        change(&mut settings);
        self.write_json("settings.json", &settings)
    }

    pub(crate) fn token(&self) -> Option<KeptToken> {
        // A token that cannot be read is as good as none: another is one signature away.
        self.read_json("token.json").ok().flatten()
    }

    pub(crate) fn keep_token(&self, token: &KeptToken) -> Result<()> {
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
                Failure::said(format!("{} is damaged ({error}). Remove it and log in again.", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(value).map_err(|error| Failure::said(error.to_string()))?;
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

/// A key that others on this machine can read is not a secret any more.
fn private(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(|error| unreadable(path, &error))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Failure::said(format!(
        "Others can read {}. If nobody has, take the right away with `chmod 600`; if in doubt, make a new account.",
        path.display()
    )))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::said(format!(
        "Cannot write {}: {error}. Give ENSEMBLE_HOME a directory that you can write to.",
        path.display()
    ))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::said(format!("Cannot read {}: {error}.", path.display()))
}
