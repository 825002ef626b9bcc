//! The keys of one session or machine, one for each epoch, oldest first.
//!
//! A new epoch begins after a user lost access. Old contents are not encrypted again, so a reader also needs the old
//! keys: the ring holds them all.

use std::fmt;

use rand::RngCore;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};

use super::encoding::encode;
use super::{Result, SealError};

/// The format of a ring, its first byte.
const VERSION: u8 = 2;
/// The first epoch of a new session, machine or account.
const FIRST_EPOCH: u32 = 1;
/// This many keys fit into the 8 KiB that the service stores for a sealed key.
const MOST_KEYS: usize = 170;

/// One 256-bit secret for each epoch, from 1 on.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secrets(Zeroizing<Vec<[u8; 32]>>);

impl Secrets {
    pub(super) fn generate() -> Self {
        Self(Zeroizing::new(vec![new_key()]))
    }

    pub(super) fn next(&self) -> Result<Self> {
        if self.0.len() >= MOST_KEYS {
            return Err(SealError::TooManyKeys);
        }
        let mut secrets = self.0.clone();
        secrets.push(new_key());
        Ok(Self(secrets))
    }

    pub(super) fn epoch(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn get(&self, epoch: u32) -> Result<&[u8; 32]> {
        let place = epoch.checked_sub(FIRST_EPOCH).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.0.get(place)).ok_or(SealError::UnknownEpoch(epoch))
    }

    /// `version (1) | first epoch (4, big-endian) | what stands before the secrets | secrets (32 each)`.
    pub(super) fn to_bytes(&self, version: u8, before: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(5 + before.len() + 32 * self.0.len()));
        bytes.push(version);
        bytes.extend_from_slice(&FIRST_EPOCH.to_be_bytes());
        bytes.extend_from_slice(before);
        for secret in self.0.iter() {
            bytes.extend_from_slice(secret);
        }
        bytes
    }

    /// The reverse, with `N` bytes before the secrets.
    pub(super) fn from_bytes<const N: usize>(bytes: &[u8], version: u8) -> Result<([u8; N], Self)> {
        let rest = bytes.strip_prefix(&[version]).ok_or(SealError::Format)?;
        let (epoch, rest) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
        let (before, secrets) = rest.split_first_chunk::<N>().ok_or(SealError::Format)?;
        let (secrets, remainder) = secrets.as_chunks::<32>();
        // A ring that begins elsewhere could run out of epochs, and keep its newest key for ever.
        if u32::from_be_bytes(*epoch) != FIRST_EPOCH
            || secrets.is_empty()
            || secrets.len() > MOST_KEYS
            || !remainder.is_empty()
        {
            return Err(SealError::Format);
        }
        Ok((*before, Self(Zeroizing::new(secrets.to_vec()))))
    }
}

/// One 256-bit key per epoch.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRing {
    keys: Secrets,
    floor: u32,
}

impl KeyRing {
    /// The first epoch of a new session or machine.
    pub const FIRST_EPOCH: u32 = FIRST_EPOCH;
    /// The last epoch that a ring can have.
    pub const LAST_EPOCH: u32 = FIRST_EPOCH + MOST_KEYS as u32 - 1;

    /// Creates a ring with one new key.
    pub fn generate() -> Self {
        Self { keys: Secrets::generate(), floor: FIRST_EPOCH }
    }

    /// Returns this ring with a new key for the next epoch, as a person's device makes it. Its maker passes it on to those who may have
    /// it, so grants of earlier epochs count no more.
    pub fn next(&self) -> Result<Self> {
        let keys = self.keys.next()?;
        Ok(Self { floor: keys.epoch(), keys })
    }

    /// The same as a machine makes it, which does not know who may have it: grants count as before.
    pub fn next_by_machine(&self) -> Result<Self> {
        Ok(Self { floor: self.floor, keys: self.keys.next()? })
    }

    /// SHA-256 of the key of an epoch, base64url: which key it is, without the key. `None`: it has none of this epoch.
    pub fn digest_of(&self, epoch: u32) -> Option<String> {
        self.key(epoch).ok().map(|key| encode(&Sha256::digest(key)))
    }

    /// The epoch of the newest key, which is used for sealing.
    pub fn epoch(&self) -> u32 {
        self.keys.epoch()
    }

    /// The epoch of the oldest grant that counts: the program that passes the ring on gives it to grants of this epoch or a later one.
    pub fn floor(&self) -> u32 {
        self.floor
    }

    pub(crate) fn key(&self, epoch: u32) -> Result<&[u8; 32]> {
        self.keys.get(epoch)
    }

    /// `0x02 | first epoch (4, big-endian) | floor (4) | keys (32 each)`.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.keys.to_bytes(VERSION, &self.floor.to_be_bytes())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (floor, keys) = Secrets::from_bytes::<4>(bytes, VERSION)?;
        let floor = u32::from_be_bytes(floor);
        if !(FIRST_EPOCH..=keys.epoch()).contains(&floor) {
            return Err(SealError::Format);
        }
        Ok(Self { keys, floor })
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing(epochs 1 to {}, floor {})", self.epoch(), self.floor)
    }
}

fn new_key() -> [u8; 32] {
    let mut key = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut key);
    key
}
