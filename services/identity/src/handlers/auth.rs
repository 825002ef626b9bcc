//! Signing in: a challenge, and the proof that it was signed with the account's key.

use actix_web::http::header::{CACHE_CONTROL, HeaderName};
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::accounts::{Challenge, SignIn, SignedIn};
use rand::RngCore;

use crate::Identity;
use crate::domain::{Newcomers, Proof, encode};
use crate::error::Error;
use crate::store::SignInOutcome;

/// Tells the edge, which counts new accounts by address and does not pass it on.
const NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-new-account");
/// The edge tells that the caller's address has made as many accounts as it may. Who made it up harms themselves only.
const NO_NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-no-new-account");

pub(crate) async fn challenge(identity: State<Identity>) -> HandlerResult<Json<Challenge>> {
    if identity.challenges.count() >= identity.rules.challenge_limit {
        return Err(Error::TooManyChallenges.into());
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    let challenge = identity.store.give_challenge(bytes, identity.rules.challenge_lives).await.map_err(Error::from)?;
    identity.challenges.add_one();
    Ok(Json(Challenge { challenge: encode(&challenge.bytes), expires_at: challenge.expires_at }))
}

pub(crate) async fn sign_in(
    identity: State<Identity>,
    request: HttpRequest,
    Json(body): Json<SignIn>,
) -> HandlerResult<HttpResponse> {
    let rules = &identity.rules;
    let newcomers = if request.headers().contains_key(NO_NEW_ACCOUNT) { Newcomers::Later } else { rules.newcomers };
    let proof = Proof::new(&body)?;
    let challenge = proof.challenge.ok_or(Error::BadProof)?;
    let is_good = proof.check(&rules.origins).is_ok();
    let outcome = identity.store.sign_in(challenge, proof.public_key, is_good, newcomers).await;
    let outcome = outcome.map_err(Error::from)?;
    identity.metrics.ended(outcome);
    let (user_id, is_new, now) = match outcome {
        SignInOutcome::In { user, is_new, now } => (user, is_new, now),
        SignInOutcome::Refused => return Err(Error::BadProof.into()),
        SignInOutcome::TurnedAway(newcomers) => return Err(Error::TurnedAway(newcomers).into()),
    };
    let (token, expires_at) = identity.ring.user_token(user_id, now, rules.lifetimes.user).map_err(Error::from)?;
    tracing::info!(user.id = %user_id, is_new, "Signed in");
    let mut response = HttpResponse::Ok();
    response.insert_header((CACHE_CONTROL, "no-store"));
    if is_new {
        response.insert_header((NEW_ACCOUNT, "1"));
    }
    Ok(response.json(SignedIn { success: true, token, user_id, expires_at }))
}
