//! The content ring of an account: one X25519 secret for each content epoch. What is sealed to the account is sealed to the
//! public half of the newest one; each device that may open contents has the whole ring, sealed to its own box key.

use std::fmt;

use crate::lists::List;
use ensemble_types::devices::ListedDevice;
use secrecy::zeroize::Zeroizing;

use super::box_key::{BoxKeyPair, BoxPublicKey};
use super::ring::Secrets;
use super::wrap::{open_bytes, seal_bytes};
use super::{Result, SealError};

/// The format of a content ring, its first byte.
const VERSION: u8 = 1;

/// The secrets of an account, oldest first.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentRing(Secrets);

impl ContentRing {
    /// The ring of a new account.
    pub fn generate() -> Self {
        Self(Secrets::generate())
    }

    /// This ring with a secret for the next content epoch.
    pub fn next(&self) -> Result<Self> {
        self.0.next().map(Self)
    }

    /// The newest content epoch.
    pub fn epoch(&self) -> u32 {
        self.0.epoch()
    }

    /// The key pair of an epoch.
    pub fn pair(&self, epoch: u32) -> Result<BoxKeyPair> {
        BoxKeyPair::from_secret(Zeroizing::new(*self.0.get(epoch)?))
    }

    /// The public half of the newest epoch, for device lists.
    pub fn public(&self) -> Result<BoxPublicKey> {
        self.pair(self.epoch()).map(|pair| pair.public())
    }

    /// Tries the epochs from the newest to the oldest: what is sealed does not say with which it was sealed.
    pub fn open_with<T>(&self, open: impl Fn(&BoxKeyPair) -> Result<T>) -> Result<T> {
        let mut refused = SealError::Refused;
        for epoch in (1..=self.epoch()).rev() {
            match open(&self.pair(epoch)?) {
                Ok(opened) => return Ok(opened),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// `0x01 | first epoch (4, big-endian) | secrets (32 each)`.
    pub(super) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.0.to_bytes(VERSION, &[])
    }

    /// Seals the ring to a device of a list.
    pub fn seal_to(&self, device: &ListedDevice, account: &str) -> Result<String> {
        let key = BoxPublicKey::from_text(&device.box_key)?;
        seal_bytes(&self.to_bytes(), &key, &associated_data(account, &device.key))
    }

    /// Opens the ring of a device, and checks that its newest secret is that of the list.
    pub fn open(sealed: &str, with: &BoxKeyPair, device: &str, list: &List) -> Result<Self> {
        let bytes = open_bytes(sealed, with, &associated_data(&list.body().account, device))?;
        let ([], secrets) = Secrets::from_bytes::<0>(&bytes, VERSION)?;
        let ring = Self(secrets);
        if ring.epoch() != list.body().content_epoch || ring.public()?.to_text() != list.body().content_public_key {
            return Err(SealError::OtherContentRing);
        }
        Ok(ring)
    }
}

impl fmt::Debug for ContentRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentRing(epochs 1 to {})", self.epoch())
    }
}

fn associated_data(account: &str, device: &str) -> String {
    format!("ensemble-content-ring-v1\n{account}\n{device}")
}
