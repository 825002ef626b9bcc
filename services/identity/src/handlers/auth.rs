//! Signing in: a challenge, and the proof that the account's key signed it.

use actix_web::http::header::{CACHE_CONTROL, HeaderName};
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::entrance::is_of_proxy;
use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::accounts::{Challenge, SignIn, SignedIn};

use crate::Identity;
use crate::domain::{Proof, Registration, encode};
use crate::operations::sign_in;

/// Set on the response for the edge, which counts new accounts by address and removes the header.
const NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-new-account");
/// Set by the edge when the caller's address has made as many accounts as it may: the seconds until it may make the next one. A client
/// that sets it itself only refuses itself an account.
const NO_NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-no-new-account");

pub(crate) async fn challenge(service: State<Identity>, request: HttpRequest) -> HandlerResult<Json<Challenge>> {
    let challenge = sign_in::give_challenge(&service, is_of_proxy(request.headers())).await?;
    let public_origins = service.rules.origins.iter().map(ToString::to_string).collect();
    Ok(Json(Challenge { challenge: encode(&challenge.bytes), expires_at: challenge.expires_at, public_origins }))
}

pub(crate) async fn sign_in(
    service: State<Identity>,
    request: HttpRequest,
    Json(body): Json<SignIn>,
) -> HandlerResult<HttpResponse> {
    let limited = request.headers().get(NO_NEW_ACCOUNT);
    let seconds = limited.map(|value| value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(1));
    let registration = seconds.map_or(service.rules.registration, Registration::Limited);
    let signed_in = sign_in::sign_in(&service, Proof::new(&body)?, registration).await?;
    let mut response = HttpResponse::Ok();
    response.insert_header((CACHE_CONTROL, "no-store"));
    if signed_in.is_new {
        response.insert_header((NEW_ACCOUNT, "1"));
    }
    let (user_id, expires_at) = (signed_in.user, signed_in.expires_at);
    Ok(response.json(SignedIn { success: true, token: signed_in.token, user_id, expires_at }))
}
