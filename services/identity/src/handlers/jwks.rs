//! The public keys, for programs that verify tokens and are not services of ours.

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use ensemble_chassis::{HandlerResult, State};

use crate::Identity;
use crate::error::Error;

pub(crate) async fn read(service: State<Identity>) -> HandlerResult<HttpResponse> {
    let keys = service.ring.jwks().map_err(Error::from)?;
    // A key is published long before it signs, so a copy may be minutes old.
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "public, max-age=300")).json(keys))
}
