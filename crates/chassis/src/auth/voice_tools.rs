//! The token with which the agent of one voice session reads for its user: a JWT (RFC 7519) signed with EdDSA as access tokens are,
//! of another `typ` and audience, so that neither is taken for the other. Its verifier also checks that the session is open.

use ed25519_dalek::SigningKey;
use ensemble_types::ids::{GatewaySessionId, TokenId, UserId};
use ensemble_types::time::Timestamp;
use jsonwebtoken::errors::Error;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize};

use super::KeySet;
use super::jwt::{self, BadToken, ISSUER};

pub const AUDIENCE_VOICE_TOOLS: &str = "voice-tools";
/// RFC 8725, section 3.11.
const TOKEN_TYPE: &str = "voice-tools+jwt";
/// The clocks of identity and of the verifier may differ by this many seconds.
const LEEWAY_SECONDS: i64 = 30;

/// The claims. All are required.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VoiceToolClaims {
    pub iss: String,
    pub aud: String,
    pub sub: UserId,
    pub jti: TokenId,
    #[serde(rename = "voiceSessionId")]
    pub voice_session: GatewaySessionId,
    /// Seconds since 1970.
    pub iat: i64,
    /// Seconds since 1970.
    pub exp: i64,
}

impl VoiceToolClaims {
    pub fn new(user: UserId, voice_session: GatewaySessionId, now: Timestamp, expires_at: Timestamp) -> Self {
        Self {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE_VOICE_TOOLS.to_owned(),
            sub: user,
            jti: TokenId::generate(),
            voice_session,
            iat: now.unix_seconds(),
            exp: expires_at.unix_seconds(),
        }
    }

    /// Signs with the key that is published as `kid`.
    pub fn sign(&self, kid: &str, key: &SigningKey) -> Result<String, Error> {
        jwt::sign_as(TOKEN_TYPE, self, kid, key)
    }

    /// The claims of a valid token.
    pub fn verify(token: &str, keys: &KeySet, now: Timestamp) -> Result<Self, BadToken> {
        let kid = jwt::key_id_as(TOKEN_TYPE, token)?;
        let key = keys.key(&kid).ok_or(BadToken::UnknownKey)?;
        let mut rules = Validation::new(Algorithm::EdDSA);
        rules.set_issuer(&[ISSUER]);
        rules.set_audience(&[AUDIENCE_VOICE_TOOLS]);
        rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
        // Times are compared with the service's own clock.
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Self>(token, &DecodingKey::from_ed_der(key.as_bytes()), &rules)
            .map_err(BadToken::Signature)?
            .claims;
        let now = now.unix_seconds();
        if claims.iat > now + LEEWAY_SECONDS {
            return Err(BadToken::TooEarly);
        }
        if claims.exp < now { Err(BadToken::Expired) } else { Ok(claims) }
    }
}
