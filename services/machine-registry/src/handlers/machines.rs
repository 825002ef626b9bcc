//! Machines, as their owners and their runners see them.

use ensemble_chassis::{Caller, HandlerResult, IdempotentJson, Json, Path, Query, State, Upserted};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::{Machine, MachinePage, RegisterMachine, UpdateMachine};
use ensemble_types::page::Limit;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::MachineRegistry;
use crate::domain::{Change, Draft, OwnMachine};
use crate::store::After;

/// Which page.
#[derive(Deserialize, IntoParams)]
pub(crate) struct PageQuery {
    /// How many, 100 unless said otherwise.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 500>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

pub(crate) async fn register(
    registry: State<MachineRegistry>,
    caller: Caller,
    request: IdempotentJson<RegisterMachine>,
) -> HandlerResult<Upserted<Machine>> {
    let wish = request.key.map(|key| IdempotencyRequest {
        scope: caller.user.to_string(),
        route: "POST /v1/machines",
        key: key.key,
        body_hash: key.body_hash,
    });
    let registered = registry.store.register(caller.user, Draft::from(request.body), wish).await?;
    Ok(Upserted { created: registered.is_new, body: registered.machine.into() })
}

pub(crate) async fn list(
    registry: State<MachineRegistry>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> HandlerResult<Json<MachinePage>> {
    let after = query.cursor.as_deref().map_or_else(|| Ok(After::start()), After::decode)?;
    let page = registry.store.page(caller.user, after, query.limit.get()).await?;
    let machines = page.machines.into_iter().map(Machine::from).collect();
    Ok(Json(MachinePage { machines, next_cursor: page.next.map(|after| after.encode()) }))
}

pub(crate) async fn read(
    registry: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<MachineId>,
) -> HandlerResult<Json<Machine>> {
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    Ok(Json(registry.store.find(own).await?.into()))
}

pub(crate) async fn update(
    registry: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<MachineId>,
    Json(body): Json<UpdateMachine>,
) -> HandlerResult<Json<Machine>> {
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    Ok(Json(registry.store.update(own, Change::new(body)?).await?.into()))
}

pub(crate) async fn remove(
    registry: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<MachineId>,
) -> HandlerResult<Json<Deleted>> {
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    registry.store.delete(own).await?;
    Ok(Json(Deleted::DONE))
}
