//! Runs in brief, for services that read them for their owner: what is sealed is left out, and long texts are cut.

use ensemble_rpc::orchestrator::{ListRunsResponse, RunBrief, ShowRunResponse, TaskBrief};
use ensemble_store_kit::Db;
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::refs::IdOrRef;
use ensemble_types::runs::{Run, Task, WaitingFor};

use super::refs;
use super::runs::{Filter, ListedRuns, list as list_runs, read};
use crate::error::Error;

/// Tasks of one answer.
const TASKS: usize = 20;
/// Characters of an error or of a reason.
const LINE: usize = 300;
/// Characters of what a task says it has done.
const SUMMARY: usize = 1_000;

/// The newest runs of an account.
pub(crate) async fn list(db: &Db, owner: UserId, active_only: bool, limit: u32) -> Result<ListRunsResponse, Error> {
    let filter = if active_only { Filter::Active } else { Filter::All };
    let ListedRuns { runs, next } = list_runs(db, owner, filter, None, limit).await?;
    Ok(ListRunsResponse { runs: runs.into_iter().map(run_brief).collect(), more: next.is_some() })
}

/// A run with its first tasks.
pub(crate) async fn show(db: &Db, owner: UserId, id: IdOrRef<RunId>) -> Result<ShowRunResponse, Error> {
    let id = refs::run(db, owner, id).await?;
    let (view, mut tasks) = read(db, owner, id).await?;
    tasks.truncate(TASKS);
    let more = usize::try_from(view.run.summary.total).unwrap_or(usize::MAX) > tasks.len();
    Ok(ShowRunResponse { run: Some(run_brief(view.run)), tasks: tasks.into_iter().map(task_brief).collect(), more })
}

fn run_brief(run: Run) -> RunBrief {
    RunBrief {
        id: run.id.to_string(),
        r#ref: run.reference.to_string(),
        title: run.title.unwrap_or_default(),
        status: run.status.as_str().to_owned(),
        total: run.summary.total,
        queued: run.summary.queued,
        running: run.summary.running,
        completed: run.summary.completed,
        failed: run.summary.failed,
        cancelled: run.summary.cancelled,
        created_at: run.created_at.micros(),
        finished_at: run.finished_at.map_or(0, |at| at.micros()),
    }
}

fn task_brief(task: Task) -> TaskBrief {
    let (error_code, error_message) = task.error.map(|error| (error.code, error.message)).unwrap_or_default();
    TaskBrief {
        r#ref: task.reference.to_string(),
        key: task.task_key.unwrap_or_default(),
        title: task.title.unwrap_or_default(),
        status: task.status.as_str().to_owned(),
        provider: task.provider.as_str().to_owned(),
        attempt: task.attempt,
        waiting_for: task.waiting_for.map_or("", waiting_word).to_owned(),
        waiting_reason: cut(task.waiting_reason, LINE),
        error_code,
        error_message: cut(Some(error_message), LINE),
        output_summary: cut(task.output_summary, SUMMARY),
        sealed: task.prompt.is_none(),
    }
}

/// As in the public interface.
fn waiting_word(what: WaitingFor) -> &'static str {
    match what {
        WaitingFor::Dependencies => "dependencies",
        WaitingFor::Machine => "machine",
        WaitingFor::Concurrency => "concurrency",
        WaitingFor::Backoff => "backoff",
        WaitingFor::Quota => "quota",
        WaitingFor::Directory => "directory",
        WaitingFor::Input => "input",
    }
}

fn cut(text: Option<String>, most: usize) -> String {
    let text = text.unwrap_or_default();
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
