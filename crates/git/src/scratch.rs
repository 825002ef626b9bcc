//! A folder for what git writes during a comparison.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Objects of an earlier snapshot.
    earlier: Option<PathBuf>,
}

impl Scratch {
    /// # Errors
    /// It cannot be made.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        private_dir(&path.join("objects"))?;
        Ok(Self { path, earlier: None })
    }

    /// Has git find the objects of an earlier snapshot in this folder.
    pub fn read_from(&mut self, objects: PathBuf) {
        self.earlier = Some(objects);
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Keeps the folder under another name.
    ///
    /// # Errors
    /// It cannot be renamed. It is removed then.
    pub fn keep(self, path: &Path) -> io::Result<()> {
        // The folder has another name when it is dropped.
        fs::rename(&self.path, path)
    }

    /// The folders in which git finds more objects, as it takes them.
    pub(crate) fn alternates(&self, objects: &Path) -> OsString {
        let mut list = quoted(objects);
        if let Some(earlier) = &self.earlier {
            list.push(":");
            list.push(quoted(earlier));
        }
        list
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(path = %self.path.display(), "Cannot remove a folder of a comparison: {error}");
        }
    }
}

/// # Errors
/// It cannot be made.
pub fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The list of directories is separated by colons, unless a path is quoted.
fn quoted(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")).into(),
        None => path.as_os_str().to_owned(),
    }
}
