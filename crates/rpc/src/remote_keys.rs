//! Token keys and revocations of identity, kept here so that verifying a token asks nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use ensemble_chassis::metrics::Metrics;
use ensemble_chassis::{KeySet, KeySource, KeysUnavailable, Vars};
use ensemble_types::ids::TokenId;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::RpcError;
use crate::identity::{Keys, SnapshotRequest, SnapshotResponse};

/// The first keys are asked for this often while there are none.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How fresh the keys are kept.
#[derive(Clone, Copy, Debug)]
pub struct KeyRefresh {
    /// A revoked token stops working here within this time and a call's deadline.
    pub every: Duration,
    /// Keys that could not be refreshed for so long are not believed any more.
    pub trusted_for: Duration,
}

/// Keys that are fetched from identity in the background. When identity is away the last known ones hold for a while.
#[derive(Debug)]
pub struct RemoteKeys {
    known: Mutex<Known>,
    changed: watch::Sender<()>,
    trusted_for: Duration,
}

#[derive(Debug, Default)]
struct Known {
    version: String,
    /// The keys, and when they were last confirmed.
    keys: Option<(Arc<KeySet>, Instant)>,
}

impl KeyRefresh {
    pub fn configure(vars: &mut Vars) -> Self {
        Self {
            every: vars.millis("KEYS_REFRESH_MS", "how often token keys and revocations are fetched", 5_000),
            trusted_for: vars.millis("KEYS_TRUSTED_MS", "how long they hold while identity is away", 300_000),
        }
    }
}

impl Default for KeyRefresh {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), trusted_for: Duration::from_secs(300) }
    }
}

impl RemoteKeys {
    /// Asks for the keys once, and goes on asking until the last owner of what it returns has gone. An identity that is
    /// away is no error: until it comes, [`KeySource::current`] says that there are no keys.
    pub async fn start(identity: Arc<dyn Keys>, refresh: KeyRefresh) -> Arc<Self> {
        let known = Mutex::new(Known::default());
        let keys = Arc::new(Self { known, changed: watch::Sender::new(()), trusted_for: refresh.trusted_for });
        let first = keys.refresh(&*identity).await;
        if let Err(error) = &first {
            tracing::warn!(%error, "The token keys are not there yet");
        }
        tokio::spawn(keep_fresh(Arc::downgrade(&keys), identity, refresh.every, first.is_ok()));
        keys
    }

    /// Shows how old the keys are to Prometheus.
    ///
    /// # Errors
    /// The name is taken: call it once for each service.
    pub fn register(self: &Arc<Self>, metrics: &Metrics) -> Result<(), prometheus::Error> {
        let keys = Arc::downgrade(self);
        metrics.reading("token_keys_age_seconds", "Since identity last confirmed the token keys.", &[], move || {
            let known = keys.upgrade().and_then(|keys| keys.known().keys.as_ref().map(|(_, confirmed)| *confirmed));
            known.map_or(f64::NAN, |confirmed| confirmed.elapsed().as_secs_f64())
        })
    }

    async fn refresh(&self, identity: &dyn Keys) -> Result<(), RpcError> {
        let asked = Instant::now();
        let known_version = self.known().version.clone();
        let snapshot = identity.snapshot(SnapshotRequest { known_version }).await?;
        let mut known = self.known();
        if snapshot.unchanged
            && let Some((_, confirmed)) = &mut known.keys
        {
            *confirmed = asked;
            return Ok(());
        }
        known.keys = Some((Arc::new(key_set(&snapshot)?), asked));
        known.version = snapshot.version;
        drop(known);
        self.changed.send_replace(());
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySource for RemoteKeys {
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        match &self.known().keys {
            Some((keys, confirmed)) if confirmed.elapsed() <= self.trusted_for => Ok(Arc::clone(keys)),
            _ => Err(KeysUnavailable),
        }
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

async fn keep_fresh(keys: Weak<RemoteKeys>, identity: Arc<dyn Keys>, every: Duration, mut have_some: bool) {
    loop {
        tokio::time::sleep(if have_some { every } else { every.min(FIRST_PAUSE) }).await;
        let Some(keys) = keys.upgrade() else { return };
        match keys.refresh(&*identity).await {
            Ok(()) => have_some = true,
            Err(error) if have_some => tracing::warn!(%error, "The token keys could not be refreshed"),
            Err(error) => tracing::debug!(%error, "The token keys are not there yet"),
        }
    }
}

/// The keys of a snapshot.
///
/// # Errors
/// A key or an id that has the wrong form: better no new keys than some of them.
pub fn key_set(snapshot: &SnapshotResponse) -> Result<KeySet, RpcError> {
    let wrong = |what: &str| RpcError::Internal(format!("a snapshot of the token keys holds a malformed {what}"));
    let mut keys = Vec::with_capacity(snapshot.keys.len());
    for key in &snapshot.keys {
        let bytes = key.public_key.as_slice().try_into().map_err(|_| wrong("key"))?;
        keys.push((key.key_id.clone(), VerifyingKey::from_bytes(bytes).map_err(|_| wrong("key"))?));
    }
    let mut revoked = Vec::with_capacity(snapshot.revoked_token_ids.len());
    for id in &snapshot.revoked_token_ids {
        revoked.push(TokenId::from_uuid(Uuid::from_slice(id).map_err(|_| wrong("id"))?));
    }
    Ok(KeySet::new(keys, revoked))
}
