//! Who calls: an application by its voice key, and where it says so, a person by a token.

use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use ensemble_chassis::auth::{bearer, caller_of};
use ensemble_chassis::{ApiError, Gate};
use ensemble_types::ids::{GatewaySessionId, UserId};
use ensemble_types::problem::{Code, Problem};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::VoiceGateway;
use crate::error::Error;
use crate::rates::Rates;
use crate::store::Found;

const X_VOICE_KEY: &str = "x-voice-key";

/// A digest of the key that was shown: names an application in limits, and is none of its secrets.
pub(crate) type KeyDigest = [u8; 32];

pub(crate) struct VoiceCaller {
    pub(crate) key: KeyDigest,
    /// The person, where the application sent a token along.
    user: Option<UserId>,
    pub(crate) address: Option<IpAddr>,
}

impl VoiceCaller {
    /// 403 when the person is somebody else than the call speaks of.
    pub(crate) fn must_be(&self, user_id: &str) -> Result<(), Error> {
        if self.may_see(user_id) { Ok(()) } else { Err(Error::OtherUser) }
    }

    fn may_see(&self, user_id: &str) -> bool {
        self.user.is_none_or(|user| user.to_string() == user_id)
    }
}

impl VoiceGateway {
    /// The session, if the caller may know of it.
    pub(crate) async fn visible(&self, caller: &VoiceCaller, id: &str) -> Result<Option<Found>, Error> {
        let Ok(id) = id.parse::<GatewaySessionId>() else { return Ok(None) };
        let found = self.store.find(id).await?;
        Ok(found.filter(|found| caller.may_see(&found.session.user_id)))
    }
}

impl FromRequest for VoiceCaller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request).map_err(ApiError::from))
    }
}

fn read(request: &HttpRequest) -> Result<VoiceCaller, Problem> {
    let Some(gateway) = request.app_data::<web::Data<VoiceGateway>>() else { return Err(Problem::unauthenticated()) };
    let shown = gateway.voice_keys.shown(request).ok_or_else(Problem::unauthenticated)?;
    let user = if shown.bearer_is_free {
        let caller = caller_of(request)?;
        if caller.machine.is_some() {
            return Err(Problem::new(Code::Forbidden, "A machine token cannot talk. Send a user's token."));
        }
        Some(caller.user)
    } else {
        None
    };
    if user.is_none() && gateway.require_user {
        return Err(Problem::new(
            Code::Unauthenticated,
            "Send the user's token as `Authorization: Bearer <token>`, and the voice key as `X-Voice-Key`.",
        ));
    }
    Ok(VoiceCaller { key: shown.key, user, address: address(request) })
}

/// The client's address: the edge writes the last entry of `X-Forwarded-For`; without an edge it is the peer.
fn address(request: &HttpRequest) -> Option<IpAddr> {
    let forwarded = request.headers().get("x-forwarded-for").and_then(|value| value.to_str().ok());
    let last = forwarded.and_then(|list| list.rsplit(',').next()).and_then(|one| one.trim().parse().ok());
    last.or_else(|| request.peer_addr().map(|peer| peer.ip()))
}

/// The keys of applications. Several are valid while one is being replaced.
pub(crate) struct VoiceKeys {
    digests: Vec<KeyDigest>,
    rates: Arc<Rates>,
}

struct Shown {
    key: KeyDigest,
    /// There is a bearer beside the key, which then is a person's token.
    bearer_is_free: bool,
}

impl VoiceKeys {
    pub(crate) fn new(keys: &[String], rates: Arc<Rates>) -> Self {
        Self { digests: keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect(), rates }
    }

    fn shown(&self, request: &HttpRequest) -> Option<Shown> {
        let bearer = bearer(request);
        match request.headers().get(X_VOICE_KEY) {
            Some(value) => {
                let key = self.match_key(value.as_bytes())?;
                match bearer.map(|token| self.match_key(token.as_bytes())) {
                    // Two keys name two applications, and a call has one.
                    Some(Some(other)) if other != key => None,
                    second => Some(Shown { key, bearer_is_free: second == Some(None) }),
                }
            }
            None => Some(Shown { key: self.match_key(bearer?.as_bytes())?, bearer_is_free: false }),
        }
    }

    /// Compares with every key, and every time in full, so that the time tells nothing.
    fn match_key(&self, shown: &[u8]) -> Option<KeyDigest> {
        let digest: KeyDigest = Sha256::digest(shown).into();
        let fits = self.digests.iter().fold(Choice::from(0), |fits, key| fits | key.ct_eq(&digest));
        bool::from(fits).then_some(digest)
    }
}

impl Gate for VoiceKeys {
    fn check(&self, request: &HttpRequest) -> Result<(), Problem> {
        let address = address(request);
        if self.shown(request).is_some() {
            return Ok(());
        }
        if let Err(retry_after) = self.rates.wrong_key(address) {
            return Err(Problem::new(Code::RateLimited, "Too many wrong voice keys.").with_retry_after(retry_after));
        }
        Err(Problem::new(
            Code::Unauthenticated,
            "Send the voice key as `X-Voice-Key` or as `Authorization: Bearer <voice key>`.",
        ))
    }
}
