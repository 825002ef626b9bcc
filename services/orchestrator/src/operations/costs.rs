//! What attempts cost, and what follows for their tasks.

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::UserId;

use crate::domain::{AttemptEnd, Spending};
use crate::store::costs;
use crate::store::tasks::{AttemptResults, LockedTask};
use crate::store::usage::MOST_COST;

/// Adds what an attempt cost to what its task has cost.
pub(super) fn spend(
    tx: &mut Conn,
    owner: UserId,
    task: &LockedTask,
    results: &AttemptResults,
    end: AttemptEnd,
) -> Result<AttemptEnd, StoreError> {
    let spending = match results.usage.unwrap_or_default().cost_usd.filter(|cost| *cost > 0.0) {
        Some(cost) => costs::spend(tx, owner, task.id, cost.min(MOST_COST), results.provider_session_id.as_deref())?,
        None => Spending::default(),
    };
    Ok(spending.limit(end, task.retry, task.failures))
}
