//! The runner's state on disk: which attempts it has started, their output, and their reports.
//!
//! There is one folder per attempt in the state directory, named by its lease. It is created before the program starts,
//! and removed when the server has accepted the report. A runner that starts recovers the attempts of its predecessor
//! from it.

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

/// The state directory. Only one process can hold it.
#[derive(Debug)]
pub(crate) struct Spool {
    root: PathBuf,
    _lock: Flock<File>,
}

impl Spool {
    /// Opens or creates the state directory, readable only for this user. Fails when another runner uses it.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        private_dir(root)?;
        let root = root.canonicalize()?;
        private_dir(&root.join("attempts"))?;
        private_dir(&root.join("workspaces"))?;
        let lock = File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|_| io::Error::other(format!("{} of this machine uses it", holder(&root))))?;
        fs::write(root.join("pid"), std::process::id().to_string())?;
        Ok(Self { root, _lock: lock })
    }

    /// Records the start of an attempt. `None` when it is recorded already.
    pub(crate) fn begin(&self, lease: &Lease) -> io::Result<Option<Record>> {
        let path = self.root.join("attempts").join(lease.id.to_string());
        if path.exists() {
            return Ok(None);
        }
        private_dir(&path)?;
        Record::begin(path, lease).map(Some)
    }

    /// Reads the attempts of an earlier runner process. A record that cannot be read is logged.
    pub(crate) fn recover(&self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.root.join("attempts"))? {
            let path = entry?.path();
            match Record::read(path.clone()) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), "Cannot read the record of an attempt: {error}")
                }
            }
        }
        Ok(records)
    }

    /// The working directory of a run's tasks that name none. All tasks share it, because they build on each other.
    pub(crate) fn workspace(&self, run: RunId) -> io::Result<PathBuf> {
        let path = self.workspaces().join(run.to_string());
        private_dir(&path)?;
        Ok(path)
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }
}

/// The runner that holds the state directory, with its process id if it has written it down.
fn holder(root: &Path) -> String {
    let pid = fs::read_to_string(root.join("pid")).unwrap_or_default();
    if pid.is_empty() { "another runner".to_owned() } else { format!("another runner (process {pid})") }
}

fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
