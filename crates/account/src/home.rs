//! The directory of an account on this computer: its key, settings, tokens, and what was seen and begun.
//!
//! Everything is in one directory. Secrets have mode 0600. A file is replaced by a new file that is moved into place,
//! so that a full disk or a power failure leaves either the old or the new one.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_protocol::AccountKey;
use ensemble_types::ids::{MachineId, UserId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::devices::REMOVAL_LOCK;
use crate::error::{Error, Result};
use crate::notice::{Notice, Notices};

/// The directory, this computer, and where notices go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
    computer: Arc<Computer>,
    notices: Notices,
}

/// What this computer calls itself in the account's list. Other devices with these names make it end in a number.
#[derive(Clone, Debug)]
pub struct Computer {
    /// The device, for example `ada@desk`.
    pub device: String,
    /// The machine, for example `desk`.
    pub host: String,
}

/// Whose machine it is: a user, and the key that the account began with. A server could give another account the same user id.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub user: UserId,
    pub account: &'a str,
}

/// A lock between commands that run at the same time. It ends when it is dropped, or with the process.
pub struct Lock {
    _file: fs::File,
}

/// A change of keys sends a request to each person with a share, and each has a deadline.
const REQUESTS_WITHIN: Duration = Duration::from_secs(120);

impl Computer {
    /// Both names.
    pub fn named(name: &str) -> Self {
        Self { device: name.to_owned(), host: name.to_owned() }
    }
}

impl Home {
    /// Nothing is read or created yet.
    pub fn new(path: PathBuf, computer: Computer, notices: Notices) -> Self {
        Self { path, computer: Arc::new(computer), notices }
    }

    #[cfg(test)]
    pub(crate) fn of_test(path: PathBuf) -> Self {
        Self::new(path, Computer::named("desk"), Notices::none())
    }

    pub fn computer(&self) -> &Computer {
        &self.computer
    }

    pub(crate) fn say(&self, notice: Notice) {
        self.notices.say(&notice);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn key_path(&self) -> PathBuf {
        self.path.join("account.key")
    }

    /// The file with the key of this machine's runner. A machine stays the same for an account at every address of its server.
    pub fn machine_key_path(&self, owner: Owner<'_>, machine: &MachineId) -> PathBuf {
        self.machine_file(owner, machine, "key")
    }

    /// The file with the token of this machine's runner.
    pub fn machine_token_path(&self, owner: Owner<'_>, machine: &MachineId) -> PathBuf {
        self.machine_file(owner, machine, "token")
    }

    fn machine_file(&self, owner: Owner<'_>, machine: &MachineId, kind: &str) -> PathBuf {
        let account: String = owner.account.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        self.path.join("machines").join(format!("{}-{account}", owner.user)).join(format!("{machine}.{kind}"))
    }

    /// The file with the key of a machine that was linked at this server.
    pub fn linked_key_path(&self, origin: &str, machine: &MachineId) -> PathBuf {
        self.file_at(origin, machine, "key")
    }

    /// Moves the files of a machine from where earlier versions have kept them.
    pub fn adopt_machine(&self, origin: &str, owner: Owner<'_>, machine: &MachineId) -> Result<()> {
        for kind in ["key", "token"] {
            let (old, new) = (self.file_at(origin, machine, kind), self.machine_file(owner, machine, kind));
            if old.exists() && !new.exists() {
                make_directory(new.parent().unwrap_or(&self.path))
                    .and_then(|()| fs::rename(&old, &new))
                    .map_err(Error::unwritable(&new))?;
            }
        }
        Ok(())
    }

    fn file_at(&self, origin: &str, machine: &MachineId, kind: &str) -> PathBuf {
        let server: String =
            origin.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        self.path.join("machines").join(server).join(format!("{machine}.{kind}"))
    }

    pub fn key(&self) -> Result<Option<AccountKey>> {
        self.read_key(&self.key_path(), "an account key")
    }

    /// A machine's key in this file.
    pub fn machine_key(&self, path: &Path) -> Result<Option<AccountKey>> {
        self.read_key(path, "a machine's key")
    }

    fn read_key(&self, path: &Path, what: &'static str) -> Result<Option<AccountKey>> {
        match fs::read_to_string(path) {
            Ok(text) => {
                private(path)?;
                let key = AccountKey::from_text(&text);
                key.map(Some).ok_or_else(|| Error::NotAKey { path: path.to_owned(), what })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::unreadable(path)(error)),
        }
    }

    /// Waits until no other command is about to create the account key. A command that creates it holds this lock until
    /// the key is stored, so that there is one key.
    pub async fn lock_account(&self) -> Result<Lock> {
        self.lock_on_a_thread("account.lock").await
    }

    /// Waits until no other command, and nothing else in this one, gives a session new keys. The holder of the lock sends requests.
    pub(crate) async fn lock_keys(&self) -> Result<Lock> {
        self.lock_within("rekey.lock", "changing the keys of sessions").await
    }

    /// Waits until no other command removes a device. The holder of the lock sends requests.
    pub async fn lock_removal(&self) -> Result<Lock> {
        self.lock_within(REMOVAL_LOCK, "removing a device").await
    }

    async fn lock_within(&self, name: &'static str, what: &'static str) -> Result<Lock> {
        let locked = tokio::time::timeout(REQUESTS_WITHIN, self.lock_on_a_thread(name)).await;
        locked.unwrap_or(Err(Error::Locked(what)))
    }

    /// A thread of its own waits: the holder of the lock may be a future of the task that asks for it.
    async fn lock_on_a_thread(&self, name: &'static str) -> Result<Lock> {
        let home = self.clone();
        let locked = tokio::task::spawn_blocking(move || home.lock(name)).await;
        locked.map_err(|error| Error::Form(format!("{name} could not be locked: {error}.")))?
    }

    /// Fails if the directory is not writable, or if others can write to it. Checked before a key is created that must not be lost.
    pub fn check_writable(&self) -> Result<()> {
        self.check_own()?;
        let probe = self.path.join("probe");
        self.write_secret(&probe, b"")?;
        fs::remove_file(&probe).map_err(Error::unwritable(&probe))
    }

    /// Who can write to the directory can replace a key in it. Many systems give each user a group of their own, with the same number.
    fn check_own(&self) -> Result<()> {
        let is_open = |found: &fs::Metadata| {
            let writers = if found.gid() == found.uid() { 0o002 } else { 0o022 };
            found.mode() & writers != 0
        };
        match fs::metadata(&self.path) {
            Ok(found) if is_open(&found) => Err(Error::WritableByOthers(self.path.clone())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::unreadable(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Stores a key.
    pub fn write_key(&self, path: &Path, key: &AccountKey) -> Result<()> {
        self.check_own()?;
        self.write_secret(path, key.to_text().as_bytes())
    }

    /// Stores a new account key. Never replaces a key, because that would destroy an account.
    pub fn store_key(&self, key: &AccountKey, _lock: &Lock) -> Result<()> {
        let (path, new) = (self.key_path(), self.path.join("account.key.new"));
        self.write_key(&new, key)?;
        // A link, unlike a move, fails when there is a key.
        let linked = fs::hard_link(&new, &path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::KeyAppeared(path.clone()),
            _ => Error::unwritable(&path)(error),
        });
        fs::remove_file(&new).map_err(Error::unwritable(&new))?;
        linked
    }

    /// Holds the thread until the lock with this name is free, so it is for what sends no request. A directory that is missing is
    /// created.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.path.join(name);
        let locked = make_directory(&self.path).and_then(|()| {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock().map(|()| file)
        });
        locked.map(|file| Lock { _file: file }).map_err(Error::unwritable(&path))
    }

    /// The same, unless another command has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        let path = self.path.join(name);
        let opened = make_directory(&self.path)
            .and_then(|()| fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path));
        let file = opened.map_err(Error::unwritable(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(Error::unwritable(&path)(error)),
        }
    }

    pub fn write_secret(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |error: io::Error| Error::unwritable(path)(error);
        make_directory(path.parent().unwrap_or(&self.path)).map_err(failed)?;
        let new = path.with_extension(format!("new{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::unwritable(&path)(error)),
            _ => Ok(()),
        }
    }

    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|why| Error::Damaged { path, why }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::unreadable(&path)(error)),
        }
    }

    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(value).map_err(|error| Error::Form(error.to_string()))?;
        self.write_secret(&self.path.join(name), &bytes)
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Fails if other users can read the key, because it is then no longer secret.
fn private(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(Error::unreadable(path))?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::ReadableByOthers(path.to_owned()))
}
