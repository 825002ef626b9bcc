//! The keys that verify tokens, and which tokens are refused before they expire: those that were revoked, and those of devices
//! that were removed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ed25519_dalek::VerifyingKey;
use ensemble_types::ids::TokenId;
use tokio::sync::watch;

use super::DeviceKey;

/// A consistent snapshot of keys and revocations. It is replaced as a whole and never changed.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: HashMap<String, VerifyingKey>,
    revoked: HashSet<TokenId>,
    removed: HashSet<DeviceKey>,
}

/// The last fetch of the keys is too long ago to trust them.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the signing keys cannot be fetched")]
pub struct KeysUnavailable;

/// Where the keys come from: identity's own database, or its internal listener.
pub trait KeySource: Send + Sync {
    /// The latest snapshot. This is cheap and does no I/O.
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable>;

    /// Signals each change of the snapshot, so that long answers can check their caller again.
    fn changes(&self) -> watch::Receiver<()>;
}

impl KeySet {
    pub fn new(
        keys: impl IntoIterator<Item = (String, VerifyingKey)>,
        revoked: impl IntoIterator<Item = TokenId>,
    ) -> Self {
        Self { keys: keys.into_iter().collect(), revoked: revoked.into_iter().collect(), removed: HashSet::new() }
    }

    /// The same with the devices whose tokens are refused.
    #[must_use]
    pub fn with_removed(self, devices: impl IntoIterator<Item = DeviceKey>) -> Self {
        Self { removed: devices.into_iter().collect(), ..self }
    }

    pub fn key(&self, kid: &str) -> Option<&VerifyingKey> {
        self.keys.get(kid)
    }

    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.revoked.contains(&token)
    }

    pub fn is_removed(&self, device: &DeviceKey) -> bool {
        self.removed.contains(device)
    }
}

/// Keys that change only when their owner sets them: the edge, which fetches them itself, or a test.
#[derive(Debug)]
pub struct FixedKeys {
    now: std::sync::Mutex<Arc<KeySet>>,
    changed: watch::Sender<()>,
}

impl FixedKeys {
    pub fn new(keys: KeySet) -> Self {
        Self { now: std::sync::Mutex::new(Arc::new(keys)), changed: watch::Sender::new(()) }
    }

    pub fn replace(&self, keys: KeySet) {
        if let Ok(mut now) = self.now.lock() {
            *now = Arc::new(keys);
        }
        self.changed.send_replace(());
    }
}

impl KeySource for FixedKeys {
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        self.now.lock().map(|keys| Arc::clone(&keys)).map_err(|_| KeysUnavailable)
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
