//! Reads the caller from a request: the application's voice key, and a person's token if there is one.

use std::future::{Ready, ready};
use std::net::IpAddr;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_chassis::auth::{bearer, caller_of};
use ensemble_chassis::{ApiError, Gate};
use ensemble_types::ids::UserId;
use ensemble_types::problem::{Code, Problem};
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::VoiceGateway;
use crate::domain::caller::{KeyDigest, VoiceCaller};
use crate::domain::start_token::StartToken;
use crate::rates::Rates;

const X_VOICE_KEY: &str = "x-voice-key";

impl FromRequest for VoiceCaller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(read(request).map_err(ApiError::from))
    }
}

/// A person who sends their own token with the voice key. The voice key alone is not enough.
pub(crate) struct VoicePerson {
    pub(crate) user: UserId,
    pub(crate) caller: VoiceCaller,
}

impl FromRequest for VoicePerson {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let person = read(request).and_then(|caller| {
            let user = caller.user.ok_or_else(needs_user)?;
            Ok(Self { user, caller })
        });
        ready(person.map_err(ApiError::from))
    }
}

fn needs_user() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "Send the user's token as `Authorization: Bearer <token>`, and the voice key as `X-Voice-Key`.",
    )
}

fn read(request: &HttpRequest) -> Result<VoiceCaller, Problem> {
    let Some(service) = request.app_data::<web::Data<VoiceGateway>>() else { return Err(Problem::unauthenticated()) };
    let credentials = service.voice_keys.credentials(request).ok_or_else(Problem::unauthenticated)?;
    let person = if credentials.has_user_token {
        let caller = caller_of(request)?;
        if caller.machine.is_some() {
            return Err(Problem::new(Code::Forbidden, "A machine token cannot use voice. Send a user's token."));
        }
        Some(caller)
    } else {
        None
    };
    if person.is_none() && service.require_user {
        return Err(needs_user());
    }
    Ok(VoiceCaller {
        key: credentials.key,
        user: person.as_ref().map(|caller| caller.user),
        token: person.as_ref().map(StartToken::of),
        address: address(request),
    })
}

/// The client's address for rate limits: the last entry of `X-Forwarded-For`, which the edge writes, else the address of
/// the connection.
pub(super) fn address(request: &HttpRequest) -> Option<IpAddr> {
    let forwarded = request.headers().get("x-forwarded-for").and_then(|value| value.to_str().ok());
    let last = forwarded.and_then(|list| list.rsplit(',').next()).and_then(|one| one.trim().parse().ok());
    last.or_else(|| request.peer_addr().map(|peer| peer.ip()))
}

/// The key of our own page and program, which they ask for with a person's token. Every signed-in user can get it, so it counts
/// only together with a person's token. It is derived from LiveKit's secret, so that all replicas have the same one.
struct PageKey {
    key: String,
    digest: KeyDigest,
}

impl PageKey {
    fn new(secret: &SecretString) -> Option<Self> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
        mac.update(b"ensemble voice page key v1");
        let key = format!("page-{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()));
        Some(Self { digest: Sha256::digest(key.as_bytes()).into(), key })
    }
}

/// The voice keys of applications. Several are valid during a rotation.
pub(crate) struct VoiceKeys {
    digests: Vec<KeyDigest>,
    page: Option<PageKey>,
    rates: Arc<Rates>,
}

struct Credentials {
    key: KeyDigest,
    /// The bearer is not a voice key, so it is a person's token.
    has_user_token: bool,
}

impl VoiceKeys {
    /// Without a key of an application voice is off, and the page gets none either.
    pub(crate) fn new(keys: &[String], livekit_secret: &SecretString, rates: Arc<Rates>) -> Self {
        let page = if keys.is_empty() { None } else { PageKey::new(livekit_secret) };
        let mut digests: Vec<KeyDigest> = keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect();
        digests.extend(page.as_ref().map(|page| page.digest));
        Self { digests, page, rates }
    }

    /// `None`: voice is off.
    pub(crate) fn of_page(&self) -> Option<&str> {
        self.page.as_ref().map(|page| page.key.as_str())
    }

    fn needs_user(&self, credentials: &Credentials) -> bool {
        !credentials.has_user_token && self.page.as_ref().is_some_and(|page| page.digest == credentials.key)
    }

    fn credentials(&self, request: &HttpRequest) -> Option<Credentials> {
        let bearer = bearer(request);
        match request.headers().get(X_VOICE_KEY) {
            Some(value) => {
                let key = self.match_key(value.as_bytes())?;
                match bearer.map(|token| self.match_key(token.as_bytes())) {
                    // Two keys identify two applications, and a request has one.
                    Some(Some(other)) if other != key => None,
                    second => Some(Credentials { key, has_user_token: second == Some(None) }),
                }
            }
            None => Some(Credentials { key: self.match_key(bearer?.as_bytes())?, has_user_token: false }),
        }
    }

    /// Compares with every key in constant time, so that the duration reveals nothing.
    fn match_key(&self, candidate: &[u8]) -> Option<KeyDigest> {
        let digest: KeyDigest = Sha256::digest(candidate).into();
        let fits = self.digests.iter().fold(Choice::from(0), |fits, key| fits | key.ct_eq(&digest));
        bool::from(fits).then_some(digest)
    }
}

impl Gate for VoiceKeys {
    fn check(&self, request: &HttpRequest) -> Result<(), Problem> {
        if let Some(credentials) = self.credentials(request) {
            return if self.needs_user(&credentials) { Err(needs_user()) } else { Ok(()) };
        }
        if let Err(retry_after) = self.rates.wrong_key(address(request)) {
            let detail = format!(
                "There were too many requests with a wrong voice key from your address. The next one is allowed in {retry_after} s."
            );
            return Err(Problem::new(Code::RateLimited, detail).with_retry_after(retry_after));
        }
        Err(Problem::new(
            Code::Unauthenticated,
            "Send the voice key as `X-Voice-Key` or as `Authorization: Bearer <voice key>`.",
        ))
    }
}
