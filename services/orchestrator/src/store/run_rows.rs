//! The row of a run as its owner sees it.

use diesel::prelude::*;
use ensemble_types::ids::RunId;
use ensemble_types::refs::Ref;
use ensemble_types::runs::{Run, RunStatus, RunSummary};
use ensemble_types::time::Timestamp;

use super::columns::RunStatusColumn;
use super::schema::runs;

#[derive(Queryable, Selectable)]
#[diesel(table_name = runs)]
pub(super) struct RunRow {
    id: RunId,
    reference: Ref,
    title: Option<String>,
    #[diesel(deserialize_as = RunStatusColumn)]
    status: RunStatus,
    cancel_reason: Option<String>,
    max_concurrency: i32,
    pub(super) spread: bool,
    pub(super) machine_id: Option<String>,
    wanted_machine_id: Option<String>,
    total: i32,
    queued: i32,
    running: i32,
    completed: i32,
    failed: i32,
    cancelled: i32,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl From<RunRow> for Run {
    fn from(row: RunRow) -> Self {
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        Self {
            id: row.id,
            reference: row.reference,
            title: row.title,
            status: row.status,
            cancel_reason: row.cancel_reason,
            max_concurrency: count(row.max_concurrency),
            spread: row.spread,
            // What is not the id of a machine was never stored.
            machine_id: row.wanted_machine_id.or(row.machine_id).and_then(|id| id.parse().ok()),
            summary: RunSummary {
                total: count(row.total),
                queued: count(row.queued),
                running: count(row.running),
                completed: count(row.completed),
                failed: count(row.failed),
                cancelled: count(row.cancelled),
            },
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            tasks: None,
        }
    }
}
