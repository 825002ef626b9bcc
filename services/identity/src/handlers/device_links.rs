//! Linking a device.

use actix_web::HttpRequest;
use ensemble_chassis::entrance::is_local;
use ensemble_chassis::{Caller, Created, HandlerResult, Json, Path, Query, State};
use ensemble_protocol::lists::decode;
use ensemble_types::devices::{CreatedDeviceLink, DeviceLink, DeviceLinkRequest, DeviceLinkState};
use ensemble_types::text::Blob;
use serde::Deserialize;
use utoipa::IntoParams;

use super::waiting::{Found, read_until, reader};
use crate::Identity;
use crate::domain::{LinkId, encode};
use crate::error::Error;
use crate::operations::device_links;

/// How long to wait.
#[derive(Deserialize, IntoParams)]
pub(crate) struct WaitQuery {
    /// Answer only when the link has changed, or after this many milliseconds. The account that made the link waits for the
    /// request, and then for another one, and other callers wait for the end.
    #[serde(default, rename = "waitMs")]
    #[param(maximum = 30_000)]
    wait_ms: u32,
}

pub(crate) async fn create(service: State<Identity>, caller: Caller) -> HandlerResult<Created<CreatedDeviceLink>> {
    let link = device_links::create(&service, &caller).await?;
    let id = Blob::new(encode(&link.id)).map_err(|_| Error::LinkNotFound)?;
    let location = format!("/v1/auth/links/{}", &*id);
    Ok(Created { location, body: CreatedDeviceLink { id, expires_at: link.expires_at } })
}

pub(crate) async fn ask(
    service: State<Identity>,
    request: HttpRequest,
    Path(id): Path<String>,
    Json(body): Json<DeviceLinkRequest>,
) -> HandlerResult<Json<DeviceLink>> {
    let (link, now) = device_links::ask(&service, link_id(&id)?, body, is_local(request.headers())).await?;
    Ok(Json(link.seen_by(None, now)))
}

pub(crate) async fn refuse(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
) -> HandlerResult<Json<DeviceLink>> {
    let (link, now) = device_links::refuse(&service.db, &caller, link_id(&id)?).await?;
    Ok(Json(link.seen_by(Some(caller.user), now)))
}

pub(crate) async fn read(
    service: State<Identity>,
    request: HttpRequest,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> HandlerResult<Json<DeviceLink>> {
    let id = link_id(&id)?;
    read_until(&service, device_links::topic(&id), query.wait_ms, async || {
        let (link, now) = device_links::read(&service.db, id).await?;
        let (reader, owner, expires_at) = (reader(&request), link.user, link.expires_at);
        let body = link.seen_by(reader, now);
        let waits_on = match body.state {
            DeviceLinkState::Waiting => true,
            DeviceLinkState::Asked => reader != Some(owner),
            DeviceLinkState::Approved => reader == Some(owner) && !body.again && expires_at > now,
            DeviceLinkState::Refused | DeviceLinkState::Expired => false,
        };
        Ok(Found { body, waits_on, expires_at, now })
    })
    .await
}

fn link_id(text: &str) -> Result<LinkId, Error> {
    decode(text).ok_or(Error::LinkNotFound)
}
