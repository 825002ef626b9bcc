//! The agent's credential for the tool bridge: a JWT (RFC 7519, HS256) for one user and one session that expires with the
//! session. It is signed with the key that bridge and gateway share; the key itself is never sent.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::time::Timestamp;
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use sha2::Sha256;

use crate::domain::session::VoiceSession;

#[derive(Clone)]
pub(crate) struct ToolBridgeKey(pub(crate) SecretString);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Claims<'a> {
    iss: &'static str,
    /// The tool bridge's address: a credential for one bridge is not valid at another.
    aud: &'a str,
    sub: &'a str,
    session_id: &'a str,
    gateway_session_id: ensemble_types::ids::GatewaySessionId,
    iat: i64,
    exp: i64,
}

const HEADER: &[u8] = br#"{"alg":"HS256","typ":"JWT"}"#;

impl ToolBridgeKey {
    /// `None` when the session has no tool bridge, or the key cannot be used.
    pub(crate) fn credential(&self, session: &VoiceSession, now: Timestamp) -> Option<String> {
        let claims = Claims {
            iss: "ensemble-voice-gateway",
            aud: session.tool_bridge.as_deref()?,
            sub: &session.user_id,
            session_id: &session.session_id,
            gateway_session_id: session.id,
            iat: now.unix_seconds(),
            exp: session.expires_at.unix_seconds(),
        };
        let claims = serde_json::to_vec(&claims).ok()?;
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(claims));
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose_secret().as_bytes()).ok()?;
        mac.update(signed.as_bytes());
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())))
    }
}
