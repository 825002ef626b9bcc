//! Turns the `Authorization` header into a [`Caller`].

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::AUTHORIZATION;
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, web};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use ensemble_types::problem::{Code, Problem};
use ensemble_types::time::Timestamp;
use moka::sync::Cache;

use super::jwt::{self, BadToken, SCOPE_MACHINE, SCOPE_RECOVERY};
use super::{Access, DeviceKey, Gate, KeySet, KeySource};
use crate::Clock;
use crate::http::ApiError;

/// Our clock and identity's clock may differ by this many seconds.
const LEEWAY_SECONDS: i64 = 30;
/// How many verified tokens are cached, so that a signature is checked once and not with every request.
const CACHED_TOKENS: u64 = 20_000;
/// A token that was not used for this long is verified again.
const CACHED_FOR: Duration = Duration::from_secs(900);

/// The account that a verified token stands for, and its machine if it is a machine token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub user: UserId,
    /// Set for a machine token: the only machine that it may act for.
    pub machine: Option<MachineId>,
    /// The key that signed in. Only tokens from before there were devices have none.
    pub device: Option<DeviceKey>,
    /// Recovery words signed in: the token is for the list of devices and for nothing else.
    pub is_recovery: bool,
    pub token: TokenId,
    pub expires_at: Timestamp,
}

impl Caller {
    /// Checks that the token is still valid. Long answers call this again and again.
    pub fn check(&self, keys: &KeySet, now: Timestamp) -> Result<(), BadToken> {
        if now.unix_seconds() > self.expires_at.unix_seconds() + LEEWAY_SECONDS {
            return Err(BadToken::Expired);
        }
        // Before the revocation, because it says what to do.
        if self.device.is_some_and(|device| keys.is_removed(&device)) {
            return Err(BadToken::DeviceRemoved);
        }
        if keys.is_revoked(self.token) { Err(BadToken::Revoked) } else { Ok(()) }
    }
}

impl Caller {
    /// The caller, if its kind of token may call such a route: otherwise 403.
    fn with(self, access: Access) -> Result<Self, Problem> {
        let takes_recovery = matches!(access, Access::UserOrRecovery | Access::AnyToken);
        let takes_machines = matches!(access, Access::UserOrMachine | Access::Machine | Access::AnyToken);
        let refused = match &self.machine {
            _ if self.is_recovery && !takes_recovery => {
                "Recovery words can only read and change the list of devices. Add a device with them, and sign in with it."
            }
            Some(_) if !takes_machines => "A machine token cannot do this. Sign in as a user.",
            None if access == Access::Machine => {
                "Only a machine token can do this. Make one with POST /v1/auth/tokens."
            }
            _ => return Ok(self),
        };
        Err(Problem::new(Code::Forbidden, refused))
    }
}

/// What a service needs to identify callers. Each running service has one in its application data.
pub struct AuthContext {
    keys: Arc<dyn KeySource>,
    gate: Option<Arc<dyn Gate>>,
    clock: Clock,
    cached: Cache<Box<str>, CachedToken>,
}

#[derive(Clone)]
struct CachedToken {
    kid: Arc<str>,
    caller: Caller,
}

impl AuthContext {
    pub fn new(keys: Arc<dyn KeySource>, gate: Option<Arc<dyn Gate>>, clock: Clock) -> Self {
        jwt::install_provider();
        Self {
            keys,
            gate,
            clock,
            cached: Cache::builder().max_capacity(CACHED_TOKENS).time_to_idle(CACHED_FOR).build(),
        }
    }

    /// The caller of a request with a valid bearer token: 401 without one, 503 when the keys are not available.
    pub fn caller(&self, request: &HttpRequest) -> Result<Caller, Problem> {
        let token = bearer(request).ok_or_else(Problem::unauthenticated)?;
        let keys = self.keys.current().map_err(|_| {
            Problem::new(Code::Unavailable, "The signing keys cannot be fetched at the moment. Try again shortly.")
                .with_retry_after(2)
        })?;
        self.verify(token, &keys).map_err(|reason| {
            tracing::debug!(%reason, "Refused a token");
            match reason {
                BadToken::DeviceRemoved => Problem::device_removed(),
                _ => Problem::unauthenticated(),
            }
        })
    }

    /// The caller that a token belongs to, for rate limits.
    pub fn identify(&self, token: &str) -> Option<Caller> {
        let keys = self.keys.current().ok()?;
        self.verify(token, &keys).ok()
    }

    /// A caller with the access that the route requires; `None` for public routes.
    pub fn admit(&self, access: Access, request: &HttpRequest) -> Result<Option<Caller>, Problem> {
        match access {
            Access::Public | Access::VoiceAgent | Access::Webhook => Ok(None),
            Access::VoiceKey | Access::VoicePerson => match &self.gate {
                Some(gate) => gate.check(request).map(|()| None),
                None => Err(Problem::unauthenticated()),
            },
            Access::User | Access::UserOrMachine | Access::Machine | Access::UserOrRecovery | Access::AnyToken => {
                self.caller(request)?.with(access).map(Some)
            }
        }
    }

    fn verify(&self, token: &str, keys: &KeySet) -> Result<Caller, BadToken> {
        let now = self.clock.now();
        if let Some(known) = self.cached.get(token)
            && keys.key(&known.kid).is_some()
        {
            known.caller.check(keys, now)?;
            return Ok(known.caller);
        }
        let kid = jwt::key_id(token)?;
        let key = keys.key(&kid).ok_or(BadToken::UnknownKey)?;
        let verified = jwt::verify(token, key)?;
        if verified.valid_from() > now.unix_seconds() + LEEWAY_SECONDS {
            return Err(BadToken::TooEarly);
        }
        let claims = verified.claims;
        let caller = Caller {
            user: claims.sub,
            machine: claims.machine_id.filter(|_| claims.scope == SCOPE_MACHINE),
            device: claims.device,
            is_recovery: claims.scope == SCOPE_RECOVERY,
            token: claims.jti,
            expires_at: Timestamp::from_unix_seconds(claims.exp),
        };
        caller.check(keys, now)?;
        self.cached.insert(token.into(), CachedToken { kid: kid.into(), caller: caller.clone() });
        Ok(caller)
    }
}

/// The token of `Authorization: Bearer <token>` (RFC 6750, section 2.1), unless the header is there more than once.
pub fn bearer(request: &HttpRequest) -> Option<&str> {
    let mut values = request.headers().get_all(AUTHORIZATION);
    let (first, second) = (values.next()?, values.next());
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    (second.is_none() && scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.trim_start())
}

/// Verifies the bearer of a request on a route that does not demand one. A token of recovery words is 403.
pub fn caller_of(request: &HttpRequest) -> Result<Caller, Problem> {
    match request.app_data::<web::Data<AuthContext>>() {
        Some(context) => context.caller(request)?.with(Access::UserOrMachine),
        None => Err(Problem::new(Code::Internal, "This service cannot verify tokens.")),
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // The route's check inserted it; a public route has none.
        ready(request.extensions().get::<Self>().cloned().ok_or_else(|| Problem::unauthenticated().into()))
    }
}
