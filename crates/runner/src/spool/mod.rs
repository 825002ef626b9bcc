//! What the runner must not forget: which attempts it has begun, what they said, and what they came to.
//!
//! One folder per attempt under the state directory, named by its lease. It is there before the program starts, and
//! goes when the server has taken the report. A runner that starts finds in it what its predecessor left.

mod output;
mod record;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ensemble_types::ids::RunId;
use ensemble_types::leases::Lease;
use nix::fcntl::{Flock, FlockArg};

pub(crate) use output::{OutputBounds, OutputSpool};
pub(crate) use record::Record;

/// The state directory, held by this process alone.
#[derive(Debug)]
pub(crate) struct Spool {
    root: PathBuf,
    _lock: Flock<File>,
}

impl Spool {
    /// Opens or makes the state directory, for this user's eyes only. Fails when another runner has it.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        private_dir(root)?;
        let root = root.canonicalize()?;
        private_dir(&root.join("attempts"))?;
        private_dir(&root.join("workspaces"))?;
        let lock = File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| io::Error::other(format!("another runner uses {} ({error})", root.display())))?;
        Ok(Self { root, _lock: lock })
    }

    /// Puts down that an attempt begins. `None` when it was put down before.
    pub(crate) fn begin(&self, lease: &Lease) -> io::Result<Option<Record>> {
        let path = self.root.join("attempts").join(lease.id.to_string());
        if path.exists() {
            return Ok(None);
        }
        private_dir(&path)?;
        Record::begin(path, lease).map(Some)
    }

    /// What a predecessor left, and what could not be read of it.
    pub(crate) fn left(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.root.join("attempts"))? {
            let path = entry?.path();
            match Record::read(path.clone()) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), "Cannot read what is left of an attempt: {error}")
                }
            }
        }
        Ok(records)
    }

    /// Where the tasks of a run work that name no directory: one folder for all, since they build on each other.
    pub(crate) fn workspace(&self, run: RunId) -> io::Result<PathBuf> {
        let path = self.workspaces().join(run.to_string());
        private_dir(&path)?;
        Ok(path)
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }
}

fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes what was written in a folder survive a loss of power.
fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
