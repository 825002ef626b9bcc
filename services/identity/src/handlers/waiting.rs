//! Requests that wait until something has changed.

use std::time::Duration;

use actix_web::HttpRequest;
use ensemble_chassis::auth::caller_of;
use ensemble_chassis::{HandlerResult, Json};
use ensemble_store_kit::Topic;
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use tokio::time::{Instant, sleep_until};

use crate::Identity;
use crate::error::Error;

const LONGEST_MS: u32 = 30_000;

/// What is there now.
pub(super) struct Found<T> {
    pub(super) body: T,
    /// The caller wants to see the next change.
    pub(super) waits_on: bool,
    /// It expires then, which no one publishes.
    pub(super) expires_at: Timestamp,
    /// The time in the database.
    pub(super) now: Timestamp,
}

/// Reads it with each change on the topic, until the caller has seen enough or the time is over.
pub(super) async fn read_until<T>(
    service: &Identity,
    topic: Topic,
    wait_ms: u32,
    read: impl AsyncFn() -> Result<Found<T>, Error>,
) -> HandlerResult<Json<T>> {
    if wait_ms > LONGEST_MS {
        return Err(Error::BadField("?waitMs", "must be 0 to 30,000").into());
    }
    let deadline = Instant::now() + Duration::from_millis(wait_ms.into());
    let mut changes = service.db.notifier().subscribe(topic);
    loop {
        let Found { body, waits_on, expires_at, now } = read().await?;
        let expiry = Instant::now() + expires_at.since(now);
        if !waits_on || Instant::now() >= deadline || service.drain.is_closing() {
            return Ok(Json(body));
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
