//! The proof of a sign-in, and the origins that it may be for.

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::accounts::SignIn;

use super::encoding::{decode, decode_canonical};
use super::{Origin, encode};

/// A sign-in of the right form. It is not checked yet.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The account.
    pub(crate) public_key: [u8; 32],
    /// The challenge, if it can be one of ours.
    pub(crate) challenge: Option<[u8; 32]>,
    received: String,
    signature: [u8; 64],
    origin: String,
}

/// A field of a sign-in that has the wrong form: its name on the wire, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub(crate) struct MalformedProof {
    pub(crate) field: &'static str,
    pub(crate) rule: &'static str,
}

/// The proof is not valid. It does not say which part of it, so that callers cannot learn it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proof is not valid")]
pub(crate) struct InvalidProof;

impl Proof {
    pub(crate) fn new(body: &SignIn) -> Result<Self, MalformedProof> {
        let malformed = |field, rule| MalformedProof { field, rule };
        Ok(Self {
            public_key: decode(&body.public_key).ok_or(malformed("publicKey", "must be 32 bytes in base64"))?,
            challenge: decode_canonical(&body.challenge),
            received: body.challenge.to_string(),
            signature: decode(&body.signature).ok_or(malformed("signature", "must be 64 bytes in base64"))?,
            origin: body.origin.to_string(),
        })
    }

    /// Whether the holder of the account's key signed this challenge for one of our origins. The check is strict: keys of
    /// small order and signatures that are not in canonical form are refused (RFC 8032, section 5.1.7).
    pub(crate) fn check(&self, ours: &[Origin]) -> Result<(), InvalidProof> {
        let origin = self.origin.parse::<Origin>().map_err(|_| InvalidProof)?;
        if !ours.contains(&origin) {
            return Err(InvalidProof);
        }
        let key = VerifyingKey::from_bytes(&self.public_key).map_err(|_| InvalidProof)?;
        let signed = format!("ensemble-auth-v1\n{}\n{}\n{}", self.origin, encode(&self.public_key), self.received);
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&self.signature)).map_err(|_| InvalidProof)
    }
}
