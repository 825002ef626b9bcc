//! What an account's attempts cost.

use ensemble_chassis::{Caller, HandlerResult, Json, Query, State};
use ensemble_types::time::Timestamp;
use ensemble_types::usage::{UsageBy, UsageReport};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Orchestrator;
use crate::operations::usage;

/// Which time, and which sums.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct UsageQuery {
    /// A time of the first day, in UTC. 30 days in all when absent.
    from: Option<Timestamp>,
    /// A time of the last day, in UTC. Today when absent. At most 366 days after `from`.
    to: Option<Timestamp>,
    /// `day`, `machine` or `provider`. The default is `day`.
    #[serde(default)]
    #[param(inline)]
    by: UsageBy,
}

pub(crate) async fn report(
    service: State<Orchestrator>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> HandlerResult<Json<UsageReport>> {
    Ok(Json(usage::report(&service.db, caller.user, query.from, query.to, query.by).await?))
}
