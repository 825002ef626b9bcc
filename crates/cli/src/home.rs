//! The files of the command line: the account key, and the directory that it shares with settings and tokens.
//!
//! Everything is in one directory. Secrets have mode 0600. A file is replaced by a new file that is moved into place,
//! so that a full disk or a power failure leaves either the old or the new one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_protocol::AccountKey;
use ensemble_types::ids::{MachineId, UserId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::devices::REMOVAL_LOCK;
use crate::failure::{Failure, Result};

/// The directory. Nothing is read from it yet.
#[derive(Clone, Debug)]
pub(crate) struct Home(PathBuf);

/// Whose machine it is: a user, and the key that the account began with. A server could give another account the same user id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) user: UserId,
    pub(crate) account: &'a str,
}

/// A lock between commands that run at the same time. It ends when it is dropped, or with the process.
pub(crate) struct Lock {
    _file: fs::File,
}

/// A change of keys sends a request to each person with a share, and each has a deadline.
const REQUESTS_WITHIN: Duration = Duration::from_secs(120);

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

    /// Where `ensemble up` keeps the server's data unless it is told a directory: `$XDG_DATA_HOME/ensemble`, or `data` in this
    /// directory when it was chosen, on macOS, and where earlier versions have left it.
    #[cfg(feature = "up")]
    pub(crate) fn data(&self) -> PathBuf {
        let own = self.0.join("data");
        let usual = usual_data().filter(|data| usual().as_ref() == Some(&self.0) && (data.exists() || !own.exists()));
        usual.unwrap_or(own)
    }

    /// The file with the key of this machine's runner. A machine stays the same for an account at every address of its server.
    pub(crate) fn machine_key_path(&self, owner: Owner<'_>, machine: &MachineId) -> PathBuf {
        self.machine_file(owner, machine, "key")
    }

    /// The file with the token of this machine's runner.
    pub(crate) fn machine_token_path(&self, owner: Owner<'_>, machine: &MachineId) -> PathBuf {
        self.machine_file(owner, machine, "token")
    }

    fn machine_file(&self, owner: Owner<'_>, machine: &MachineId, kind: &str) -> PathBuf {
        let account: String = owner.account.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        self.0.join("machines").join(format!("{}-{account}", owner.user)).join(format!("{machine}.{kind}"))
    }

    /// The file with the key of a machine that was linked at this server.
    pub(crate) fn linked_key_path(&self, origin: &str, machine: &MachineId) -> PathBuf {
        self.file_at(origin, machine, "key")
    }

    /// Moves the files of a machine from where earlier versions have kept them.
    pub(crate) fn adopt_machine(&self, origin: &str, owner: Owner<'_>, machine: &MachineId) -> Result<()> {
        for kind in ["key", "token"] {
            let (old, new) = (self.file_at(origin, machine, kind), self.machine_file(owner, machine, kind));
            if old.exists() && !new.exists() {
                make_directory(new.parent().unwrap_or(&self.0))
                    .and_then(|()| fs::rename(&old, &new))
                    .map_err(|error| unwritable(&new, &error))?;
            }
        }
        Ok(())
    }

    fn file_at(&self, origin: &str, machine: &MachineId, kind: &str) -> PathBuf {
        let server: String =
            origin.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        self.0.join("machines").join(server).join(format!("{machine}.{kind}"))
    }

    pub(crate) fn key(&self) -> Result<Option<AccountKey>> {
        self.read_key(&self.key_path(), "an account key")
    }

    /// A machine's key in this file.
    pub(crate) fn machine_key(&self, path: &Path) -> Result<Option<AccountKey>> {
        self.read_key(path, "a machine's key")
    }

    fn read_key(&self, path: &Path, what: &str) -> Result<Option<AccountKey>> {
        match fs::read_to_string(path) {
            Ok(text) => {
                private(path)?;
                AccountKey::from_text(&text).map(Some).ok_or_else(|| {
                    Failure::message(format!(
                        "{} is not {what}: one line, {KEY_FORM}. Replace it with your backup.",
                        path.display()
                    ))
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    /// Waits until no other command is about to create the account key. A command that creates it holds this lock until
    /// the key is stored, so that there is one key.
    pub(crate) async fn lock_account(&self) -> Result<Lock> {
        self.lock_on_a_thread("account.lock").await
    }

    /// Waits until no other command, and nothing else in this one, gives a session new keys. The holder of the lock sends requests.
    pub(crate) async fn lock_keys(&self) -> Result<Lock> {
        self.lock_within("rekey.lock", "changing the keys of sessions").await
    }

    /// Waits until no other command removes a device. The holder of the lock sends requests.
    pub(crate) async fn lock_removal(&self) -> Result<Lock> {
        self.lock_within(REMOVAL_LOCK, "removing a device").await
    }

    async fn lock_within(&self, name: &'static str, what: &str) -> Result<Lock> {
        let locked = tokio::time::timeout(REQUESTS_WITHIN, self.lock_on_a_thread(name)).await;
        locked.unwrap_or_else(|_| {
            Err(Failure::message(format!(
                "Another program of yours has been {what} for two minutes. End it, or try again later."
            )))
        })
    }

    /// A thread of its own waits: the holder of the lock may be a future of the task that asks for it.
    async fn lock_on_a_thread(&self, name: &'static str) -> Result<Lock> {
        let home = self.clone();
        let locked = tokio::task::spawn_blocking(move || home.lock(name)).await;
        locked.map_err(|error| Failure::message(format!("{name} could not be locked: {error}.")))?
    }

    /// Fails if the directory is not writable, or if others can write to it. Checked before a key is created that must not be lost.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_own()?;
        let probe = self.0.join("probe");
        self.write_secret(&probe, b"")?;
        fs::remove_file(&probe).map_err(|error| unwritable(&probe, &error))
    }

    /// Who can write to the directory can replace a key in it. Many systems give each user a group of their own, with the same number.
    fn check_own(&self) -> Result<()> {
        let is_open = |found: &fs::Metadata| {
            let writers = if found.gid() == found.uid() { 0o002 } else { 0o022 };
            found.mode() & writers != 0
        };
        match fs::metadata(&self.0) {
            Ok(found) if is_open(&found) => Err(Failure::message(format!(
                "Other users of this machine can write to {0}, so they could replace a key there. Run `chmod 700 {0}`.",
                self.0.display()
            ))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(&self.0, &error)),
            _ => Ok(()),
        }
    }

    /// Stores a key.
    pub(crate) fn write_key(&self, path: &Path, key: &AccountKey) -> Result<()> {
        self.check_own()?;
        self.write_secret(path, key.to_text().as_bytes())
    }

    /// Stores a new account key. Never replaces a key, because that would destroy an account.
    pub(crate) fn store_key(&self, key: &AccountKey, _lock: &Lock) -> Result<()> {
        let (path, new) = (self.key_path(), self.0.join("account.key.new"));
        self.write_key(&new, key)?;
        // A link, unlike a move, fails when there is a key.
        let linked = fs::hard_link(&new, &path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::message(format!(
                "There is an account key at {} that was not there a moment ago. Nothing was changed. Run the command again.",
                path.display()
            )),
            _ => unwritable(&path, &error),
        });
        fs::remove_file(&new).map_err(|error| unwritable(&new, &error))?;
        linked
    }

    /// Holds the thread until the lock with this name is free, so it is for what sends no request. A directory that is missing is
    /// created.
    pub(crate) fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.0.join(name);
        let locked = make_directory(&self.0).and_then(|()| {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock().map(|()| file)
        });
        locked.map(|file| Lock { _file: file }).map_err(|error| unwritable(&path, &error))
    }

    /// The same, unless another command has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        let path = self.0.join(name);
        let opened = make_directory(&self.0)
            .and_then(|()| fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path));
        let file = opened.map_err(|error| unwritable(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(unwritable(&path, &error)),
        }
    }

    pub(crate) fn write_secret(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error: io::Error| unwritable(path, &error);
        make_directory(path.parent().unwrap_or(&self.0)).map_err(failed)?;
        let new = path.with_extension(format!("new{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(&path, &error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Failure::message(format!("{} is damaged ({error}). Move it away and log in again.", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error)),
        }
    }

    pub(crate) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(value).map_err(|error| Failure::message(error.to_string()))?;
        self.write_secret(&self.0.join(name), &bytes)
    }
}

/// The form of an account key, for error messages.
pub(crate) const KEY_FORM: &str = "ensemble-account-key-v1: and 43 characters";

fn make_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
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

/// `$XDG_DATA_HOME/ensemble` or `~/.local/share/ensemble`. macOS has one place for data and configuration.
#[cfg(feature = "up")]
fn usual_data() -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("ensemble"))
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
