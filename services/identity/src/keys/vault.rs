//! Encrypts private keys for the database, with a key that is not in the database.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use aes_gcm::aead::{Aead, AeadCore, KeyInit, OsRng, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use hkdf::Hkdf;
use secrecy::zeroize::Zeroizing;
use sha2::Sha256;

/// Bytes of a nonce (NIST SP 800-38D, section 8.2.2: random, 96 bits).
const NONCE: usize = 12;
/// Permission bits that let others read the file or the group change it.
const TOO_OPEN: u32 = 0o037;

/// The key-encryption key, and the one before it while it is being replaced.
#[derive(Clone)]
pub(crate) struct Vault {
    current: Aes256Gcm,
    /// For secrets that all replicas derive.
    deriving: Hkdf<Sha256>,
    /// Opens what was sealed before the key was replaced.
    previous: Option<Aes256Gcm>,
}

/// The file with the key-encryption key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadKeyFile {
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("may be read by others (mode {0:o}); set it to 0400")]
    TooOpen(u32),
    #[error("must hold 32 random bytes, as they are or in base64 (openssl rand -base64 32)")]
    WrongLength,
}

/// A private key cannot be opened: it was sealed with another key, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing key was sealed with another key-encryption key")]
pub(crate) struct CannotOpen;

impl Vault {
    pub(crate) fn read(file: &Path, previous: Option<&Path>) -> Result<Self, BadKeyFile> {
        let key = read_key(file)?;
        let previous = previous.map(|file| cipher(&read_key(file)?)).transpose()?;
        Ok(Self { current: cipher(&key)?, deriving: Hkdf::new(None, &key), previous })
    }

    /// Nonce and ciphertext. They can be opened with the same `name` only.
    pub(crate) fn seal(&self, name: &str, key: &SigningKey) -> Result<Vec<u8>, CannotOpen> {
        self.seal_bytes(name, key.as_bytes())
    }

    pub(super) fn seal_bytes(&self, name: &str, key: &[u8]) -> Result<Vec<u8>, CannotOpen> {
        let nonce = Aes256Gcm::generate_nonce(&mut OsRng);
        let payload = Payload { msg: key, aad: name.as_bytes() };
        let ciphertext = self.current.encrypt(&nonce, payload).map_err(|_| CannotOpen)?;
        Ok([nonce.as_slice(), &ciphertext].concat())
    }

    pub(crate) fn open(&self, name: &str, sealed: &[u8]) -> Result<SigningKey, CannotOpen> {
        let opened = self.open_bytes(name, sealed)?;
        let seed = opened.as_slice().try_into().map_err(|_| CannotOpen)?;
        Ok(SigningKey::from_bytes(seed))
    }

    pub(super) fn open_bytes(&self, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, CannotOpen> {
        let (nonce, ciphertext) = sealed.split_at_checked(NONCE).ok_or(CannotOpen)?;
        let payload = || Payload { msg: ciphertext, aad: name.as_bytes() };
        let nonce = Nonce::from_slice(nonce);
        self.current
            .decrypt(nonce, payload())
            .or_else(|error| self.previous.as_ref().map_or(Err(error), |key| key.decrypt(nonce, payload())))
            .map(Zeroizing::new)
            .map_err(|_| CannotOpen)
    }

    /// A secret that each replica derives for this purpose, until the key-encryption key is replaced.
    pub(crate) fn derived(&self, purpose: &str) -> Result<Zeroizing<[u8; 32]>, CannotOpen> {
        let mut secret = Zeroizing::new([0; 32]);
        self.deriving.expand(purpose.as_bytes(), secret.as_mut()).map_err(|_| CannotOpen)?;
        Ok(secret)
    }

    /// Whether the key-encryption key is being replaced.
    pub(crate) fn is_replaced(&self) -> bool {
        self.previous.is_some()
    }
}

fn read_key(file: &Path) -> Result<Zeroizing<Vec<u8>>, BadKeyFile> {
    let mode = fs::metadata(file).map_err(BadKeyFile::Unreadable)?.permissions().mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        return Err(BadKeyFile::TooOpen(mode));
    }
    let bytes = Zeroizing::new(fs::read(file).map_err(BadKeyFile::Unreadable)?);
    if bytes.len() == 32 {
        return Ok(bytes);
    }
    let decoded = STANDARD.decode(bytes.trim_ascii()).map_err(|_| BadKeyFile::WrongLength)?;
    Ok(Zeroizing::new(decoded))
}

fn cipher(key: &[u8]) -> Result<Aes256Gcm, BadKeyFile> {
    Aes256Gcm::new_from_slice(key).map_err(|_| BadKeyFile::WrongLength)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::path::PathBuf;

    use super::*;

    fn file(folder: &tempfile::TempDir, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_sealed_key_opens_with_the_same_key_and_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let old = file(&folder, "old", &[1; 32], 0o400);
        let new = file(&folder, "new", format!("{}\n", STANDARD.encode([2; 32])).as_bytes(), 0o440);
        let key = SigningKey::from_bytes(&[7; 32]);
        let before = Vault::read(&old, None).unwrap();
        let sealed = before.seal("k1", &key).unwrap();
        assert_ne!(sealed, before.seal("k1", &key).unwrap(), "a nonce is used once");
        assert_eq!(before.open("k1", &sealed).unwrap(), key);
        assert_eq!(before.open("k2", &sealed), Err(CannotOpen));
        assert_eq!(Vault::read(&new, None).unwrap().open("k1", &sealed), Err(CannotOpen));
        let after = Vault::read(&new, Some(&old)).unwrap();
        assert_eq!(after.open("k1", &sealed).unwrap(), key, "the key before still opens");
        assert_eq!(before.open("k1", &after.seal("k1", &key).unwrap()), Err(CannotOpen), "but seals no more");
        for at in [0, 12, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(before.open("k1", &changed), Err(CannotOpen));
        }
        assert_eq!(before.open("k1", &sealed[..5]), Err(CannotOpen));
    }

    #[test]
    fn a_readable_or_malformed_key_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused =
            |name, content: &[u8], mode| Vault::read(&file(&folder, name, content, mode), None).err().unwrap();
        assert!(matches!(refused("open", &[1; 32], 0o444), BadKeyFile::TooOpen(0o444)));
        assert!(matches!(refused("group", &[1; 32], 0o460), BadKeyFile::TooOpen(0o460)));
        assert!(matches!(refused("short", &[1; 31], 0o400), BadKeyFile::WrongLength));
        assert!(matches!(refused("empty", b"", 0o400), BadKeyFile::WrongLength));
        assert!(matches!(Vault::read(&folder.path().join("none"), None), Err(BadKeyFile::Unreadable(_))));
    }
}
