//! What an account keeps on this computer: its key, settings, tokens, and what was seen and begun.
//!
//! Everything is in one [`Store`]. The command line has it in a directory of its user alone.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ensemble_protocol::AccountKey;
use ensemble_types::ids::{MachineId, UserId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::computer::Computer;
use crate::devices::REMOVAL_LOCK;
use crate::error::{Error, Result};
use crate::notice::{Notice, Notices};
use crate::store::{Edit, FileStore, Lock, MemoryStore, Store};

/// The records, this computer, and where notices go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Home {
    /// The directory of the records, for programs that read a file in it.
    path: PathBuf,
    store: Arc<dyn Store>,
    computer: Arc<Computer>,
    notices: Notices,
}

/// Whose machine it is: a user, and the key that the account began with. A server could give another account the same user id.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub user: UserId,
    pub account: &'a str,
}

/// The record of the account key.
const KEY: &str = "account.key";
/// A change of keys sends a request to each person with a share, and each has a deadline.
const REQUESTS_WITHIN: Duration = Duration::from_secs(120);
/// After this time a person learns what is waited for.
const WAITED_FOR: Duration = Duration::from_secs(3);

impl Home {
    /// Records in this directory. Nothing is read or created yet.
    pub fn new(path: PathBuf, computer: Computer, notices: Notices) -> Self {
        let store = Arc::new(FileStore::new(path.clone()));
        Self { path, store, computer: Arc::new(computer), notices }
    }

    /// Records in another store. It has no directory, so that a runner finds no file of a machine's key or token. Errors name its records
    /// as if they were in this one.
    pub fn on(store: Arc<dyn Store>, computer: Computer, notices: Notices) -> Self {
        Self { path: PathBuf::from("the program's store"), store, computer: Arc::new(computer), notices }
    }

    /// Records that end with the program.
    pub fn in_memory(computer: Computer, notices: Notices) -> Self {
        Self::on(Arc::new(MemoryStore::default()), computer, notices)
    }

    #[cfg(test)]
    pub(crate) fn of_test(path: PathBuf) -> Self {
        Self::new(path, Computer::named("desk"), Notices::none())
    }

    #[cfg(test)]
    pub(crate) fn of_test_in_memory() -> Self {
        Self::in_memory(Computer::named("desk"), Notices::none())
    }

    /// What this computer calls itself.
    pub fn computer(&self) -> &Computer {
        &self.computer
    }

    pub(crate) fn say(&self, notice: Notice) {
        self.notices.say(&notice);
    }

    /// Where the records are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The file with the account key.
    pub fn key_path(&self) -> PathBuf {
        self.path.join(KEY)
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
            let (old, new) = (self.name_of(&old)?, self.name_of(&new)?);
            let Some(bytes) = self.store.get(old)? else { continue };
            // Another program may have moved it, and have made a newer one since.
            let mut is_moved = false;
            let adopt = |found: Result<Option<&[u8]>>| {
                let found = found?;
                is_moved = found.is_none_or(|found| found == bytes);
                Ok(if found.is_some() { Edit::Keep } else { Edit::Put(bytes.clone()) })
            };
            self.store.update(new, Box::new(adopt))?;
            if is_moved {
                self.remove(old)?;
            }
        }
        Ok(())
    }

    fn file_at(&self, origin: &str, machine: &MachineId, kind: &str) -> PathBuf {
        let server: String =
            origin.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        self.path.join("machines").join(server).join(format!("{machine}.{kind}"))
    }

    /// The account key, if there is one.
    pub fn key(&self) -> Result<Option<AccountKey>> {
        self.read_key(&self.key_path(), "an account key")
    }

    /// A machine's key in this file.
    pub fn machine_key(&self, path: &Path) -> Result<Option<AccountKey>> {
        self.read_key(path, "a machine's key")
    }

    /// Keeps a machine's key that was removed next to its file, before another one takes its place. Returns where it is.
    pub(crate) fn keep_removed_key(&self, path: &Path, removed: &AccountKey) -> Result<PathBuf> {
        let public: String = removed.public_key().chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        let kept = path.with_extension(format!("removed-{public}"));
        self.write_key(&kept, removed)?;
        Ok(kept)
    }

    fn read_key(&self, path: &Path, what: &'static str) -> Result<Option<AccountKey>> {
        let Some(bytes) = self.store.get(self.name_of(path)?)? else { return Ok(None) };
        let key = std::str::from_utf8(&bytes).ok().and_then(AccountKey::from_text);
        key.map(Some).ok_or_else(|| Error::NotAKey { path: path.to_owned(), what })
    }

    /// Waits until no other command is about to create the account key. A command that creates it holds this lock until
    /// the key is stored, so that there is one key.
    pub async fn lock_account(&self) -> Result<Lock> {
        self.store.lock("account.lock").await
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
        let mut lock = pin!(self.store.lock(name));
        if let Ok(locked) = timeout(WAITED_FOR, &mut lock).await {
            return locked;
        }
        self.say(Notice::WaitingForProgram(what));
        timeout(REQUESTS_WITHIN - WAITED_FOR, lock).await.unwrap_or(Err(Error::Locked(what)))
    }

    /// Fails if nothing can be written, or if others can write. Checked before a key is created that must not be lost.
    pub fn check_writable(&self) -> Result<()> {
        self.store.check()
    }

    /// Stores a key.
    pub fn write_key(&self, path: &Path, key: &AccountKey) -> Result<()> {
        self.write_secret(path, key.to_text().as_bytes())
    }

    /// Stores a new account key. Never replaces a key, because that would destroy an account.
    pub fn store_key(&self, key: &AccountKey, _lock: &Lock) -> Result<()> {
        let new = key.to_text().as_bytes().to_vec();
        self.store.update(
            KEY,
            Box::new(|found| match found? {
                Some(_) => Err(Error::KeyAppeared(self.key_path())),
                None => Ok(Edit::New(new)),
            }),
        )
    }

    /// Writes a file in the directory of the records, which only its user reads.
    pub fn write_secret(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.store.replace(self.name_of(path)?, Edit::Put(bytes.to_vec()))
    }

    /// The name of the record in this file.
    pub(crate) fn name_of<'p>(&self, path: &'p Path) -> Result<&'p str> {
        let name = path.strip_prefix(&self.path).ok().and_then(Path::to_str);
        name.ok_or_else(|| Error::Form(format!("{} is not in {}.", path.display(), self.path.display())))
    }

    /// Removes a record, if there is one.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.store.replace(name, Edit::Remove)
    }

    /// What a record says.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        self.store.get(name)?.map(|bytes| self.parsed(name, &bytes)).transpose()
    }

    pub(crate) fn parsed<T: DeserializeOwned>(&self, name: &str, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|why| Error::Damaged { path: self.path.join(name), why })
    }

    /// Replaces a record, whatever it says.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        self.store.replace(name, Edit::Put(json(value)?))
    }

    /// Changes a record in one step, and writes it if `change` does change it. One that is missing is the default.
    ///
    /// # Errors
    /// `change` failed, or the record is damaged, or it cannot be read or written. Then it is as it was before.
    pub fn update_json<T, R>(&self, name: &str, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        self.change_json(name, Err, change)
    }

    /// The same for a record that tells little: one that is damaged or cannot be read is as good as none.
    pub fn renew_json<T, R>(&self, name: &str, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        self.change_json(name, |_| Ok(T::default()), change)
    }

    /// `damaged` says what stands for a record that is damaged or cannot be read.
    pub(crate) fn change_json<T, R>(
        &self,
        name: &str,
        damaged: impl FnOnce(Error) -> Result<T>,
        change: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        let mut changed = None;
        self.store.update(
            name,
            Box::new(|found| {
                let (mut value, before) = match found {
                    Ok(Some(bytes)) => (self.parsed(name, bytes).or_else(damaged)?, bytes.to_vec()),
                    Ok(None) => (T::default(), json(&T::default())?),
                    Err(unreadable) => (damaged(unreadable)?, Vec::new()),
                };
                changed = Some(change(&mut value)?);
                let after = json(&value)?;
                Ok(if after == before { Edit::Keep } else { Edit::Put(after) })
            }),
        )?;
        changed.ok_or_else(|| Error::Form(format!("{name} was not changed.")))
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(value).map_err(|error| Error::Form(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_another_program_keeps_is_named_and_then_given_up() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = said.clone();
        let notices = Notices::to(move |notice: &Notice| kept.lock().unwrap().push(format!("{notice:?}")));
        let home = Home::in_memory(Computer::named("desk"), notices);
        let held = home.lock_keys().await.unwrap();
        assert!(said.lock().unwrap().is_empty());
        let began = tokio::time::Instant::now();
        let refused = home.lock_keys().await.err();
        assert!(matches!(refused, Some(Error::Locked("changing the keys of sessions"))), "{refused:?}");
        assert_eq!(began.elapsed(), REQUESTS_WITHIN);
        assert_eq!(*said.lock().unwrap(), [r#"WaitingForProgram("changing the keys of sessions")"#]);
        drop(held);
        home.lock_keys().await.unwrap();
    }

    #[tokio::test]
    async fn a_home_in_memory_keeps_keys_and_refuses_a_second_one() {
        let home = Home::of_test_in_memory();
        let (key, other) = (AccountKey::generate(), AccountKey::generate());
        home.check_writable().unwrap();
        let lock = home.lock_account().await.unwrap();
        home.store_key(&key, &lock).unwrap();
        assert!(matches!(home.store_key(&other, &lock), Err(Error::KeyAppeared(_))));
        assert_eq!(home.key().unwrap().unwrap().public_key(), key.public_key());
        let path = home.linked_key_path("https://one", &"laptop".parse().unwrap());
        home.write_key(&path, &other).unwrap();
        assert_eq!(home.machine_key(&path).unwrap().unwrap().public_key(), other.public_key());
        assert!(home.machine_key(Path::new("/elsewhere/a.key")).is_err());
        let again = home.store_key(&other, &lock).unwrap_err().to_string();
        assert!(again.starts_with("There is an account key in the program's store/account.key that"), "{again}");
    }

    #[test]
    fn a_record_is_written_only_when_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::of_test(place.path().join("home"));
        type Numbers = BTreeMap<String, u32>;
        let set = |number| home.update_json("n.json", |all: &mut Numbers| Ok(all.insert("a".to_owned(), number)));
        home.update_json("n.json", |_: &mut Numbers| Ok(())).unwrap();
        assert!(!home.path().join("n.json").exists(), "it is still the default");
        assert_eq!((set(1).unwrap(), set(2).unwrap()), (None, Some(1)));
        let written = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let before = written(&home.path().join("n.json"));
        set(2).unwrap();
        assert_eq!(written(&home.path().join("n.json")), before);
        set(3).unwrap();
        assert_ne!(written(&home.path().join("n.json")), before);
        std::fs::write(home.path().join("n.json"), "{").unwrap();
        assert!(matches!(set(4), Err(Error::Damaged { .. })));
        let renew = || home.renew_json("n.json", |all: &mut Numbers| Ok(all.insert("b".to_owned(), 1)));
        renew().unwrap();
        assert_eq!(home.read_json::<Numbers>("n.json").unwrap().unwrap().len(), 1);

        // A link to itself cannot be read, not even by root.
        std::fs::remove_file(home.path().join("n.json")).unwrap();
        std::os::unix::fs::symlink("n.json", home.path().join("n.json")).unwrap();
        assert!(matches!(set(5), Err(Error::Unreadable { .. })));
        assert!(home.path().join("n.json").is_symlink(), "it is as it was before");
        assert_eq!(renew().unwrap(), None);
        assert_eq!(home.read_json::<Numbers>("n.json").unwrap().unwrap().len(), 1);
    }
}
