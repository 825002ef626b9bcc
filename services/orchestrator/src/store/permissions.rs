//! What agents were allowed to do without asking, and what they were refused.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::upsert::excluded;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{TaskId, UserId};
use ensemble_types::runs::{Permission, PermissionDenials};

use super::columns::PermissionColumn;
use super::schema::{task_permissions, task_specs};

/// What an attempt was allowed and refused.
#[derive(Clone, Debug)]
pub(crate) struct AttemptPermission {
    pub(crate) permission: Option<Permission>,
    pub(crate) denials: Option<PermissionDenials>,
}

/// The refusals that are listed, as the column holds them.
pub(crate) fn json(denials: &PermissionDenials) -> String {
    serde_json::to_string(&denials.denials).unwrap_or_else(|_| "[]".to_owned())
}

/// Records those of a task's last attempt.
pub(crate) fn save(
    tx: &mut Conn,
    owner: UserId,
    task: TaskId,
    permission: Option<Permission>,
    denials: Option<&PermissionDenials>,
) -> Result<(), StoreError> {
    use diesel::query_dsl::methods::FilterDsl;
    if permission.is_none() && denials.is_none() {
        return Ok(());
    }
    let row = (
        task_permissions::task_id.eq(task.db()),
        task_permissions::owner_id.eq(owner.db()),
        task_permissions::permission.eq(permission.map(Permission::as_str)),
        task_permissions::denial_count
            .eq(denials.map_or(0, |denials| i32::try_from(denials.count).unwrap_or(i32::MAX))),
        task_permissions::denials.eq(denials.map_or_else(|| "[]".to_owned(), json)),
    );
    on!(tx, |c| diesel::insert_into(task_permissions::table)
        .values(row)
        .on_conflict(task_permissions::task_id)
        .do_update()
        .set((
            task_permissions::permission.eq(excluded(task_permissions::permission)),
            task_permissions::denial_count.eq(excluded(task_permissions::denial_count)),
            task_permissions::denials.eq(excluded(task_permissions::denials)),
        ))
        .filter(task_permissions::owner_id.eq(owner.db()))
        .execute(c))
    .map(drop)
}

/// Those of these tasks that have any.
pub(crate) fn of_tasks(
    c: &mut Conn,
    owner: UserId,
    of: &[TaskId],
) -> Result<HashMap<TaskId, AttemptPermission>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, Option<PermissionColumn>, i32, String)> = on!(c, |c| task_permissions::table
        .filter(task_permissions::task_id.eq_any(ids).and(task_permissions::owner_id.eq(owner.db())))
        .select((
            task_permissions::task_id,
            task_permissions::permission,
            task_permissions::denial_count,
            task_permissions::denials,
        ))
        .load(c))?;
    let mut found = HashMap::with_capacity(rows.len());
    for (task, permission, count, denials) in rows {
        let denials = match u32::try_from(count) {
            Ok(count @ 1..) => {
                let listed = serde_json::from_str(&denials);
                let denials = listed.map_err(|error| StoreError::bad_row(c.operation(), error))?;
                Some(PermissionDenials { count, denials })
            }
            _ => None,
        };
        found.insert(task, AttemptPermission { permission: permission.map(Permission::from), denials });
    }
    Ok(found)
}

/// Whether a task fails when its agent was refused something.
pub(crate) fn fails_on_denial(c: &mut Conn, owner: UserId, task: TaskId) -> Result<bool, StoreError> {
    let spec = task_specs::table.find(task.db()).filter(task_specs::owner_id.eq(owner.db()));
    on!(c, |c| spec.select(task_specs::fail_on_denial).first(c))
}

/// Forgets those of tasks that are retried or deleted.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = task_permissions::table.filter(task_permissions::task_id.eq_any(ids));
    on!(tx, |c| diesel::delete(rows.filter(task_permissions::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
