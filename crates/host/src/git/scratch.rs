//! A folder for what git writes during a comparison.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    /// It cannot be made.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        private_dir(&path.join("objects"))?;
        Ok(Self(path))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(path = %self.0.display(), "Cannot remove a folder of a comparison: {error}");
        }
    }
}

/// # Errors
/// It cannot be made.
pub fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
