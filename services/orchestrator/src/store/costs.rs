//! What tasks may cost, what they have cost, and how often they waited for a provider.

use diesel::dsl::case_when;
use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{TaskId, UserId};

use super::schema::task_specs;
use crate::domain::Spending;

/// Adds what an attempt cost. `session` is the provider's session that it used.
pub(crate) fn spend(
    tx: &mut Conn,
    owner: UserId,
    task: TaskId,
    cost: f64,
    session: Option<&str>,
) -> Result<Spending, StoreError> {
    let spec = task_specs::table.find(task.db()).filter(task_specs::owner_id.eq(owner.db()));
    let session_cost =
        case_when(task_specs::session_cost_of.eq(session), task_specs::session_cost_usd + cost).otherwise(cost);
    let (max, spent): (Option<f64>, f64) = on!(tx, |c| diesel::update(spec)
        .set((
            task_specs::spent_usd.eq(task_specs::spent_usd + cost),
            task_specs::session_cost_usd.eq(session_cost),
            task_specs::session_cost_of.eq(session),
        ))
        .returning((task_specs::max_cost_usd, task_specs::spent_usd))
        .get_result(c))?;
    Ok(Spending { max, spent })
}

/// Counts that an attempt ended at the provider's usage limit. Returns how many have.
pub(crate) fn count_quota_wait(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<i32, StoreError> {
    let spec = task_specs::table.find(task.db()).filter(task_specs::owner_id.eq(owner.db()));
    on!(tx, |c| diesel::update(spec)
        .set(task_specs::quota_waits.eq(task_specs::quota_waits + 1))
        .returning(task_specs::quota_waits)
        .get_result(c))
}

/// A person starts these tasks again, so they may cost as much again and wait as often.
pub(crate) fn renew(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let used = task_specs::spent_usd.gt(0.0).or(task_specs::quota_waits.gt(0));
    let specs = task_specs::table.filter(task_specs::task_id.eq_any(ids).and(task_specs::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::update(specs.filter(used))
        .set((task_specs::spent_usd.eq(0.0), task_specs::quota_waits.eq(0)))
        .execute(c))
    .map(drop)
}
