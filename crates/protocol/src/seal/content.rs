//! Contents encrypted with a key of a ring: AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use ensemble_types::ids::{MachineId, SessionId};
use rand::RngCore;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::encoding::{decode, encode};
use super::ring::KeyRing;
use super::{Result, SealError};

const VERSION: u8 = 1;

/// The kind of a content. It is part of the associated data, so that the server can neither pass one kind off as
/// another nor move a message into another session.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    SessionMetadata(SessionId),
    AgentState(SessionId),
    Message(SessionId),
    /// A live frame of a hosted session.
    LiveFrame(SessionId),
    MachineMetadata(&'a MachineId),
}

impl Purpose<'_> {
    pub(super) fn associated_data(self, epoch: u32) -> String {
        match self {
            Self::SessionMetadata(session) => format!("ensemble-session-metadata-v3\n{session}\n{epoch}"),
            Self::AgentState(session) => format!("ensemble-agent-state-v1\n{session}\n{epoch}"),
            Self::Message(session) => format!("ensemble-message-v1\n{session}\n{epoch}"),
            Self::LiveFrame(session) => format!("ensemble-live-v1\n{session}\n{epoch}"),
            Self::MachineMetadata(machine) => format!("ensemble-machine-metadata-v1\n{machine}\n{epoch}"),
        }
    }
}

/// `base64url(version (1) | epoch (4, big-endian) | nonce (12) | ciphertext | tag (16))`, with the ring's newest key.
pub fn seal(ring: &KeyRing, purpose: Purpose<'_>, plaintext: &[u8]) -> Result<String> {
    let epoch = ring.epoch();
    let mut nonce = [0; 12];
    rand::rngs::OsRng.fill_bytes(&mut nonce);
    let associated = purpose.associated_data(epoch);
    let payload = Payload { msg: plaintext, aad: associated.as_bytes() };
    let sealed = Aes256Gcm::new(ring.key(epoch)?.into())
        .encrypt(Nonce::from_slice(&nonce), payload)
        .map_err(|_| SealError::TooLong)?;
    let mut blob = Vec::with_capacity(17 + sealed.len());
    blob.push(VERSION);
    blob.extend_from_slice(&epoch.to_be_bytes());
    blob.extend_from_slice(&nonce);
    blob.extend_from_slice(&sealed);
    Ok(encode(&blob))
}

/// Opens the output of [`seal`] for the same purpose, with the key of its epoch.
pub fn open(ring: &KeyRing, purpose: Purpose<'_>, sealed: &str) -> Result<Vec<u8>> {
    let blob = decode(sealed)?;
    let (version, rest) = blob.split_first().ok_or(SealError::Format)?;
    let (epoch, rest) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
    let (nonce, sealed) = rest.split_first_chunk::<12>().ok_or(SealError::Format)?;
    if *version != VERSION {
        return Err(SealError::Format);
    }
    let epoch = u32::from_be_bytes(*epoch);
    let associated = purpose.associated_data(epoch);
    let payload = Payload { msg: sealed, aad: associated.as_bytes() };
    Aes256Gcm::new(ring.key(epoch)?.into()).decrypt(Nonce::from_slice(nonce), payload).map_err(|_| SealError::Refused)
}

/// The epoch of the key that something was sealed with, as it says itself. It is true if it opens.
pub fn epoch_of(sealed: &str) -> Result<u32> {
    let blob = decode(sealed)?;
    let epoch = blob.get(1..5).and_then(|epoch| epoch.try_into().ok()).ok_or(SealError::Format)?;
    Ok(u32::from_be_bytes(epoch))
}

/// Seals a value as JSON.
pub fn seal_json(ring: &KeyRing, purpose: Purpose<'_>, value: &impl Serialize) -> Result<String> {
    seal(ring, purpose, &serde_json::to_vec(value).map_err(|_| SealError::Format)?)
}

/// Opens the output of [`seal_json`].
pub fn open_json<T: DeserializeOwned>(ring: &KeyRing, purpose: Purpose<'_>, sealed: &str) -> Result<T> {
    serde_json::from_slice(&open(ring, purpose, sealed)?).map_err(|_| SealError::Format)
}
