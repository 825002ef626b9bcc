//! The code that links a device: the id of the linking, and a secret that no server sees.

use std::fmt;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use ensemble_types::devices::DeviceLinkAnswer;
use hkdf::Hkdf;
use rand::RngCore;
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;

use super::encoding::{decode, decode_array, encode};
use super::{Result, SealError};

const FORM: &str = "v1.";
const ANSWER: &str = "ensemble-link-answer-v1";

/// What the QR code holds: `<address>/link#v1.<id>.<secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkCode {
    /// The address of the server, without a path.
    pub base: String,
    pub id: String,
    secret: Zeroizing<[u8; 32]>,
}

impl LinkCode {
    pub fn new(base: &str, id: &str) -> Self {
        let mut secret = Zeroizing::new([0; 32]);
        rand::rngs::OsRng.fill_bytes(secret.as_mut());
        Self { base: base.trim_end_matches('/').to_owned(), id: id.to_owned(), secret }
    }

    /// The whole address. A secret for ten minutes.
    pub fn address(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}/link#{FORM}{}.{}", self.base, self.id, encode(self.secret.as_ref())))
    }

    /// Reads [`Self::address`].
    pub fn from_address(address: &str) -> Result<Self> {
        let (page, fragment) = address.trim().split_once('#').ok_or(SealError::Format)?;
        let base = page.trim_end_matches('/').strip_suffix("/link").ok_or(SealError::Format)?;
        let (id, secret) =
            fragment.strip_prefix(FORM).and_then(|rest| rest.split_once('.')).ok_or(SealError::Format)?;
        decode_array::<16>(id)?;
        Ok(Self { base: base.to_owned(), id: id.to_owned(), secret: Zeroizing::new(decode_array(secret)?) })
    }

    /// For the codes of [`crate::lists::LinkText`].
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// `base64url(nonce (12) | AES-256-GCM of the answer as JSON | tag (16))`, with a key that is derived from the secret.
    pub fn seal_answer(&self, answer: &DeviceLinkAnswer) -> Result<String> {
        let plaintext = serde_json::to_vec(answer).map_err(|_| SealError::Format)?;
        let mut nonce = [0; 12];
        rand::rngs::OsRng.fill_bytes(&mut nonce);
        let associated = self.associated_data();
        let payload = Payload { msg: &plaintext, aad: associated.as_bytes() };
        let sealed = self.cipher()?.encrypt(Nonce::from_slice(&nonce), payload).map_err(|_| SealError::TooLong)?;
        Ok(encode(&[nonce.as_slice(), &sealed].concat()))
    }

    pub fn open_answer(&self, sealed: &str) -> Result<DeviceLinkAnswer> {
        let blob = decode(sealed)?;
        let (nonce, sealed) = blob.split_first_chunk::<12>().ok_or(SealError::Format)?;
        let associated = self.associated_data();
        let payload = Payload { msg: sealed, aad: associated.as_bytes() };
        let plaintext = self.cipher()?.decrypt(Nonce::from_slice(nonce), payload).map_err(|_| SealError::Refused)?;
        serde_json::from_slice(&plaintext).map_err(|_| SealError::Format)
    }

    fn cipher(&self) -> Result<Aes256Gcm> {
        let mut key = Zeroizing::new([0; 32]);
        let derivation = Hkdf::<Sha256>::new(None, self.secret.as_ref());
        derivation.expand(ANSWER.as_bytes(), key.as_mut()).map_err(|_| SealError::Format)?;
        Ok(Aes256Gcm::new(key.as_ref().into()))
    }

    fn associated_data(&self) -> String {
        format!("{ANSWER}\n{}", self.id)
    }
}

impl fmt::Debug for LinkCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkCode({}, {})", self.base, self.id)
    }
}
