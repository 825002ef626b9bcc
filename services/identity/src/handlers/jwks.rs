//! The public keys, for whoever verifies tokens without being one of our services.

use actix_web::HttpResponse;
use actix_web::http::header::CACHE_CONTROL;
use ensemble_chassis::{HandlerResult, State};

use crate::Identity;
use crate::error::Error;

pub(crate) async fn read(identity: State<Identity>) -> HandlerResult<HttpResponse> {
    let keys = identity.ring.jwks().map_err(Error::from)?;
    // A key is here long before it signs, so a copy may be minutes old.
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "public, max-age=300")).json(keys))
}
