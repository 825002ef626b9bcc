//! Finds runs and tasks by their refs.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::refs::Ref;

use super::schema::{runs, task_specs};

/// The account's run with this ref.
pub(crate) fn run(c: &mut Conn, owner: UserId, reference: Ref) -> Result<Option<RunId>, StoreError> {
    on!(c, |c| runs::table
        .filter(runs::reference.eq(reference.db()).and(runs::owner_id.eq(owner.db())))
        .select(runs::id)
        .first(c)
        .optional())
}

/// The account's task with this ref.
pub(crate) fn task(c: &mut Conn, owner: UserId, reference: Ref) -> Result<Option<TaskId>, StoreError> {
    on!(c, |c| task_specs::table
        .filter(task_specs::reference.eq(reference.db()).and(task_specs::owner_id.eq(owner.db())))
        .select(task_specs::task_id)
        .first(c)
        .optional())
}
