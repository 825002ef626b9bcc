//! Runs: submit, watch, cancel, retry, delete.

use std::time::Duration;

use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::Ref;
use ensemble_types::runs::{CancelRun, CreateRun, Pend, Pended, Run, RunPage, Task, TaskMessage, WaitFor};
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;
use ensemble_types::usage::{UsageBy, UsageReport};
use futures_util::{Stream, stream};

use crate::call::LONGEST_RUN;
use crate::error::{Error, Result, asked_for};
use crate::pages;
use crate::refs::named;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// Submits a plan. The key makes a repetition harmless; see [`crate::idempotency_key`].
    pub async fn create_run(&self, plan: &CreateRun, key: &str) -> Result<Run> {
        let call = self.post(&["v1", "orchestrator", "runs"], Repeat::Harmless).at_most(LONGEST_RUN);
        let run: Run = named(call.idempotent(key).json(plan).send().await?)?;
        // A key that was used before gives what was made then.
        let answered = run.tasks.iter().flatten().map(|task| task.id);
        let is_other = plan.tasks.iter().zip(answered).any(|(task, answered)| task.id.is_some_and(|id| id != answered));
        if is_other || plan.id.is_some_and(|id| id != run.id) {
            return Err(Error::OtherRecord);
        }
        Ok(run)
    }

    /// A page of runs, newest first, without their tasks. `status` is a run status, `active` or `terminal`.
    pub async fn run_page(&self, status: Option<&str>, limit: Option<u32>, cursor: Option<&str>) -> Result<RunPage> {
        let call = self.get(&["v1", "orchestrator", "runs"]);
        named(call.query("status", status).query("limit", limit).query("cursor", cursor).send().await?)
    }

    /// All runs, newest first, without their tasks.
    pub fn runs(&self, status: Option<String>) -> impl Stream<Item = Result<Run>> + Send + use<> {
        let client = self.clone();
        pages::walk(move |cursor| {
            let (client, status) = (client.clone(), status.clone());
            async move {
                let page = client.run_page(status.as_deref(), Some(100), cursor.as_deref()).await?;
                Ok((page.runs, page.next_cursor))
            }
        })
    }

    /// One run with all its tasks.
    pub async fn run(&self, id: RunId) -> Result<Run> {
        let run: Run = self.get(&["v1", "orchestrator", "runs", &id.to_string()]).at_most(LONGEST_RUN).send().await?;
        asked_for(&id, &run.id)?;
        named(run)
    }

    /// The id of the run with this ref. Its tasks are not read.
    pub async fn find_run(&self, run: Ref) -> Result<RunId> {
        let pended: Pended =
            self.get(&["v1", "orchestrator", "runs", run.as_str(), "pend"]).query("timeoutMs", Some(0)).send().await?;
        asked_for(&run, &Ref::of(&pended.id)).map(|()| pended.id)
    }

    /// Cancels a run. A run that has already ended is returned unchanged.
    pub async fn cancel_run(&self, id: RunId, reason: Option<&str>) -> Result<Run> {
        let reason = reason.map(Text::new).transpose();
        let reason = reason.map_err(|error| Error::Argument(format!("the reason {error}")))?;
        let path = ["v1", "orchestrator", "runs", &id.to_string(), "cancel"];
        let run: Run =
            self.post(&path, Repeat::Harmless).json(&CancelRun { reason }).at_most(LONGEST_RUN).send().await?;
        asked_for(&id, &run.id)?;
        named(run)
    }

    /// Starts new attempts for failed and cancelled tasks. CONFLICT when there are none.
    pub async fn retry_run(&self, id: RunId) -> Result<Run> {
        let path = ["v1", "orchestrator", "runs", &id.to_string(), "retry"];
        let run: Run = self.post(&path, Repeat::Harmful).at_most(LONGEST_RUN).send().await?;
        asked_for(&id, &run.id)?;
        named(run)
    }

    /// Says something more to the agent of a task that has ended. CONFLICT when it cannot go on. A message with the same id
    /// does nothing again.
    pub async fn say(&self, run: RunId, task: TaskId, message: &TaskMessage) -> Result<Task> {
        let path = ["v1", "orchestrator", "runs", &run.to_string(), "tasks", &task.to_string(), "messages"];
        let answer: Task = self.post(&path, Repeat::Harmless).json(message).send().await?;
        asked_for(&task, &answer.id)?;
        named(answer)
    }

    /// What the caller's tasks cost from the day of one time to that of another, in UTC.
    pub async fn usage(&self, from: Timestamp, to: Timestamp, by: UsageBy) -> Result<UsageReport> {
        let by = match by {
            UsageBy::Day => "day",
            UsageBy::Machine => "machine",
            UsageBy::Provider => "provider",
        };
        let call = self.get(&["v1", "orchestrator", "usage"]);
        call.query("from", Some(from)).query("to", Some(to)).query("by", Some(by)).send().await
    }

    /// Deletes a run that has ended, with its tasks and their output. CONFLICT before its end.
    pub async fn delete_run(&self, id: RunId) -> Result<()> {
        self.delete(&["v1", "orchestrator", "runs", &id.to_string()]).await
    }

    /// Waits for the run to change, or to end.
    pub async fn pend(&self, id: RunId, pend: &Pend) -> Result<Pended> {
        let wait = pend.timeout_ms.map_or(30_000, u64::from);
        let call = self.post(&["v1", "orchestrator", "runs", &id.to_string(), "pend"], Repeat::Harmless);
        let call = call.waiting(Duration::from_millis(wait)).json(pend).at_most(LONGEST_RUN);
        let pended: Pended = call.send().await?;
        same_run(id, named(pended)?)
    }

    /// Every change of a run after `cursor`, live. Ends after the change that ended the run.
    pub fn watch_run(&self, id: RunId, cursor: String) -> impl Stream<Item = Result<Pended>> + Send + use<> {
        let client = self.clone();
        stream::try_unfold(Some(cursor), move |cursor| {
            let client = client.clone();
            async move {
                let Some(mut cursor) = cursor else { return Ok(None) };
                loop {
                    let pend = Pend { cursor: Some(cursor), wait_for: Some(WaitFor::Change), timeout_ms: Some(30_000) };
                    let pended = client.pend(id, &pend).await?;
                    if pended.changed || pended.terminal {
                        let next = (!pended.terminal).then(|| pended.cursor.clone());
                        return Ok(Some((pended, next)));
                    }
                    cursor = pended.cursor;
                }
            }
        })
    }
}

/// Refuses what is about another run than the one that was asked for.
fn same_run(run: RunId, pended: Pended) -> Result<Pended> {
    asked_for(&run, &pended.id)?;
    asked_for(&run, &pended.run.id)?;
    Ok(pended)
}
