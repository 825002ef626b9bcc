//! The X25519 key pair to which others seal keys. It is derived from the account key and signed by it.
//!
//! Because it is derived, one 32-byte file restores everything. Because it is signed, neither the server nor a stolen
//! token can replace it. Verify the signature before you seal anything to a user.

use std::fmt;

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::accounts::PublicUser;
use hkdf::Hkdf;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, Serializable};
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};

use super::encoding::{decode_array, encode};
use super::{Result, SealError};
use crate::account_key::AccountKey;

const DERIVATION: &[u8] = b"ensemble-content-key-v1";

/// The key pair with which an account receives keys.
pub struct ContentKeyPair {
    secret: Zeroizing<[u8; 32]>,
    public: ContentPublicKey,
}

/// The public half, to which others seal keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentPublicKey([u8; 32]);

impl ContentKeyPair {
    /// The account's pair: `HKDF-SHA256(salt = "", ikm = the Ed25519 seed, info = "ensemble-content-key-v1")`, 32 bytes
    /// taken as an X25519 secret (RFC 7748, section 5).
    pub fn of(account: &AccountKey) -> Result<Self> {
        let mut secret = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, account.seed().as_ref())
            .expand(DERIVATION, secret.as_mut())
            .map_err(|_| SealError::Format)?;
        let private =
            <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(secret.as_ref()).map_err(|_| SealError::Format)?;
        let public = <X25519HkdfSha256 as Kem>::sk_to_pk(&private).to_bytes();
        Ok(Self { secret, public: ContentPublicKey(public.into()) })
    }

    pub fn public(&self) -> ContentPublicKey {
        self.public
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl ContentPublicKey {
    /// The key in its wire format: base64url without padding.
    pub fn to_text(self) -> String {
        encode(&self.0)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The account's signature over this key, for `contentPublicKeySignature`.
    pub fn signed_by(self, account: &AccountKey) -> String {
        account.sign(signed_text(&self).as_bytes())
    }

    /// The content key of another user. Fails unless that user's account key signed it.
    pub fn of_user(user: &PublicUser) -> Result<Self> {
        let (Some(key), Some(signature)) = (&user.content_public_key, &user.content_public_key_signature) else {
            return Err(SealError::NoContentKey);
        };
        let key = Self(decode_array(key)?);
        let account = VerifyingKey::from_bytes(&decode_array(&user.public_key)?).map_err(|_| SealError::Format)?;
        let signature = Signature::from_bytes(&decode_array(signature)?);
        account.verify_strict(signed_text(&key).as_bytes(), &signature).map_err(|_| SealError::Signature)?;
        Ok(key)
    }
}

fn signed_text(key: &ContentPublicKey) -> String {
    format!("ensemble-content-key-v1\n{}", key.to_text())
}

/// A fingerprint of an account's public key for people to compare: the first 80 bits of its SHA-256, in groups.
pub fn fingerprint(public_key: &str) -> Result<String> {
    let digest = Sha256::digest(decode_array::<32>(public_key)?);
    let groups = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    Ok(groups.chunks(2).map(<[String]>::concat).collect::<Vec<_>>().join("-"))
}

impl fmt::Debug for ContentPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentPublicKey({})", self.to_text())
    }
}

impl fmt::Debug for ContentKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentKeyPair({:?})", self.public)
    }
}
