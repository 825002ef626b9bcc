//! Recovery words: 256 random bits as 24 words of BIP-39's English list with its checksum (BIP-39, "Generating the
//! mnemonic"), without its derivation by PBKDF2. They are a device on paper.

use std::fmt;

use bip39::{Language, Mnemonic};
use hkdf::Hkdf;
use rand::RngCore;
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;

use super::box_key::BoxKeyPair;
use super::{Result, SealError};
use crate::AccountKey;

/// 24 words.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryWords(Zeroizing<[u8; 32]>);

/// What is wrong with typed words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWords {
    #[error("there are {0} words; recovery words are 24")]
    Count(usize),
    #[error("word {0} is not in the list of recovery words")]
    Unknown(usize),
    #[error("the words do not belong together: one of them is wrong, or two are in the wrong order")]
    Checksum,
}

impl RecoveryWords {
    pub fn generate() -> Self {
        let mut bits = Zeroizing::new([0; 32]);
        rand::rngs::OsRng.fill_bytes(bits.as_mut());
        Self(bits)
    }

    pub fn from_bits(bits: [u8; 32]) -> Self {
        Self(Zeroizing::new(bits))
    }

    /// The words, in order.
    pub fn words(&self) -> Result<Vec<&'static str>> {
        let mnemonic = Mnemonic::from_entropy(self.0.as_ref()).map_err(|_| SealError::Format)?;
        Ok(mnemonic.words().collect())
    }

    /// Reads typed words, with any white space between them, in upper or lower case.
    pub fn parse(typed: &str) -> Result<Self, BadWords> {
        let typed = Zeroizing::new(typed.to_lowercase());
        let words: Vec<&str> = typed.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| Language::English.find_word(word).is_none()) {
            return Err(BadWords::Unknown(at + 1));
        }
        if words.len() != 24 {
            return Err(BadWords::Count(words.len()));
        }
        let normal = Zeroizing::new(words.join(" "));
        let mnemonic = Mnemonic::parse_in_normalized(Language::English, &normal).map_err(|_| BadWords::Checksum)?;
        let (bits, length) = mnemonic.to_entropy_array();
        let bits = Zeroizing::new(bits);
        match bits.split_first_chunk::<32>() {
            Some((bits, _)) if length == 32 => Ok(Self(Zeroizing::new(*bits))),
            _ => Err(BadWords::Checksum),
        }
    }

    /// Whether this is a word of the list.
    pub fn has_word(word: &str) -> bool {
        Language::English.find_word(word).is_some()
    }

    /// The recovery key: an Ed25519 seed, `HKDF-SHA256(salt = "", bits, "ensemble-recovery-key-v1")`.
    pub fn key(&self) -> Result<AccountKey> {
        let mut seed = Zeroizing::new([0; 32]);
        let derivation = Hkdf::<Sha256>::new(None, self.0.as_ref());
        derivation.expand(b"ensemble-recovery-key-v1", seed.as_mut()).map_err(|_| SealError::Format)?;
        Ok(AccountKey::from_seed(&seed))
    }

    /// The recovery box key: X25519, the same with `ensemble-recovery-box-v1`.
    pub fn box_key(&self) -> Result<BoxKeyPair> {
        BoxKeyPair::derived(self.0.as_ref(), b"ensemble-recovery-box-v1")
    }
}

impl fmt::Debug for RecoveryWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryWords(…)")
    }
}
