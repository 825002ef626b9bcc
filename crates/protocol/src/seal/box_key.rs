//! X25519 key pairs to which keys are sealed: one of each device, one of the recovery words, and one of the account for each
//! content epoch.
//!
//! Take a public key only from a device list that was checked, or, for an account without a list, with the signature of its
//! account key. So neither the server nor a stolen token can put another one in place.

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
use crate::AccountKey;

const DERIVATION: &[u8] = b"ensemble-content-key-v1";
const DEVICE_DERIVATION: &[u8] = b"ensemble-device-box-v1";

/// A key pair with which a device or an account receives keys.
pub struct BoxKeyPair {
    secret: Zeroizing<[u8; 32]>,
    public: BoxPublicKey,
}

/// The public half, to which others seal keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BoxPublicKey([u8; 32]);

impl BoxKeyPair {
    /// The account's pair: `HKDF-SHA256(salt = "", ikm = the Ed25519 seed, info = "ensemble-content-key-v1")`, 32 bytes
    /// taken as an X25519 secret (RFC 7748, section 5).
    pub fn of(account: &AccountKey) -> Result<Self> {
        Self::derived(account.seed().as_ref(), DERIVATION)
    }

    /// The pair of a device, derived from its Ed25519 seed in the same way with the info `ensemble-device-box-v1`.
    pub fn of_device(device: &AccountKey) -> Result<Self> {
        Self::derived(device.seed().as_ref(), DEVICE_DERIVATION)
    }

    /// `HKDF-SHA256(salt = "", ikm, info)`, 32 bytes taken as an X25519 secret.
    pub(crate) fn derived(ikm: &[u8], info: &[u8]) -> Result<Self> {
        let mut secret = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(None, ikm).expand(info, secret.as_mut()).map_err(|_| SealError::Format)?;
        Self::from_secret(secret)
    }

    pub(crate) fn from_secret(secret: Zeroizing<[u8; 32]>) -> Result<Self> {
        let private =
            <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(secret.as_ref()).map_err(|_| SealError::Format)?;
        let public = <X25519HkdfSha256 as Kem>::sk_to_pk(&private).to_bytes();
        Ok(Self { secret, public: BoxPublicKey(public.into()) })
    }

    pub fn public(&self) -> BoxPublicKey {
        self.public
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl BoxPublicKey {
    /// Reads [`Self::to_text`].
    pub fn from_text(text: &str) -> Result<Self> {
        Ok(Self(decode_array(text)?))
    }

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

fn signed_text(key: &BoxPublicKey) -> String {
    format!("ensemble-content-key-v1\n{}", key.to_text())
}

/// A fingerprint of an account's public key for people to compare: the first 80 bits of its SHA-256, in groups.
pub fn fingerprint(public_key: &str) -> Result<String> {
    let digest = Sha256::digest(decode_array::<32>(public_key)?);
    let groups = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    Ok(groups.chunks(2).map(<[String]>::concat).collect::<Vec<_>>().join("-"))
}

impl fmt::Debug for BoxPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoxPublicKey({})", self.to_text())
    }
}

impl fmt::Debug for BoxKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoxKeyPair({:?})", self.public)
    }
}
