//! Verifies webhooks: LiveKit's token is signed with our key and contains the digest of the body.
//!
//! The vendor's receiver is not used, because it also parses the event and fails on enum values that it does not know.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use livekit_api::access_token::TokenVerifier;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ApiKey;

/// The keys that webhooks may be signed with. Several are valid during a rotation.
pub(crate) struct WebhookKeys(Vec<TokenVerifier>);

impl WebhookKeys {
    pub(crate) fn new(keys: &[ApiKey]) -> Self {
        // Anyone could sign with an empty secret.
        let usable = keys.iter().filter(|pair| !pair.key.is_empty() && !pair.secret.expose_secret().is_empty());
        Self(usable.map(|pair| TokenVerifier::with_api_key(&pair.key, pair.secret.expose_secret())).collect())
    }

    /// The digest in a valid token, checked before the body is read. `authorization` is the whole header: the token without
    /// `Bearer`.
    pub(crate) fn signed_digest(&self, authorization: &str) -> Option<Digest256> {
        let claims = self.0.iter().find_map(|verifier| verifier.verify(authorization).ok())?;
        // The token of a participant is signed with the same key, and has no digest.
        STANDARD.decode(&claims.sha256).ok()?.try_into().ok().map(Digest256)
    }
}

/// The SHA-256 that the body must have.
pub(crate) struct Digest256([u8; 32]);

impl Digest256 {
    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        bool::from(self.0.as_slice().ct_eq(Sha256::digest(body).as_slice()))
    }
}
