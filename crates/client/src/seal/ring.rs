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
const VERSION: u8 = 1;
/// This many keys fit into the 8 KiB that the service stores for a sealed key.
const MOST_KEYS: usize = 170;

/// One 256-bit key per epoch.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRing {
    first_epoch: u32,
    keys: Zeroizing<Vec<[u8; 32]>>,
}

impl KeyRing {
    /// The first epoch of a new session or machine.
    pub const FIRST_EPOCH: u32 = 1;

    /// Creates a ring with one new key.
    pub fn generate() -> Self {
        Self { first_epoch: Self::FIRST_EPOCH, keys: Zeroizing::new(vec![new_key()]) }
    }

    /// Returns this ring with a new key for the next epoch.
    pub fn next(&self) -> Result<Self> {
        if self.keys.len() >= MOST_KEYS {
            return Err(SealError::TooManyKeys);
        }
        let mut keys = self.keys.clone();
        keys.push(new_key());
        Ok(Self { first_epoch: self.first_epoch, keys })
    }

    /// SHA-256 of its bytes, base64url: which ring it is, without its keys.
    pub fn digest(&self) -> String {
        encode(&Sha256::digest(self.to_bytes().as_slice()))
    }

    /// The epochs of its keys, oldest first.
    pub(crate) fn epochs(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        self.first_epoch..=self.epoch()
    }

    /// The epoch of the newest key, which is used for sealing.
    pub fn epoch(&self) -> u32 {
        let newest = u32::try_from(self.keys.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.first_epoch.saturating_add(newest)
    }

    pub(crate) fn key(&self, epoch: u32) -> Result<&[u8; 32]> {
        let place = epoch.checked_sub(self.first_epoch).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.keys.get(place)).ok_or(SealError::UnknownEpoch(epoch))
    }

    /// `version (1) | first epoch (4, big-endian) | keys (32 each)`.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(5 + 32 * self.keys.len()));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.first_epoch.to_be_bytes());
        for key in self.keys.iter() {
            bytes.extend_from_slice(key);
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (version, rest) = bytes.split_first().ok_or(SealError::Format)?;
        let (epoch, keys) = rest.split_first_chunk::<4>().ok_or(SealError::Format)?;
        let (keys, remainder) = keys.as_chunks::<32>();
        let epoch = u32::from_be_bytes(*epoch);
        // A ring that begins elsewhere could run out of epochs, and keep its newest key for ever.
        if epoch != Self::FIRST_EPOCH
            || *version != VERSION
            || keys.is_empty()
            || keys.len() > MOST_KEYS
            || !remainder.is_empty()
        {
            return Err(SealError::Format);
        }
        Ok(Self { first_epoch: epoch, keys: Zeroizing::new(keys.to_vec()) })
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing(epochs {} to {})", self.first_epoch, self.epoch())
    }
}

fn new_key() -> [u8; 32] {
    let mut key = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut key);
    key
}
