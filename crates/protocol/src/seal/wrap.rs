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
use crate::AccountKey;

/// The first byte of what is sealed and not signed.
const SEALED: u8 = 1;
/// The first byte of what is sealed and signed.
const SIGNED: u8 = 2;
const INFO: &[u8] = b"ensemble-key-v1";

/// The use of a sealed ring. It is part of the associated data, so that the server cannot pass one off as another.
#[derive(Clone, Copy, Debug)]
pub enum Binding<'a> {
    /// A session's ring for its owner.
    Session { session: SessionId, owner: UserId },
    /// The ring of a session that this machine hosts, for its owner. It cannot be taken for that of a session of people.
    Hosted { session: SessionId, owner: UserId, machine: &'a MachineId },
    /// The ring of a session that a machine hosts, for that machine, made when the owner's newest list had this content epoch.
    Host { session: SessionId, machine: &'a MachineId, content_epoch: u32 },
    /// A session's ring for a user with a share; of a hosted one with the machine that hosts it.
    Share { session: SessionId, recipient: UserId, machine: Option<&'a MachineId> },
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
            Self::Host { session, machine, content_epoch } => {
                format!("ensemble-host-key-v2\n{session}\n{machine}\n{content_epoch}")
            }
            Self::Share { session, recipient, machine } => {
                format!("ensemble-share-key-v2\n{session}\n{recipient}\n{}", machine.map_or("", MachineId::as_str))
            }
            Self::Machine { machine } => format!("ensemble-machine-key-v1\n{machine}"),
        }
    }
}

/// A ring, and the public key of the device that sealed it. HPKE's base mode says nothing about who sealed something, so what is sealed
/// is signed. The ciphertext is bound to one recipient's key (RFC 9180, section 4.1), so a signature over it holds for that seal only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRing {
    pub ring: KeyRing,
    pub signer: String,
}

/// `base64url(0x02 | signer's key (32) | signature (64) | encapsulated key (32) | ciphertext and tag)`.
pub fn seal_ring(ring: &KeyRing, to: &BoxPublicKey, binding: Binding<'_>, signer: &AccountKey) -> Result<String> {
    let associated = binding.associated_data();
    seal_signed(&ring.to_bytes(), to, &associated, &format!("{RING}\n{associated}"), signer)
}

/// Opens the output of [`seal_ring`] for the same binding. Whether the signer may have made the ring is for the caller to say.
pub fn open_ring(sealed: &str, with: &BoxKeyPair, binding: Binding<'_>) -> Result<SignedRing> {
    let associated = binding.associated_data();
    let (ring, signer) = open_signed(sealed, with, &associated, &format!("{RING}\n{associated}"))?;
    Ok(SignedRing { ring: KeyRing::from_bytes(&ring)?, signer })
}

/// Opens a ring that was sealed to the machine that hosts a session. Returns the content epoch that its maker knew, which is `newest` at
/// most: the epoch of the newest list that the machine knows.
pub fn open_host_ring(
    sealed: &str,
    with: &BoxKeyPair,
    (session, machine): (SessionId, &MachineId),
    newest: u32,
) -> Result<(SignedRing, u32)> {
    let mut refused = SealError::Format;
    for content_epoch in (1..=newest).rev() {
        match open_ring(sealed, with, Binding::Host { session, machine, content_epoch }) {
            Ok(opened) => return Ok((opened, content_epoch)),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// What the clients of one account share, sealed to the account's content key: JSON that a device of the account signs. The form is
/// that of a ring, with another `aad`, with which the signed text begins: account and the version that the state gets.
pub fn seal_client_state(
    json: &[u8],
    to: &BoxPublicKey,
    (account, version): (&str, i64),
    signer: &AccountKey,
) -> Result<String> {
    let associated = state(account, version);
    seal_signed(json, to, &associated, &associated, signer)
}

/// Opens the output of [`seal_client_state`]: the JSON, and the public key of the device that signed it.
pub fn open_client_state(
    sealed: &str,
    with: &BoxKeyPair,
    (account, version): (&str, i64),
) -> Result<(Zeroizing<Vec<u8>>, String)> {
    let associated = state(account, version);
    open_signed(sealed, with, &associated, &associated)
}

const RING: &str = "ensemble-ring-v2";

fn state(account: &str, version: i64) -> String {
    format!("ensemble-client-state-v2\n{account}\n{version}")
}

fn seal_signed(
    plaintext: &[u8],
    to: &BoxPublicKey,
    associated: &str,
    first_lines: &str,
    signer: &AccountKey,
) -> Result<String> {
    let sealed = seal_raw(INFO, plaintext, to, associated)?;
    let signature = signer.sign(&signed_text(first_lines, &sealed));
    let mut blob = vec![SIGNED];
    blob.extend_from_slice(&decode_array::<32>(&signer.public_key())?);
    blob.extend_from_slice(&decode_array::<64>(&signature)?);
    blob.extend_from_slice(&sealed);
    Ok(encode(&blob))
}

fn open_signed(
    sealed: &str,
    with: &BoxKeyPair,
    associated: &str,
    first_lines: &str,
) -> Result<(Zeroizing<Vec<u8>>, String)> {
    let blob = decode(sealed)?;
    let rest = blob.strip_prefix(&[SIGNED]).ok_or(SealError::Format)?;
    let (signer, rest) = rest.split_first_chunk::<32>().ok_or(SealError::Format)?;
    let (signature, sealed) = rest.split_first_chunk::<64>().ok_or(SealError::Format)?;
    let key = VerifyingKey::from_bytes(signer).map_err(|_| SealError::RingSignature)?;
    if key.verify_strict(&signed_text(first_lines, sealed), &Signature::from_bytes(signature)).is_err() {
        return Err(SealError::RingSignature);
    }
    Ok((open_raw(INFO, sealed, with, associated)?, encode(signer)))
}

/// The first lines, and the SHA-256 of what is sealed in base64url.
fn signed_text(first_lines: &str, sealed: &[u8]) -> Vec<u8> {
    format!("{first_lines}\n{}", digest(sealed)).into_bytes()
}

/// SHA-256 in base64url, as it stands in signed texts.
pub(super) fn digest(sealed: &[u8]) -> String {
    encode(&Sha256::digest(sealed))
}

pub(super) fn seal_bytes(plaintext: &[u8], to: &BoxPublicKey, associated_data: &str) -> Result<String> {
    seal_for(INFO, plaintext, to, associated_data)
}

/// The same for another purpose than keys.
pub(super) fn seal_for(info: &[u8], plaintext: &[u8], to: &BoxPublicKey, associated_data: &str) -> Result<String> {
    let mut blob = vec![SEALED];
    blob.extend_from_slice(&seal_raw(info, plaintext, to, associated_data)?);
    Ok(encode(&blob))
}

/// A ring without a signature of its own, for a share, whose grant signs what is sealed.
pub(super) fn seal_shared(ring: &KeyRing, to: &BoxPublicKey, binding: Binding<'_>) -> Result<Vec<u8>> {
    seal_raw(INFO, &ring.to_bytes(), to, &binding.associated_data())
}

pub(super) fn open_shared(sealed: &[u8], with: &BoxKeyPair, binding: Binding<'_>) -> Result<KeyRing> {
    KeyRing::from_bytes(&open_raw(INFO, sealed, with, &binding.associated_data())?)
}

/// `encapsulated key (32) | ciphertext and tag`.
fn seal_raw(info: &[u8], plaintext: &[u8], to: &BoxPublicKey, associated_data: &str) -> Result<Vec<u8>> {
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
    Ok([encapsulated.to_bytes().as_slice(), &sealed].concat())
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
    open_raw(info, blob.strip_prefix(&[SEALED]).ok_or(SealError::Format)?, with, associated_data)
}

fn open_raw(info: &[u8], sealed: &[u8], with: &BoxKeyPair, associated_data: &str) -> Result<Zeroizing<Vec<u8>>> {
    let (encapsulated, sealed) = sealed.split_first_chunk::<32>().ok_or(SealError::Format)?;
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
