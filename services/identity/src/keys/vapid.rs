//! The key by which push services know this server (VAPID, RFC 8292).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::time::Timestamp;
use p256::ecdsa::signature::Signer;
use p256::ecdsa::{Signature, SigningKey};
use secrecy::zeroize::Zeroizing;

use super::vault::{CannotOpen, Vault};

/// What the sealed key is bound to.
const NAME: &str = "vapid";
/// How long a token is good: RFC 8292 allows at most 24 hours.
const TOKEN_SECONDS: i64 = 12 * 60 * 60;

/// Signs to push services.
#[derive(Clone)]
pub(crate) struct Vapid {
    key: SigningKey,
    /// Whom a push service may write to when something is wrong: a `mailto:` or `https:` address.
    contact: Option<String>,
}

impl Vapid {
    /// A new private key, sealed.
    pub(crate) fn make(vault: &Vault) -> Result<Vec<u8>, CannotOpen> {
        let bytes = Zeroizing::new(SigningKey::random(&mut aes_gcm::aead::OsRng).to_bytes());
        vault.seal_bytes(NAME, &bytes)
    }

    pub(crate) fn open(vault: &Vault, sealed: &[u8], contact: Option<String>) -> Result<Self, CannotOpen> {
        let bytes = vault.open_bytes(NAME, sealed)?;
        let key = SigningKey::from_slice(&bytes).map_err(|_| CannotOpen)?;
        Ok(Self { key, contact })
    }

    /// The same key, sealed with the current key-encryption key.
    pub(crate) fn reseal(&self, vault: &Vault) -> Result<Vec<u8>, CannotOpen> {
        vault.seal_bytes(NAME, &Zeroizing::new(self.key.to_bytes()))
    }

    /// Uncompressed, in base64url: what browsers take as `applicationServerKey`.
    pub(crate) fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.verifying_key().to_encoded_point(false).as_bytes())
    }

    /// The header `Authorization` for a push service (RFC 8292, section 3). `origin` is the push service's.
    pub(crate) fn authorization(&self, origin: &str, now: Timestamp) -> String {
        let expires = now.unix_seconds() + TOKEN_SECONDS;
        let mut claims = serde_json::json!({ "aud": origin, "exp": expires });
        if let (Some(contact), Some(claims)) = (&self.contact, claims.as_object_mut()) {
            claims.insert("sub".to_owned(), contact.as_str().into());
        }
        let part = |json: String| URL_SAFE_NO_PAD.encode(json);
        let signed = format!("{}.{}", part(r#"{"typ":"JWT","alg":"ES256"}"#.to_owned()), part(claims.to_string()));
        let signature: Signature = self.key.sign(signed.as_bytes());
        format!("vapid t={signed}.{}, k={}", URL_SAFE_NO_PAD.encode(signature.to_bytes()), self.public_key())
    }
}
