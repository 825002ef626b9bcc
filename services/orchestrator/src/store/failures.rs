//! The tasks that can no longer run because a task that they depend on did not complete.

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::TaskId;

use super::runs::LockedRun;

#[derive(QueryableByName)]
struct TaskIdRow {
    #[diesel(sql_type = Uid)]
    id: TaskId,
}

/// The queued tasks of a locked run that depend, directly or not, on tasks that ended without completing in this
/// transaction. Those tasks have the run's new version.
///
/// This is SQL because diesel has no recursive queries. A loop over the levels of the graph would take as many statements
/// as a chain of dependencies is long, which can be 10,000.
pub(crate) fn unreachable_tasks(tx: &mut Conn, run: &LockedRun) -> Result<Vec<TaskId>, StoreError> {
    let query = sql_query(
        "WITH RECURSIVE lost (id) AS ( \
         SELECT d.task_id FROM tasks failed JOIN dependencies d ON d.depends_on = failed.id \
         JOIN tasks t ON t.id = d.task_id \
         WHERE failed.run_id = $1 AND failed.version = $2 AND failed.status IN ('failed', 'cancelled') \
         AND t.status = 'queued' \
         UNION \
         SELECT d.task_id FROM lost JOIN dependencies d ON d.depends_on = lost.id \
         JOIN tasks t ON t.id = d.task_id WHERE t.status = 'queued') \
         SELECT id FROM lost",
    )
    .bind::<Uid, _>(run.id.db())
    .bind::<BigInt, _>(run.version);
    let rows: Vec<TaskIdRow> = on!(tx, |c| query.load(c))?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}
