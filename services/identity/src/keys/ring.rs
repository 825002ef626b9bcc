//! The keys in this replica's memory: the one that signs, those that verify, and what was revoked.
//!
//! `operations::signing_keys` loads them from the database regularly, and at once when a token was revoked or a key made.
//! Verifying tokens and answering peers needs no query.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ed25519_dalek::{SigningKey, VerifyingKey};
use ensemble_chassis::auth::{Claims, DeviceKey, VoiceToolClaims, sign};
use ensemble_chassis::{KeySet, KeySource, KeysUnavailable};
use ensemble_rpc::identity::{SnapshotResponse, VerificationKey};
use ensemble_store_kit::StoreError;
use ensemble_types::accounts::{Jwk, Jwks};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::vault::CannotOpen;
use super::{Vault, claims};
use crate::domain::{MachineToken, Plan, Published, Schedule, encode};
use crate::store::signing_keys::{KeyRow, KeyTable};

/// Peers get keys that are at most this old, so that they do not trust keys for longer than they intend.
const SNAPSHOT_FRESH_FOR: Duration = Duration::from_secs(15);

/// The keys of this replica.
pub(crate) struct KeyRing {
    vault: Vault,
    schedule: Schedule,
    /// How long loaded keys are trusted while the database cannot be reached.
    trusted_for: Duration,
    loaded: Mutex<Option<Arc<Loaded>>>,
    changed: watch::Sender<()>,
}

struct Loaded {
    snapshot: SnapshotResponse,
    keys: Arc<KeySet>,
    jwks: Jwks,
    signer: Arc<Signer>,
    at: Instant,
}

struct Signer {
    key_id: String,
    key: SigningKey,
}

/// The keys cannot be brought up to date, or a token cannot be signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    CannotOpen(#[from] CannotOpen),
    #[error("there is no signing key")]
    NoKey,
    #[error("the signing key {0} is not a valid key")]
    BadKey(String),
    #[error("a token could not be signed")]
    Sign(String),
}

impl KeyRing {
    /// A ring without keys.
    pub(crate) fn new(vault: Vault, schedule: Schedule, trusted_for: Duration) -> Self {
        Self { vault, schedule, trusted_for, loaded: Mutex::new(None), changed: watch::Sender::new(()) }
    }

    /// Which keys to make and to delete now.
    pub(crate) fn plan(&self, keys: &[Published], now: Timestamp) -> Plan {
        self.schedule.plan(keys, now)
    }

    /// The token of a user who has signed in with this key, and when it expires.
    pub(crate) fn user_token(
        &self,
        user: UserId,
        device: DeviceKey,
        (now, lifetime): (Timestamp, Duration),
    ) -> Result<(String, Timestamp), RingError> {
        self.signed(&claims::of_user(user, device, now, lifetime))
    }

    /// The token of a user who has signed in with recovery words, and when it expires.
    pub(crate) fn recovery_token(
        &self,
        user: UserId,
        device: DeviceKey,
        (now, lifetime): (Timestamp, Duration),
    ) -> Result<(String, Timestamp), RingError> {
        self.signed(&claims::of_recovery(user, device, now, lifetime))
    }

    fn signed(&self, claims: &Claims) -> Result<(String, Timestamp), RingError> {
        Ok((self.loaded()?.signer.sign(claims)?, Timestamp::from_unix_seconds(claims.exp)))
    }

    /// A machine's token. The device is the one that asked for it.
    pub(crate) fn machine_token(&self, token: &MachineToken, device: Option<DeviceKey>) -> Result<String, RingError> {
        self.loaded()?.signer.sign(&claims::of_machine(token, device))
    }

    /// The token of a voice session's agent.
    pub(crate) fn voice_token(&self, claims: &VoiceToolClaims) -> Result<String, RingError> {
        let loaded = self.loaded()?;
        claims.sign(&loaded.signer.key_id, &loaded.signer.key).map_err(|error| RingError::Sign(error.to_string()))
    }

    pub(crate) fn jwks(&self) -> Result<Jwks, RingError> {
        Ok(self.loaded()?.jwks.clone())
    }

    /// What peers verify with; `None` when it is too old to be passed on.
    pub(crate) fn snapshot(&self, known_version: &str) -> Option<SnapshotResponse> {
        let keys = self.loaded().ok().filter(|keys| keys.at.elapsed() <= SNAPSHOT_FRESH_FOR)?;
        if keys.snapshot.version == known_version {
            let version = known_version.to_owned();
            return Some(SnapshotResponse { version, unchanged: true, ..SnapshotResponse::default() });
        }
        Some(keys.snapshot.clone())
    }

    /// How many keys verify, how many tokens are revoked, and how many removed devices have tokens.
    pub(crate) fn size(&self) -> (usize, usize, usize) {
        let size =
            |known: &SnapshotResponse| (known.keys.len(), known.revoked_token_ids.len(), known.removed_devices.len());
        self.loaded().map_or((0, 0, 0), |keys| size(&keys.snapshot))
    }

    /// How long ago the keys were loaded.
    pub(crate) fn age(&self) -> Duration {
        self.loaded().map_or(Duration::ZERO, |keys| keys.at.elapsed())
    }

    /// A new key, sealed for the database.
    pub(crate) fn make(&self, published: Published) -> Result<KeyRow, RingError> {
        let key = SigningKey::generate(&mut rand::rngs::OsRng);
        let public_key = key.verifying_key().to_bytes();
        let key_id = thumbprint(&public_key);
        let sealed = self.vault.seal(&key_id, &key)?;
        tracing::info!(key.id = %key_id, signs_from = %published.signs_from, "Made a signing key");
        Ok(KeyRow { published, key_id, public_key, sealed })
    }

    /// Replaces the keys in memory.
    pub(crate) fn replace(&self, table: KeyTable) -> Result<(), RingError> {
        let at = Instant::now();
        let published: Vec<Published> = table.keys.iter().map(|row| row.published).collect();
        let signs = Schedule::signs_now(&published, table.now).ok_or(RingError::NoKey)?;
        let row = table.keys.iter().find(|row| row.published.generation == signs).ok_or(RingError::NoKey)?;
        let signer = self.signer(row)?;
        let mut verifying = Vec::with_capacity(table.keys.len());
        for row in &table.keys {
            let key = VerifyingKey::from_bytes(&row.public_key).map_err(|_| RingError::BadKey(row.key_id.clone()))?;
            verifying.push((row.key_id.clone(), key));
        }
        let snapshot = snapshot(&table);
        let mut loaded = self.lock();
        let has_changed = loaded.as_ref().is_none_or(|old| old.snapshot.version != snapshot.version);
        let keys = match loaded.as_ref().filter(|_| !has_changed) {
            Some(old) => Arc::clone(&old.keys),
            None => {
                let removed = table.removed.iter().copied().map(DeviceKey);
                Arc::new(KeySet::new(verifying, table.revoked.iter().copied()).with_removed(removed))
            }
        };
        let jwks = Jwks { keys: table.keys.iter().map(jwk).collect() };
        *loaded = Some(Arc::new(Loaded { snapshot, keys, jwks, signer, at }));
        drop(loaded);
        if has_changed {
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// The key that signs. It is opened when it begins to sign, and kept.
    fn signer(&self, row: &KeyRow) -> Result<Arc<Signer>, RingError> {
        if let Ok(keys) = self.loaded()
            && keys.signer.key_id == row.key_id
        {
            return Ok(Arc::clone(&keys.signer));
        }
        let key = self.vault.open(&row.key_id, &row.sealed)?;
        if key.verifying_key().to_bytes() != row.public_key {
            return Err(RingError::BadKey(row.key_id.clone()));
        }
        tracing::info!(key.id = %row.key_id, "Signing with this key from now on");
        Ok(Arc::new(Signer { key_id: row.key_id.clone(), key }))
    }

    fn loaded(&self) -> Result<Arc<Loaded>, RingError> {
        self.lock().clone().ok_or(RingError::NoKey)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Loaded>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySource for KeyRing {
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        let keys = self.loaded().map_err(|_| KeysUnavailable)?;
        if keys.at.elapsed() <= self.trusted_for { Ok(Arc::clone(&keys.keys)) } else { Err(KeysUnavailable) }
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl Signer {
    fn sign(&self, claims: &Claims) -> Result<String, RingError> {
        sign(claims, &self.key_id, &self.key).map_err(|error| RingError::Sign(error.to_string()))
    }
}

/// The same for every replica that sees the same rows.
fn snapshot(table: &KeyTable) -> SnapshotResponse {
    let mut digest = Sha256::new();
    for row in &table.keys {
        digest.update(&row.key_id);
    }
    let mut revoked_token_ids: Vec<Vec<u8>> = table.revoked.iter().map(|id| id.uuid().as_bytes().to_vec()).collect();
    revoked_token_ids.sort_unstable();
    for id in &revoked_token_ids {
        digest.update(id);
    }
    let mut removed_devices: Vec<Vec<u8>> = table.removed.iter().map(|key| key.to_vec()).collect();
    removed_devices.sort_unstable();
    digest.update(b"removed devices");
    for key in &removed_devices {
        digest.update(key);
    }
    let keys = table
        .keys
        .iter()
        .map(|row| VerificationKey { key_id: row.key_id.clone(), public_key: row.public_key.to_vec() })
        .collect();
    SnapshotResponse { version: encode(&digest.finalize()), unchanged: false, keys, revoked_token_ids, removed_devices }
}

fn jwk(row: &KeyRow) -> Jwk {
    Jwk {
        kty: "OKP".to_owned(),
        crv: "Ed25519".to_owned(),
        usage: "sig".to_owned(),
        alg: "EdDSA".to_owned(),
        kid: row.key_id.clone(),
        x: encode(&row.public_key),
    }
}

/// RFC 7638, section 3, with the members of RFC 8037, section 2.
fn thumbprint(public_key: &[u8; 32]) -> String {
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(public_key));
    encode(&Sha256::digest(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the thumbprint of RFC 8037, appendix A.3.
    #[test]
    fn a_key_is_named_by_its_thumbprint() {
        let public: [u8; 32] = [
            0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1,
            0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
        ];
        assert_eq!(thumbprint(&public), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }
}
