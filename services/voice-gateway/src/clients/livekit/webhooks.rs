//! Whether a webhook comes from LiveKit: its token is signed with our key and names the digest of the body.
//!
//! The vendor's receiver would also parse the event, and fails on any enum value that is newer than itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use livekit_api::access_token::TokenVerifier;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::ApiKey;

/// The keys that webhooks may be signed with: several while one is being replaced.
pub(crate) struct WebhookKeys(Vec<TokenVerifier>);

impl WebhookKeys {
    pub(crate) fn new(keys: &[ApiKey]) -> Self {
        // An empty secret would be known to everybody.
        let usable = keys.iter().filter(|pair| !pair.key.is_empty() && !pair.secret.expose_secret().is_empty());
        Self(usable.map(|pair| TokenVerifier::with_api_key(&pair.key, pair.secret.expose_secret())).collect())
    }

    /// The digest that a genuine token names; what it belongs to can be read then. `authorization` is the header as it
    /// came: the bare token, without `Bearer`.
    pub(crate) fn announced(&self, authorization: &str) -> Option<Digest256> {
        let claims = self.0.iter().find_map(|verifier| verifier.verify(authorization).ok())?;
        // The token of a participant is signed with the same key, and has no digest.
        STANDARD.decode(&claims.sha256).ok()?.try_into().ok().map(Digest256)
    }
}

/// A SHA-256 that a body should have.
pub(crate) struct Digest256([u8; 32]);

impl Digest256 {
    pub(crate) fn is_of(&self, body: &[u8]) -> bool {
        bool::from(self.0.as_slice().ct_eq(Sha256::digest(body).as_slice()))
    }
}
