//! What tasks changed: read it, bring it in, or throw it away.

use std::time::Duration;

use bytes::Bytes;
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::Task;
use ensemble_types::signatures::ChangesOrder;
use futures_util::{Stream, StreamExt};

use crate::call::LONGEST_RECORD;
use crate::error::{Error, Result, asked_for};
use crate::refs::named;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// What the last attempt of a task changed, as a unified diff in pieces.
    pub async fn task_diff(
        &self,
        run: RunId,
        task: TaskId,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        let origin = self.origin().to_owned();
        let path = ["v1", "orchestrator", "runs", &run.to_string(), "tasks", &task.to_string(), "diff"];
        let body = self.get(&path).send_open().await?.bytes_stream();
        Ok(body.map(move |chunk| chunk.map_err(|error| Error::of(&origin, error))))
    }

    /// Lets the task's machine merge the changes into the working tree, and waits up to `wait` for it.
    /// `order` is empty, or signed.
    pub async fn apply_changes(&self, run: RunId, task: TaskId, order: &ChangesOrder, wait: Duration) -> Result<Task> {
        self.order(run, task, ("apply", order), wait).await
    }

    /// Lets the task's machine remove the worktree and its branch, and waits up to `wait` for it.
    /// `order` is empty, or signed.
    pub async fn discard_changes(
        &self,
        run: RunId,
        task: TaskId,
        order: &ChangesOrder,
        wait: Duration,
    ) -> Result<Task> {
        self.order(run, task, ("discard", order), wait).await
    }

    async fn order(
        &self,
        run: RunId,
        task: TaskId,
        (what, order): (&str, &ChangesOrder),
        wait: Duration,
    ) -> Result<Task> {
        let path = ["v1", "orchestrator", "runs", &run.to_string(), "tasks", &task.to_string(), what];
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(60_000);
        let call = self.post(&path, Repeat::Harmless).query("waitMs", Some(wait_ms));
        let answer: Task = call.json(order).waiting(wait).at_most(LONGEST_RECORD).send().await?;
        asked_for(&task, &answer.id)?;
        named(answer)
    }
}
