//! Key rings sealed to one person: HPKE in base mode (RFC 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and
//! AES-256-GCM.

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use hpke::aead::AesGcm256;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::encoding::{decode, decode_array, encode};
use super::ring::KeyRing;
use super::{Result, SealError};
use crate::account_key::AccountKey;

const VERSION: u8 = 1;
const INFO: &[u8] = b"ensemble-key-v1";

/// The use of a sealed ring. It is part of the associated data, so that the server cannot pass one off as another.
#[derive(Clone, Copy, Debug)]
pub enum Binding<'a> {
    /// A session's ring for its owner.
    Session { session: SessionId, owner: UserId },
    /// The ring of a session that this machine hosts, for its owner. It cannot be taken for that of a session of people.
    Hosted { session: SessionId, owner: UserId, machine: &'a MachineId },
    /// The ring of a session that a machine hosts, for that machine.
    Host { session: SessionId, machine: &'a MachineId },
    /// A session's ring for a user with a share.
    Share { session: SessionId, recipient: UserId },
    /// A machine's ring for its owner.
    Machine { machine: &'a MachineId },
}

impl Binding<'_> {
    pub(super) fn associated_data(self) -> String {
        match self {
            Self::Session { session, owner } => format!("ensemble-session-key-v2\n{session}\n{owner}"),
            Self::Hosted { session, owner, machine } => {
                format!("ensemble-session-key-v2\n{session}\n{owner}\n{machine}")
            }
            Self::Host { session, machine } => format!("ensemble-host-key-v1\n{session}\n{machine}"),
            Self::Share { session, recipient } => format!("ensemble-share-key-v1\n{session}\n{recipient}"),
            Self::Machine { machine } => format!("ensemble-machine-key-v1\n{machine}"),
        }
    }
}

/// A ring, and the public key of the device that sealed it. HPKE's base mode says nothing about who sealed something, so the
/// ring is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRing {
    pub ring: KeyRing,
    pub signer: String,
}

/// `base64url(version (1) | encapsulated key (32) | sealed ring, signer's key (32), signature (64) and tag)`.
pub fn seal_ring(ring: &KeyRing, to: &BoxPublicKey, binding: Binding<'_>, signer: &AccountKey) -> Result<String> {
    seal_signed(ring.to_bytes(), to, RING, &binding.associated_data(), signer)
}

/// Opens the output of [`seal_ring`] for the same binding. Whether the signer may have made the ring is for the caller to say.
pub fn open_ring(sealed: &str, with: &BoxKeyPair, binding: Binding<'_>) -> Result<SignedRing> {
    let (ring, signer) = open_signed(sealed, with, RING, &binding.associated_data())?;
    Ok(SignedRing { ring: KeyRing::from_bytes(&ring)?, signer })
}

/// What the clients of one account share, sealed to the account's content key: JSON that a device of the account signs. The form is
/// that of a ring, with `aad` and first line of the signed text `ensemble-client-state-v1`.
pub fn seal_client_state(json: &[u8], to: &BoxPublicKey, account: &str, signer: &AccountKey) -> Result<String> {
    seal_signed(Zeroizing::new(json.to_vec()), to, STATE, &format!("{STATE}\n{account}"), signer)
}

/// Opens the output of [`seal_client_state`]: the JSON, and the public key of the device that signed it.
pub fn open_client_state(sealed: &str, with: &BoxKeyPair, account: &str) -> Result<(Zeroizing<Vec<u8>>, String)> {
    open_signed(sealed, with, STATE, &format!("{STATE}\n{account}"))
}

const RING: &str = "ensemble-ring-v1";
const STATE: &str = "ensemble-client-state-v1";

fn seal_signed(
    mut plaintext: Zeroizing<Vec<u8>>,
    to: &BoxPublicKey,
    purpose: &str,
    associated: &str,
    signer: &AccountKey,
) -> Result<String> {
    let signature = signer.sign(&signed_text(purpose, associated, &plaintext));
    plaintext.extend_from_slice(&decode_array::<32>(&signer.public_key())?);
    plaintext.extend_from_slice(&decode_array::<64>(&signature)?);
    seal_bytes(&plaintext, to, associated)
}

fn open_signed(
    sealed: &str,
    with: &BoxKeyPair,
    purpose: &str,
    associated: &str,
) -> Result<(Zeroizing<Vec<u8>>, String)> {
    let opened = open_bytes(sealed, with, associated)?;
    let (rest, signature) = opened.split_last_chunk::<64>().ok_or(SealError::Format)?;
    let (plaintext, signer) = rest.split_last_chunk::<32>().ok_or(SealError::Format)?;
    let key = VerifyingKey::from_bytes(signer).map_err(|_| SealError::RingSignature)?;
    let text = signed_text(purpose, associated, plaintext);
    if key.verify_strict(&text, &Signature::from_bytes(signature)).is_err() {
        return Err(SealError::RingSignature);
    }
    Ok((Zeroizing::new(plaintext.to_vec()), encode(signer)))
}

/// The purpose and the associated data, each in a line, and the SHA-256 of the plaintext.
fn signed_text(purpose: &str, associated: &str, plaintext: &[u8]) -> Vec<u8> {
    let mut text = format!("{purpose}\n{associated}\n").into_bytes();
    text.extend_from_slice(&Sha256::digest(plaintext));
    text
}

pub(super) fn seal_bytes(plaintext: &[u8], to: &BoxPublicKey, associated_data: &str) -> Result<String> {
    seal_for(INFO, plaintext, to, associated_data)
}

/// The same for another purpose than keys.
pub(super) fn seal_for(info: &[u8], plaintext: &[u8], to: &BoxPublicKey, associated_data: &str) -> Result<String> {
    let recipient = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(to.as_bytes()).map_err(|_| SealError::Format)?;
    let (encapsulated, sealed) = hpke::single_shot_seal::<AesGcm256, HkdfSha256, X25519HkdfSha256, _>(
        &OpModeS::Base,
        &recipient,
        info,
        plaintext,
        associated_data.as_bytes(),
        &mut rand::rngs::OsRng,
    )
    .map_err(|_| SealError::Refused)?;
    let mut blob = vec![VERSION];
    blob.extend_from_slice(&encapsulated.to_bytes());
    blob.extend_from_slice(&sealed);
    Ok(encode(&blob))
}

pub(super) fn open_bytes(sealed: &str, with: &BoxKeyPair, associated_data: &str) -> Result<Zeroizing<Vec<u8>>> {
    open_for(INFO, sealed, with, associated_data)
}

pub(super) fn open_for(
    info: &[u8],
    sealed: &str,
    with: &BoxKeyPair,
    associated_data: &str,
) -> Result<Zeroizing<Vec<u8>>> {
    let blob = decode(sealed)?;
    let (version, rest) = blob.split_first().ok_or(SealError::Format)?;
    let (encapsulated, sealed) = rest.split_first_chunk::<32>().ok_or(SealError::Format)?;
    if *version != VERSION {
        return Err(SealError::Format);
    }
    let encapsulated =
        <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated).map_err(|_| SealError::Format)?;
    let recipient = <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(with.secret()).map_err(|_| SealError::Format)?;
    let plaintext = hpke::single_shot_open::<AesGcm256, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Base,
        &recipient,
        &encapsulated,
        info,
        sealed,
        associated_data.as_bytes(),
    )
    .map_err(|_| SealError::Refused)?;
    Ok(Zeroizing::new(plaintext))
}
