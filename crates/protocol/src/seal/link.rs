//! The secret of a public link. It is in the fragment of the link, which browsers never send to a server.

use std::fmt;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use ensemble_types::ids::SessionId;
use rand::RngCore;
use secrecy::zeroize::Zeroizing;

use super::encoding::{decode, decode_array, encode};
use super::ring::KeyRing;
use super::{Result, SealError};

const VERSION: u8 = 1;
const FRAGMENT: &str = "v1.";

/// 256 random bits that decrypt the session's ring for everyone who has the complete link.
#[derive(Clone)]
pub struct LinkSecret(Zeroizing<[u8; 32]>);

impl LinkSecret {
    pub fn generate() -> Self {
        let mut secret = Zeroizing::new([0; 32]);
        rand::rngs::OsRng.fill_bytes(secret.as_mut());
        Self(secret)
    }

    /// The fragment of the link: `v1.` and the secret in base64url.
    pub fn fragment(&self) -> String {
        format!("{FRAGMENT}{}", encode(self.0.as_ref()))
    }

    /// Reads a fragment, also one that names a machine.
    pub fn from_fragment(fragment: &str) -> Result<Self> {
        let parts = fragment.trim_start_matches('#').strip_prefix(FRAGMENT).ok_or(SealError::Format)?;
        let (secret, host) = parts.split_once('.').map_or((parts, None), |(secret, host)| (secret, Some(host)));
        if let Some(host) = host {
            decode_array::<32>(host)?;
        }
        Ok(Self(Zeroizing::new(decode_array(secret)?)))
    }

    /// The complete link: the `url` with the secret as its fragment. `host` is the public key of the machine that hosts the session:
    /// who has no account reads no device list, so the link says whose messages are the machine's.
    pub fn address(&self, url: &str, host: Option<&str>) -> String {
        let host = host.map(|key| format!(".{key}")).unwrap_or_default();
        format!("{url}#{}{host}", self.fragment())
    }

    /// The link's `encryptedKey`: `base64url(version (1) | nonce (12) | AES-256-GCM of the ring | tag (16))`.
    pub fn seal(&self, ring: &KeyRing, session: SessionId) -> Result<String> {
        let mut nonce = [0; 12];
        rand::rngs::OsRng.fill_bytes(&mut nonce);
        let plaintext = ring.to_bytes();
        let associated = associated_data(session);
        let payload = Payload { msg: plaintext.as_slice(), aad: associated.as_bytes() };
        let sealed = Aes256Gcm::new(self.0.as_ref().into())
            .encrypt(Nonce::from_slice(&nonce), payload)
            .map_err(|_| SealError::TooLong)?;
        let mut blob = vec![VERSION];
        blob.extend_from_slice(&nonce);
        blob.extend_from_slice(&sealed);
        Ok(encode(&blob))
    }

    /// Opens a link's `encryptedKey`.
    pub fn open(&self, sealed: &str, session: SessionId) -> Result<KeyRing> {
        let blob = decode(sealed)?;
        let (version, rest) = blob.split_first().ok_or(SealError::Format)?;
        let (nonce, sealed) = rest.split_first_chunk::<12>().ok_or(SealError::Format)?;
        if *version != VERSION {
            return Err(SealError::Format);
        }
        let associated = associated_data(session);
        let payload = Payload { msg: sealed, aad: associated.as_bytes() };
        let ring = Aes256Gcm::new(self.0.as_ref().into())
            .decrypt(Nonce::from_slice(nonce), payload)
            .map_err(|_| SealError::Refused)?;
        KeyRing::from_bytes(&Zeroizing::new(ring))
    }
}

fn associated_data(session: SessionId) -> String {
    format!("ensemble-link-key-v1\n{session}")
}

impl fmt::Debug for LinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSecret(…)")
    }
}
