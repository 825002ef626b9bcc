//! The caller's devices, and the signed lists of any account.

use ensemble_chassis::http::Upserted;
use ensemble_chassis::{Caller, HandlerResult, Json, Path, Query, State};
use ensemble_protocol::lists::MOST_VERSIONS;
use ensemble_types::devices::{ChangeDevices, Device, DeviceContentRing, DeviceListPage, Devices, UpdateDevice};
use ensemble_types::ids::{DeviceId, UserId};
use ensemble_types::pushes::PushKey;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Identity;
use crate::error::Error;
use crate::operations::pushes::Settings;
use crate::operations::{devices, pushes};

/// Selects lists.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ListsQuery {
    /// The version after which to begin, 0 unless said otherwise; `nextCursor` of the page before.
    #[serde(default)]
    #[param(minimum = 0, maximum = 10_000)]
    after: u16,
}

pub(crate) async fn list(service: State<Identity>, caller: Caller) -> HandlerResult<Json<Devices>> {
    Ok(Json(devices::read(&service.db, &caller).await?))
}

pub(crate) async fn change(
    service: State<Identity>,
    caller: Caller,
    Json(body): Json<ChangeDevices>,
) -> HandlerResult<Upserted<Devices>> {
    let changed = devices::change(&service, &caller, body).await?;
    Ok(Upserted { created: changed.is_new, location: "/v1/devices".to_owned(), body: changed.devices })
}

pub(crate) async fn content_ring(service: State<Identity>, caller: Caller) -> HandlerResult<Json<DeviceContentRing>> {
    Ok(Json(devices::content_ring(&service.db, &caller).await?))
}

pub(crate) async fn update(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<DeviceId>,
    Json(body): Json<UpdateDevice>,
) -> HandlerResult<Json<Device>> {
    let trusted = service.push_services.trusted_origins();
    let settings = Settings::new(body.push_subscription, body.notify, trusted)?;
    if settings.is_empty() {
        return Err(Error::BadField("/notify", "is needed, or `pushSubscription`").into());
    }
    Ok(Json(pushes::set(&service.db, &caller, id, settings).await?))
}

pub(crate) async fn push_key(service: State<Identity>) -> HandlerResult<Json<PushKey>> {
    Ok(Json(PushKey { public_key: service.push_services.public_key() }))
}

pub(crate) async fn of_user(
    service: State<Identity>,
    caller: Caller,
    Path(user): Path<UserId>,
    Query(query): Query<ListsQuery>,
) -> HandlerResult<Json<DeviceListPage>> {
    if u32::from(query.after) > MOST_VERSIONS {
        return Err(Error::BadField("?after", "must be a whole number from 0 to 10,000").into());
    }
    Ok(Json(devices::page(&service.db, &caller, user, query.after.into()).await?))
}
