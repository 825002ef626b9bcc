//! Sealed tasks: what the owner's devices have this machine do through a server that cannot read or change it.

mod check;
mod clear;
#[cfg(test)]
mod clear_tests;
mod nonces;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ensemble_client::Error;
use ensemble_client::devices::List;
use ensemble_protocol::seal::{SessionTask, open_task};
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use ensemble_types::leases::{Lease, TaskOutput};
use ensemble_types::signatures::digest;

use super::local::Start;
use super::{Host, NotBegun};
pub(crate) use check::Refused;
pub(super) use check::early;
pub(super) use nonces::Nonces;
use nonces::Once;
pub(crate) use turn::TaskTurn;
pub(super) use turn::{Ends, Sessions};

/// Fills the outputs of other tasks into a prompt, marked as data. `None`: it would be too long.
pub(crate) fn filled(prompt: &str, outputs: &BTreeMap<String, TaskOutput>) -> Option<String> {
    clear::filled(prompt, outputs, &SessionTask::nonce())
}

impl Host {
    /// What a sealed task has this machine do, if its owner has signed it. The task can be done only under its own id from now on.
    ///
    /// # Errors
    /// The outer error: the server cannot be asked for the owner's device list now.
    pub(crate) async fn signed(&self, lease: &Lease) -> Result<Result<SessionTask, Refused>, Error> {
        let sealed = lease.sealed.as_deref().unwrap_or_default();
        let opened = match open_task(sealed, &self.boxed, (self.owner, &self.config.machine)) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(Refused::not_signed(error.to_string()))),
        };
        let list = match self.newest_list().await? {
            Ok(list) => list,
            Err(refused) => return Ok(Err(refused)),
        };
        let now = self.now();
        let Some(session) = lease.session else {
            return Ok(Err(Refused::unsupported("the server says that it is no session")));
        };
        let task = match check::check(&opened, &list, (lease, session), now) {
            Ok(task) => task,
            Err(refused) => return Ok(Err(self.explained(refused))),
        };
        let digest = digest(sealed);
        let once = Once { nonce: &task.nonce, digest: &digest, at: task.at, expires: task.expires, is_order: false };
        Ok(self.nonces.take(&once, lease.task_id, now).await.map(|()| task))
    }

    fn explained(&self, refused: Refused) -> Refused {
        refused.with_clock(self.client.clock().ahead())
    }

    /// The list by which signers are judged.
    async fn newest_list(&self) -> Result<Result<List, Refused>, Error> {
        let list = match self.lists.refreshed().await {
            // A server that shows an old list does not bring a removed device back.
            Err(error @ (Error::OldDeviceList | Error::DeviceList(_))) => {
                return Ok(Err(Refused::not_signed(error.to_string())));
            }
            list => list?,
        };
        if self.lists.lacks_newest().await {
            return Ok(Err(Refused::not_signed("the server keeps the newest device list of the owner back")));
        }
        Ok(Ok(list))
    }

    /// Whether another agent could run in addition to those that work or ask.
    pub(crate) fn has_room(&self) -> bool {
        self.room.has_room()
    }

    /// Has the session of a task do its prompt, in a new session or in the one that an earlier attempt has begun. `prompt_id`
    /// names the attempt.
    pub(crate) async fn do_task(
        self: &Arc<Self>,
        task: SessionTask,
        directory: PathBuf,
        prompt_id: String,
    ) -> Result<(SessionId, TaskTurn), NotBegun> {
        let text = task.prompt.clone().unwrap_or_default();
        // An earlier attempt may have begun it, and its agent may be parked.
        self.room.admits(task.session_id).map_err(NotBegun::Busy)?;
        let session = self.begin_task(task, directory).await?;
        self.host_again(session).await;
        let turn = self.hosted.begin(session, prompt_id, text).await?;
        Ok((session, turn))
    }

    /// Begins the session of a task. The same task again finds the session that it has begun.
    pub(crate) async fn begin_task(
        self: &Arc<Self>,
        task: SessionTask,
        directory: PathBuf,
    ) -> Result<SessionId, NotBegun> {
        let start = Start {
            environment: None,
            mcp_servers: Vec::new(),
            agent: task.provider.as_str().to_owned(),
            directory,
            mode: Mode::of(task.mode.as_str()),
            model: task.model,
            title: task.title,
            resume: None,
            max_cost_usd: task.max_cost_usd,
        };
        self.begin(task.session_id, start).await
    }
}
