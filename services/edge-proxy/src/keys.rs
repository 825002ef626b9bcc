//! The public keys of tokens, as identity publishes them.
//!
//! The edge reads the public key set and not identity's internal listener: it only has to know whom to count, so it needs
//! neither the list of revoked tokens nor a credential of its own, and it can reach no internal listener.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use ensemble_chassis::{Drain, KeySet, KeySource, KeysUnavailable};
use serde::Deserialize;
use tokio::sync::watch;

/// The keys last seen.
#[derive(Debug)]
pub(crate) struct PublishedKeys {
    last: RwLock<Arc<KeySet>>,
    changed: watch::Sender<()>,
}

/// RFC 7517 and RFC 8037.
#[derive(Deserialize)]
struct PublishedSet {
    keys: Vec<PublishedKey>,
}

#[derive(Deserialize)]
struct PublishedKey {
    kid: Option<String>,
    crv: Option<String>,
    x: Option<String>,
}

impl PublishedKeys {
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { last: RwLock::default(), changed: watch::Sender::new(()) })
    }

    /// Fetches the keys now and every `interval`, until the drain. What cannot be fetched leaves the last ones in force:
    /// a caller who is counted by an old key is better than one who is not known.
    pub(crate) async fn follow(self: Arc<Self>, http: reqwest::Client, url: String, interval: Duration, drain: Drain) {
        loop {
            match fetch(&http, &url).await {
                Ok(keys) => {
                    *self.last.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                    self.changed.send_replace(());
                }
                Err(error) => tracing::debug!(%error, "The published keys could not be fetched"),
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = drain.closing() => return,
            }
        }
    }
}

impl KeySource for PublishedKeys {
    fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
        Ok(Arc::clone(&self.last.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

async fn fetch(http: &reqwest::Client, url: &str) -> Result<KeySet, reqwest::Error> {
    let answer = http.get(url).timeout(Duration::from_secs(2)).send().await?.error_for_status()?;
    let published: PublishedSet = answer.json().await?;
    Ok(KeySet::new(published.keys.into_iter().filter_map(PublishedKey::read), []))
}

impl PublishedKey {
    fn read(self) -> Option<(String, VerifyingKey)> {
        let bytes = URL_SAFE_NO_PAD.decode(self.x?).ok()?;
        let key = VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()?;
        (self.crv.as_deref() == Some("Ed25519")).then_some((self.kid?, key))
    }
}
