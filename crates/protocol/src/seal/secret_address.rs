//! Addresses whose fragment has a secret that no server sees: the code that links a device, and an invitation.

use std::fmt;
use std::marker::PhantomData;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use ensemble_types::devices::DeviceLinkAnswer;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use hkdf::Hkdf;
use rand::RngCore;
use secrecy::zeroize::Zeroizing;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::encoding::{decode, decode_array, encode};
use super::{Result, SealError};
use crate::transcript::words::May;

const FORM: &str = "v1.";
const ADMISSION: &str = "ensemble-invite-admission-v1";

/// What an address leads to.
pub trait Leads {
    /// The page of the address.
    const PAGE: &'static str;
    /// For the key that seals the answer.
    const ANSWER: &'static str;
    type Answer: Serialize + DeserializeOwned;
}

/// See [`LinkCode`].
#[derive(Clone, PartialEq, Eq)]
pub struct ToLink;

/// See [`InviteCode`].
#[derive(Clone, PartialEq, Eq)]
pub struct ToInvite;

impl Leads for ToLink {
    const PAGE: &'static str = "link";
    const ANSWER: &'static str = "ensemble-link-answer-v1";
    type Answer = DeviceLinkAnswer;
}

impl Leads for ToInvite {
    const PAGE: &'static str = "join";
    const ANSWER: &'static str = "ensemble-invite-answer-v1";
    type Answer = InviteAnswer;
}

/// The code that links a device, as its QR code holds it: `<address>/link#v1.<id>.<secret>`.
pub type LinkCode = SecretAddress<ToLink>;

/// An invitation: `<address>/join#v1.<id>.<secret>`.
pub type InviteCode = SecretAddress<ToInvite>;

/// What the answer of an invitation says when it is opened: the session, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteAnswer {
    pub session: SessionId,
    /// The public key of the session's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    pub owner: UserId,
    /// The public key of the owner's account.
    pub account: String,
    pub version: u32,
    /// SHA-256 of the body of that version of the owner's device list.
    pub digest: String,
    pub level: ShareLevel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<May>,
    pub name: String,
}

/// An address with an id that the server knows, and a secret that it does not know.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretAddress<L> {
    /// The address of the server, without a path.
    pub base: String,
    pub id: String,
    secret: Zeroizing<[u8; 32]>,
    leads: PhantomData<L>,
}

impl<L: Leads> SecretAddress<L> {
    pub fn new(base: &str, id: &str) -> Self {
        Self::with_secret(base, id, new_secret())
    }

    pub fn with_secret(base: &str, id: &str, secret: Zeroizing<[u8; 32]>) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), id: id.to_owned(), secret, leads: PhantomData }
    }

    /// The whole address. A secret as long as the id counts.
    pub fn address(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}/{}#{FORM}{}.{}", self.base, L::PAGE, self.id, encode(self.secret.as_ref())))
    }

    /// Reads [`Self::address`].
    pub fn from_address(address: &str) -> Result<Self> {
        let (page, fragment) = address.trim().split_once('#').ok_or(SealError::Format)?;
        let base = page.trim_end_matches('/').strip_suffix(L::PAGE).and_then(|base| base.strip_suffix('/'));
        let (id, secret) =
            fragment.strip_prefix(FORM).and_then(|rest| rest.split_once('.')).ok_or(SealError::Format)?;
        decode_array::<16>(id)?;
        Ok(Self::with_secret(base.ok_or(SealError::Format)?, id, Zeroizing::new(decode_array(secret)?)))
    }

    /// For the codes of [`crate::lists::LinkText`] and [`crate::lists::ClaimText`].
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// `base64url(nonce (12) | AES-256-GCM of the answer as JSON | tag (16))`, with a key that is derived from the secret.
    pub fn seal_answer(&self, answer: &L::Answer) -> Result<String> {
        let plaintext = serde_json::to_vec(answer).map_err(|_| SealError::Format)?;
        let mut nonce = [0; 12];
        rand::rngs::OsRng.fill_bytes(&mut nonce);
        let associated = self.associated_data();
        let payload = Payload { msg: &plaintext, aad: associated.as_bytes() };
        let sealed = self.cipher()?.encrypt(Nonce::from_slice(&nonce), payload).map_err(|_| SealError::TooLong)?;
        Ok(encode(&[nonce.as_slice(), &sealed].concat()))
    }

    pub fn open_answer(&self, sealed: &str) -> Result<L::Answer> {
        let blob = decode(sealed)?;
        let (nonce, sealed) = blob.split_first_chunk::<12>().ok_or(SealError::Format)?;
        let associated = self.associated_data();
        let payload = Payload { msg: sealed, aad: associated.as_bytes() };
        let plaintext = self.cipher()?.decrypt(Nonce::from_slice(nonce), payload).map_err(|_| SealError::Refused)?;
        serde_json::from_slice(&plaintext).map_err(|_| SealError::Format)
    }

    fn cipher(&self) -> Result<Aes256Gcm> {
        Ok(Aes256Gcm::new(derived(&self.secret, L::ANSWER)?.as_ref().into()))
    }

    fn associated_data(&self) -> String {
        format!("{}\n{}", L::ANSWER, self.id)
    }
}

impl InviteCode {
    /// What the server lets a new account in for, in base64url.
    pub fn admission(&self) -> Result<Zeroizing<String>> {
        Ok(Zeroizing::new(encode(derived(&self.secret, ADMISSION)?.as_ref())))
    }

    /// The SHA-256 of the admission of a secret, in base64url: all that the server keeps of it.
    pub fn admission_digest(secret: &[u8; 32]) -> Result<String> {
        Ok(encode(&Sha256::digest(derived(secret, ADMISSION)?.as_ref())))
    }
}

/// 256 random bits.
pub fn new_secret() -> Zeroizing<[u8; 32]> {
    let mut secret = Zeroizing::new([0; 32]);
    rand::rngs::OsRng.fill_bytes(secret.as_mut());
    secret
}

/// HKDF-SHA256 of the secret, without salt (RFC 5869).
fn derived(secret: &[u8; 32], purpose: &str) -> Result<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, secret).expand(purpose.as_bytes(), key.as_mut()).map_err(|_| SealError::Format)?;
    Ok(key)
}

impl<L: Leads> fmt::Debug for SecretAddress<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretAddress({}/{}, {})", self.base, L::PAGE, self.id)
    }
}
