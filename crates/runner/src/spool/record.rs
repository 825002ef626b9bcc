//! The record of one attempt on disk: its identity and, once it has ended, its report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_client::HeldLease;
use ensemble_process::disk::{replace, sync_folder};
use ensemble_types::ids::{LeaseId, TaskId};
use ensemble_types::leases::{Lease, LeaseFinish};
use ensemble_types::runs::Provider;
use serde::{Deserialize, Serialize};

use crate::workplace::DiffPart;

const ATTEMPT: &str = "attempt.json";
const FINISH: &str = "finish.json";
const DIFF: &str = "diff.json";
const REFUSED: &str = "refused.json";

/// How long a refused report is kept for inspection.
const REFUSED_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The identity of an attempt. The prompt is not stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    lease: LeaseId,
    fence: i64,
    task: TaskId,
    provider: Provider,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(default)]
    provider_session_id: Option<String>,
}

/// The folder of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    path: PathBuf,
    attempt: Attempt,
    finish: Option<LeaseFinish>,
}

impl Record {
    pub(super) fn begin(path: PathBuf, lease: &Lease) -> io::Result<Self> {
        let attempt = Attempt {
            lease: lease.id,
            fence: lease.fence,
            task: lease.task_id,
            provider: lease.provider,
            traceparent: lease.traceparent.clone(),
            provider_session_id: None,
        };
        write(&path, ATTEMPT, &attempt)?;
        if let Some(parent) = path.parent() {
            sync_folder(parent)?;
        }
        Ok(Self { path, attempt, finish: None })
    }

    /// `None` when there is nothing to recover: the attempt never began, or its report was refused.
    pub(super) fn read(path: PathBuf) -> io::Result<Option<Self>> {
        if let Ok(refused) = fs::metadata(path.join(REFUSED)) {
            let age = refused.modified()?.elapsed().unwrap_or_default();
            if age > REFUSED_RETENTION {
                fs::remove_dir_all(&path)?;
            }
            return Ok(None);
        }
        let Some(attempt) = read(&path, ATTEMPT)? else {
            fs::remove_dir_all(&path)?;
            return Ok(None);
        };
        let finish = read(&path, FINISH)?;
        Ok(Some(Self { path, attempt, finish }))
    }

    pub(crate) fn lease(&self) -> LeaseId {
        self.attempt.lease
    }

    pub(crate) fn fence(&self) -> i64 {
        self.attempt.fence
    }

    /// The lease for calls to the server.
    pub(crate) fn held(&self) -> HeldLease {
        let Attempt { lease: id, fence, traceparent, .. } = self.attempt.clone();
        HeldLease { id, fence, traceparent }
    }

    pub(crate) fn task(&self) -> TaskId {
        self.attempt.task
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The report that an earlier runner process saved.
    pub(crate) fn finish(&self) -> Option<&LeaseFinish> {
        self.finish.as_ref()
    }

    /// The provider's session that an earlier runner process saved.
    pub(crate) fn provider_session(&self) -> Option<&str> {
        self.attempt.provider_session_id.as_deref()
    }

    /// Saves the provider's session, so that it can be resumed even if this process ends now.
    pub(crate) fn save_session(&self, id: &str) -> io::Result<()> {
        let attempt = Attempt { provider_session_id: Some(id.to_owned()), ..self.attempt.clone() };
        write(&self.path, ATTEMPT, &attempt)
    }

    /// Saves the report. It stays until the server has answered it.
    pub(crate) fn save_finish(&self, finish: &LeaseFinish) -> io::Result<()> {
        write(&self.path, FINISH, finish)
    }

    /// Saves what the attempt changed. It is sent before the report.
    pub(crate) fn save_diff(&self, parts: &[DiffPart]) -> io::Result<()> {
        write(&self.path, DIFF, &parts)
    }

    /// What the attempt changed, as it was saved.
    pub(crate) fn diff(&self) -> io::Result<Vec<DiffPart>> {
        Ok(read(&self.path, DIFF)?.unwrap_or_default())
    }

    /// Keeps a report that the server refused for inspection. It is not sent again.
    pub(crate) fn refuse(self) -> io::Result<()> {
        fs::rename(self.path.join(FINISH), self.path.join(REFUSED))?;
        sync_folder(&self.path)
    }

    /// Removes the record: the server has accepted the report, or another runner has the task.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

fn read<T: for<'de> Deserialize<'de>>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    match fs::read(folder.join(name)) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(folder: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    replace(&folder.join(name), value)
}
