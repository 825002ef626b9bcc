//! What owners say to the agents of tasks that have ended.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::refs::IdOrRef;
use ensemble_types::runs::{Task, TaskMessage};

use crate::Orchestrator;
use crate::operations::{follow_ups, refs};

pub(crate) async fn say(
    service: State<Orchestrator>,
    caller: Caller,
    Path((run, task)): Path<(IdOrRef<RunId>, IdOrRef<TaskId>)>,
    Json(message): Json<TaskMessage>,
) -> HandlerResult<Json<Task>> {
    let run = refs::run(&service.db, caller.user, run).await?;
    let task = refs::task(&service.db, caller.user, task).await?;
    let place = (caller.user, run, task);
    let (limit, quota) = (service.limits.max_unfinished, &service.run_bytes);
    Ok(Json(follow_ups::say(&service.db, limit, quota, place, message).await?))
}
