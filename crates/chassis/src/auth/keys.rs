//! The keys that tokens are checked with, and the list of tokens that were revoked before they expired.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ed25519_dalek::VerifyingKey;
use ensemble_types::ids::TokenId;
use tokio::sync::watch;

/// A consistent picture of keys and revocations. Replaced as a whole, never changed.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: HashMap<String, VerifyingKey>,
    revoked: HashSet<TokenId>,
}

/// The keys were last fetched too long ago to go on trusting them.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the signing keys cannot be fetched")]
pub struct KeysUnavailable;

/// Where the keys come from: identity's own database, or its internal listener.
pub trait KeySource: Send + Sync {
    /// The latest picture; cheap, no I/O.
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable>;

    /// Notifier whenever the picture changed, so that long answers can look again whether their caller may go on.
    fn changes(&self) -> watch::Receiver<()>;
}

impl KeySet {
    pub fn new(
        keys: impl IntoIterator<Item = (String, VerifyingKey)>,
        revoked: impl IntoIterator<Item = TokenId>,
    ) -> Self {
        Self { keys: keys.into_iter().collect(), revoked: revoked.into_iter().collect() }
    }

    pub fn key(&self, kid: &str) -> Option<&VerifyingKey> {
        self.keys.get(kid)
    }

    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.revoked.contains(&token)
    }
}

/// Keys that only a test or a tool changes.
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
