//! The Ed25519 key pair that identifies an account. It signs sign-ins and the content key, and never signs contents.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use rand::RngCore;
use secrecy::zeroize::Zeroizing;

const TEXT: &str = "ensemble-account-key-v1:";

/// An Ed25519 key pair (RFC 8032), kept as its 32-byte seed.
#[derive(Clone)]
pub struct AccountKey(Arc<SigningKey>);

impl AccountKey {
    /// Creates the key of a new account.
    pub fn generate() -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rand::rngs::OsRng.fill_bytes(seed.as_mut());
        Self::from_seed(&seed)
    }

    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(seed)))
    }

    /// The seed. Back it up in a safe place: without it the account is lost.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The seed as one line of text. The prefix says what it is.
    pub fn to_text(&self) -> Zeroizing<String> {
        let seed = Zeroizing::new(URL_SAFE_NO_PAD.encode(self.seed().as_ref()));
        Zeroizing::new(format!("{TEXT}{}\n", seed.as_str()))
    }

    /// Reads the text that [`Self::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        let seed = Zeroizing::new(URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(TEXT)?).ok()?);
        seed.as_slice().try_into().ok().map(Self::from_seed)
    }

    /// The public key in its wire format: base64url without padding.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.verifying_key().as_bytes())
    }

    /// The key itself, for formats that sign in their own way.
    pub fn signing_key(&self) -> &SigningKey {
        &self.0
    }

    /// An Ed25519 signature, base64url without padding.
    pub fn sign(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.0.sign(message).to_bytes())
    }

    /// The signature of a sign-in. It covers the dialled origin, so that another server cannot reuse it.
    pub fn sign_challenge(&self, origin: &str, challenge: &str) -> String {
        self.sign(format!("ensemble-auth-v1\n{origin}\n{}\n{challenge}", self.public_key()).as_bytes())
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccountKey({})", self.public_key())
    }
}
