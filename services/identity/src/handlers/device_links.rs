//! Linking a device.

use std::time::Duration;

use actix_web::HttpRequest;
use ensemble_chassis::auth::caller_of;
use ensemble_chassis::entrance::is_local;
use ensemble_chassis::{Caller, Created, HandlerResult, Json, Path, Query, State};
use ensemble_protocol::lists::decode;
use ensemble_types::devices::{CreatedDeviceLink, DeviceLink, DeviceLinkRequest, DeviceLinkState};
use ensemble_types::ids::UserId;
use ensemble_types::text::Blob;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use crate::Identity;
use crate::domain::{LinkId, encode};
use crate::error::Error;
use crate::operations::device_links;

pub(super) const LONGEST_WAIT_MS: u32 = 30_000;

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
    if query.wait_ms > LONGEST_WAIT_MS {
        return Err(Error::BadField("?waitMs", "must be 0 to 30,000").into());
    }
    let deadline = Instant::now() + Duration::from_millis(query.wait_ms.into());
    let mut changes = service.db.notifier().subscribe(device_links::topic(&id));
    loop {
        let (link, now) = device_links::read(&service.db, id).await?;
        let expiry = Instant::now() + link.expires_at.since(now);
        let (reader, owner, is_over) = (reader(&request), link.user, link.expires_at <= now);
        let found = link.seen_by(reader, now);
        let waits_on = match found.state {
            DeviceLinkState::Waiting => true,
            DeviceLinkState::Asked => reader != Some(owner),
            DeviceLinkState::Approved => reader == Some(owner) && !found.again && !is_over,
            DeviceLinkState::Refused | DeviceLinkState::Expired => false,
        };
        if !waits_on || Instant::now() >= deadline || service.drain.is_closing() {
            return Ok(Json(found));
        }
        tokio::select! {
            () = changes.changed() => {}
            () = service.drain.closing() => {}
            () = sleep_until(deadline.min(expiry)) => {}
        }
    }
}

/// The user who reads, if there is one. It is checked again each time, because a token can end while the request waits.
pub(super) fn reader(request: &HttpRequest) -> Option<UserId> {
    caller_of(request).ok().filter(|caller| caller.machine.is_none()).map(|caller| caller.user)
}

fn link_id(text: &str) -> Result<LinkId, Error> {
    decode(text).ok_or(Error::LinkNotFound)
}
