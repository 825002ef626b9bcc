//! Records as files in a directory of its user alone.
//!
//! A file is replaced by a new one that is moved into place, so that a full disk or a power failure leaves either the old or the new one.
//! A program that changes a record holds a lock file in the directory: `X.lock` for `X.json` and for all files in the folder `X`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Change, Edit, Lock, Store, check_name};
use crate::error::{Error, Result};

/// A lock that is held is tried again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A directory of mode 0700 with files of mode 0600.
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// Nothing is read or created yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.directory.join(name))
    }

    /// Opens a lock file. A directory that is missing is created.
    fn open_lock(&self, name: &str) -> Result<(PathBuf, File)> {
        let path = self.path(name)?;
        let opened = make_folders(&self.directory)
            .and_then(|()| OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path));
        opened.map_err(Error::unwritable(&path)).map(|file| (path, file))
    }

    /// Holds the thread until no other program changes these records. That is a matter of moments.
    fn lock_records(&self, name: &str) -> Result<File> {
        check_name(name)?;
        let lock = match name.split_once('/') {
            Some((folder, _)) => folder,
            None => name.strip_suffix(".json").unwrap_or("files"),
        };
        let (path, file) = self.open_lock(&format!("{lock}.lock"))?;
        file.lock().map_err(Error::unwritable(&path))?;
        Ok(file)
    }

    /// Who can write to the directory can replace a key in it. Many systems give each user a group of their own, with the same number.
    fn check_own(&self) -> Result<()> {
        let is_open = |found: &fs::Metadata| {
            let writers = if found.gid() == found.uid() { 0o002 } else { 0o022 };
            found.mode() & writers != 0
        };
        match fs::metadata(&self.directory) {
            Ok(found) if is_open(&found) => Err(Error::WritableByOthers(self.directory.clone())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::unreadable(&self.directory)(error)),
            _ => Ok(()),
        }
    }

    /// The caller holds the lock.
    fn edit(&self, path: &Path, edit: Edit) -> Result<()> {
        match edit {
            Edit::Keep => Ok(()),
            Edit::Put(bytes) => self.write(path, &bytes, false),
            Edit::New(bytes) => self.write(path, &bytes, true),
            Edit::Remove => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::unwritable(path)(error)),
                Err(_) => Ok(()),
                Ok(()) => sync_folder(path.parent().unwrap_or(&self.directory)).map_err(Error::unwritable(path)),
            },
        }
    }

    /// Writes a new file, which then takes the place of the old one.
    fn write(&self, path: &Path, bytes: &[u8], is_new: bool) -> Result<()> {
        if is_key(path) {
            self.check_own()?;
        }
        let folder = path.parent().unwrap_or(&self.directory);
        let new = path.with_extension(format!("new{}", std::process::id()));
        let write = || {
            make_folders(folder)?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes).and_then(|()| file.sync_all())?;
            if is_new {
                // A link, unlike a move, fails when there is a file.
                let linked = fs::hard_link(&new, path);
                fs::remove_file(&new).and(linked)?;
            } else {
                fs::rename(&new, path)?;
            }
            sync_folder(folder)
        };
        write().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists if is_new => Error::KeyAppeared(path.to_owned()),
            _ => Error::unwritable(path)(error),
        })
    }
}

impl Store for FileStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name)?;
        match fs::read(&path) {
            Ok(bytes) => {
                if is_key(&path) {
                    check_private(&path)?;
                }
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::unreadable(&path)(error)),
        }
    }

    fn update(&self, name: &str, change: Change<'_>) -> Result<()> {
        let path = self.path(name)?;
        let _held = self.lock_records(name)?;
        let edit = match self.get(name) {
            Ok(found) => change(Ok(found.as_deref())),
            Err(why) => change(Err(why)),
        };
        self.edit(&path, edit?)
    }

    fn replace(&self, name: &str, edit: Edit) -> Result<()> {
        let path = self.path(name)?;
        let _held = self.lock_records(name)?;
        self.edit(&path, edit)
    }

    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Lock>> {
        let lock = async move {
            loop {
                match self.try_lock(name)? {
                    Some(lock) => return Ok(lock),
                    None => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        lock.boxed()
    }

    fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        let (path, file) = self.open_lock(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock::holding(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::unwritable(&path)(error)),
        }
    }

    fn check(&self) -> Result<()> {
        self.check_own()?;
        self.update("probe", Box::new(|_| Ok(Edit::Put(Vec::new()))))?;
        self.update("probe", Box::new(|_| Ok(Edit::Remove)))
    }
}

fn is_key(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "key")
}

/// Fails if other users can read the key, because it is then no longer secret.
fn check_private(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(Error::unreadable(path))?.mode();
    if mode & 0o077 == 0 { Ok(()) } else { Err(Error::ReadableByOthers(path.to_owned())) }
}

/// Makes what is missing, the outermost first.
fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let around = folder.parent().filter(|around| !around.as_os_str().is_empty());
    if let Some(around) = around {
        make_folders(around)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        // Another program was faster.
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(around.unwrap_or(Path::new("."))),
    }
}

/// What was created, moved or removed in it is durable then. A folder that this user cannot list is not this program's, and some file
/// systems (CIFS, FUSE) do not sync folders.
fn sync_folder(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(folder).and_then(|opened| opened.sync_all()) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_and_folders_are_their_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("a/home");
        let store = FileStore::new(home.clone());
        store.update("b/c/d.json", Box::new(|_| Ok(Edit::Put(b"1".to_vec())))).unwrap();
        store.check().unwrap();
        assert_eq!([mode(&home), mode(&home.join("b")), mode(&home.join("b/c"))], [0o700; 3]);
        assert_eq!([mode(&home.join("b/c/d.json")), mode(&home.join("b.lock"))], [0o600; 2]);
        let files = fs::read_dir(home.join("b/c")).unwrap().count();
        assert!(files == 1 && !home.join("probe").exists(), "nothing else is left");
    }

    #[test]
    fn a_key_that_others_could_read_or_replace_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (home, key) = (place.path().join("home"), place.path().join("home/a.key"));
        let store = FileStore::new(home.clone());
        let put = |name| store.update(name, Box::new(|_| Ok(Edit::Put(b"1".to_vec()))));
        put("a.key").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(store.get("a.key"), Err(Error::ReadableByOthers(_))));
        store.replace("a.key", Edit::Remove).unwrap();
        assert!(!key.exists(), "it can be removed all the same");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o707)).unwrap();
        assert!(matches!(put("b.key"), Err(Error::WritableByOthers(_))) && put("b.json").is_ok());
        assert!(matches!(store.check(), Err(Error::WritableByOthers(_))));
    }
}
