//! Token keys and revocations from identity, cached here so that verifying a token needs no call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ed25519_dalek::VerifyingKey;
use ensemble_chassis::auth::DeviceKey;
use ensemble_chassis::metrics::Metrics;
use ensemble_chassis::{KeySet, KeySource, KeysUnavailable, ServiceContext, StartError, Vars};
use ensemble_types::ids::TokenId;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use crate::identity::{Keys, KeysClient, SnapshotRequest, SnapshotResponse};
use crate::{Channel, Peer, RpcError};

/// How often the first keys are requested while there are none.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How often the keys are refreshed.
#[derive(Clone, Copy, Debug)]
pub struct KeyRefresh {
    /// A revoked token is refused here within this time plus the deadline of a call.
    pub every: Duration,
    /// Keys that could not be refreshed for this long are no longer used.
    pub trusted_for: Duration,
}

/// Keys that are fetched from identity in the background. While identity is unavailable, the last known keys are used
/// for a limited time.
#[derive(Debug)]
pub struct RemoteKeys {
    snapshot: Mutex<Snapshot>,
    changed: watch::Sender<()>,
    trusted_for: Duration,
}

#[derive(Debug, Default)]
struct Snapshot {
    version: String,
    /// The keys, and when they were last confirmed.
    keys: Option<(Arc<KeySet>, Instant)>,
}

impl KeyRefresh {
    pub fn configure(vars: &mut Vars) -> Self {
        Self {
            every: vars.millis("KEYS_REFRESH_MS", "how often token keys and revocations are fetched", 5_000),
            trusted_for: vars.millis(
                "KEYS_TRUSTED_MS",
                "how long token keys stay valid while identity is unavailable",
                300_000,
            ),
        }
    }
}

impl Default for KeyRefresh {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), trusted_for: Duration::from_secs(300) }
    }
}

impl RemoteKeys {
    /// Fetches the keys for a service, as [`Self::follow`] does, and exports their age to Prometheus.
    ///
    /// # Errors
    /// The metric is registered already: the service called this twice.
    pub async fn start(
        context: &ServiceContext,
        identity: &Peer,
        refresh: KeyRefresh,
    ) -> Result<Arc<Self>, StartError> {
        let keys = Self::follow(Arc::new(KeysClient::new(Channel::new(context, identity))), refresh).await;
        keys.register(&context.metrics)?;
        Ok(keys)
    }

    /// Fetches the keys once, and then continues in the background until the returned value is dropped. An unavailable
    /// identity is no error: until it responds, [`KeySource::current`] reports that there are no keys.
    pub async fn follow(identity: Arc<dyn Keys>, refresh: KeyRefresh) -> Arc<Self> {
        let snapshot = Mutex::new(Snapshot::default());
        let keys = Arc::new(Self { snapshot, changed: watch::Sender::new(()), trusted_for: refresh.trusted_for });
        let first = keys.refresh(&*identity).await;
        if let Err(error) = &first {
            tracing::warn!(%error, "The token keys are not available yet");
        }
        tokio::spawn(refresh_forever(Arc::downgrade(&keys), identity, refresh.every, first.is_ok()));
        keys
    }

    fn register(self: &Arc<Self>, metrics: &Metrics) -> Result<(), prometheus::Error> {
        let keys = Arc::downgrade(self);
        metrics.reading(
            "token_keys_age_seconds",
            "Seconds since identity last confirmed the token keys.",
            &[],
            move || {
                let known =
                    keys.upgrade().and_then(|keys| keys.snapshot().keys.as_ref().map(|(_, confirmed)| *confirmed));
                known.map_or(f64::NAN, |confirmed| confirmed.elapsed().as_secs_f64())
            },
        )
    }

    async fn refresh(&self, identity: &dyn Keys) -> Result<(), RpcError> {
        let requested = Instant::now();
        let known_version = self.snapshot().version.clone();
        let snapshot = identity.snapshot(SnapshotRequest { known_version }).await?;
        let mut cached = self.snapshot();
        if snapshot.unchanged
            && let Some((_, confirmed)) = &mut cached.keys
        {
            *confirmed = requested;
            return Ok(());
        }
        cached.keys = Some((Arc::new(key_set(&snapshot)?), requested));
        cached.version = snapshot.version;
        drop(cached);
        self.changed.send_replace(());
        Ok(())
    }

    fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeySource for RemoteKeys {
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        match &self.snapshot().keys {
            Some((keys, confirmed)) if confirmed.elapsed() <= self.trusted_for => Ok(Arc::clone(keys)),
            _ => Err(KeysUnavailable),
        }
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

async fn refresh_forever(keys: Weak<RemoteKeys>, identity: Arc<dyn Keys>, every: Duration, mut has_keys: bool) {
    loop {
        tokio::time::sleep(if has_keys { every } else { every.min(FIRST_PAUSE) }).await;
        let Some(keys) = keys.upgrade() else { return };
        match keys.refresh(&*identity).await {
            Ok(()) => has_keys = true,
            Err(error) if has_keys => tracing::warn!(%error, "The token keys could not be refreshed"),
            Err(error) => tracing::debug!(%error, "The token keys are not available yet"),
        }
    }
}

/// The keys of a snapshot.
///
/// # Errors
/// A key or an id is malformed. The whole snapshot is then refused, because half a snapshot could miss a revocation.
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
    let mut removed = Vec::with_capacity(snapshot.removed_devices.len());
    for key in &snapshot.removed_devices {
        removed.push(DeviceKey(key.as_slice().try_into().map_err(|_| wrong("device"))?));
    }
    Ok(KeySet::new(keys, revoked).with_removed(removed))
}
