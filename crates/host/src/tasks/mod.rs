//! Tasks that are a session or a turn of one.

mod turn;

use std::path::PathBuf;
use std::sync::Arc;

use ensemble_protocol::seal::SessionTask;
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use ensemble_types::runs::Provider;

use super::local::Start;
use super::{Host, NotBegun};
pub use turn::TaskTurn;
pub(super) use turn::{Ends, Sessions};

impl Host {
    /// Whether another agent could run in addition to those that work or ask.
    pub fn has_room(&self) -> bool {
        self.room.has_room()
    }

    /// Has the session of a task do its prompt, in a new session or in the one that an earlier attempt has begun. `prompt_id`
    /// names the attempt.
    pub async fn do_task(
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

    /// Begins the session of a task. The same task again finds the session that it has begun. The demo has a directory of its own.
    pub async fn begin_task(self: &Arc<Self>, task: SessionTask, directory: PathBuf) -> Result<SessionId, NotBegun> {
        if task.provider.as_str() == Provider::DEMO {
            return self.demo(task.session_id).await;
        }
        let start = Start {
            environment: None,
            mcp_servers: Vec::new(),
            agent: task.provider.as_str().to_owned(),
            directory,
            mode: Mode::of(task.mode.as_str()),
            model: task.model,
            title: task.title,
            resume: None,
            fork: false,
            max_cost_usd: task.max_cost_usd,
        };
        self.begin(task.session_id, start).await
    }
}
