//! Machines, for their owners and their runners.

use ensemble_chassis::{Caller, HandlerResult, IdempotentJson, Json, LargeAnswer, Path, Query, State, Upserted};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::{Machine, MachinePage, RegisterMachine, UpdateMachine};
use ensemble_types::page::Limit;
use ensemble_types::refs::IdOrRef;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::MachineRegistry;
use crate::domain::{Change, Draft, OtherMachine, OwnMachine};
use crate::error::Error;
use crate::operations::machines;
use crate::operations::machines::{After, Page, ShortPage};

/// Selects a page.
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
    service: State<MachineRegistry>,
    caller: Caller,
    request: IdempotentJson<RegisterMachine>,
) -> HandlerResult<Upserted<Machine>> {
    let idempotency = request.key.map(|key| IdempotencyRequest {
        scope: caller.user.to_string(),
        route: "POST /v1/machines",
        key: key.key,
        body_hash: key.body_hash,
    });
    let registered = machines::register(&service, caller.user, Draft::from(request.body), idempotency).await?;
    let machine = Machine::from(registered.machine);
    Ok(Upserted { created: registered.is_new, location: format!("/v1/machines/{}", machine.id), body: machine })
}

pub(crate) async fn list(
    service: State<MachineRegistry>,
    caller: Caller,
    Query(query): Query<PageQuery>,
    large: LargeAnswer,
) -> HandlerResult<Json<MachinePage>> {
    let after = query.cursor.as_deref().map_or_else(|| Ok(After::start()), After::decode).map_err(Error::from)?;
    let (owner, limit) = (caller.user, query.limit.get());
    let bytes = match machines::short_page(&service, owner, after.clone(), limit).await.map_err(Error::from)? {
        ShortPage::Whole(page) => return Ok(Json(listed(page))),
        ShortPage::Long { bytes } => usize::try_from(bytes).unwrap_or(usize::MAX),
    };
    // Short pages do not wait for the caller's long ones.
    let _turn = large.turn_for(bytes).await?;
    Ok(Json(listed(machines::page(&service, owner, after, limit).await.map_err(Error::from)?)))
}

fn listed(Page { machines, next }: Page) -> MachinePage {
    let machines = machines.into_iter().map(Machine::from).collect();
    MachinePage { machines, next_cursor: next.map(|after| after.encode()) }
}

pub(crate) async fn read(
    service: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<IdOrRef<MachineId>>,
) -> HandlerResult<Json<Machine>> {
    let id = machines::resolve(&service, caller.user, id).await?;
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    Ok(Json(machines::read(&service, own).await?.into()))
}

pub(crate) async fn update(
    service: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<IdOrRef<MachineId>>,
    Json(body): Json<UpdateMachine>,
) -> HandlerResult<Json<Machine>> {
    let id = machines::resolve(&service, caller.user, id).await?;
    // Only people decide about keys.
    if caller.machine.is_some() && body.encryption_key.is_some() {
        return Err(OtherMachine.into());
    }
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    Ok(Json(machines::update(&service, own, Change::new(body)?).await?.into()))
}

pub(crate) async fn remove(
    service: State<MachineRegistry>,
    caller: Caller,
    Path(id): Path<IdOrRef<MachineId>>,
) -> HandlerResult<Json<Deleted>> {
    let id = machines::resolve(&service, caller.user, id).await?;
    let own = OwnMachine::of(caller.user, caller.machine, id)?;
    machines::delete(&service, own).await?;
    Ok(Json(Deleted::DONE))
}
