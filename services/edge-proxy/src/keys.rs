//! The public keys of tokens, as identity publishes them.
//!
//! The edge reads the public key set and not identity's internal listener: it only has to know whom to count, so it needs
//! neither the list of revoked tokens nor a credential of its own, and it can reach no internal listener.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use ensemble_chassis::auth::FixedKeys;
use ensemble_chassis::{Drain, KeySet};
use ensemble_types::accounts::{Jwk, Jwks};
use reqwest::Client;
use tokio::time::timeout;

/// Fetches the keys now and then at each interval, until the drain. What cannot be fetched leaves the last ones in force: a
/// caller who is counted by an old key is better than one who is not known.
pub(crate) async fn follow(keys: Arc<FixedKeys>, http: Client, url: String, every: Duration, drain: Drain) {
    loop {
        match fetch(&http, &url).await {
            Ok(fetched) => keys.replace(fetched),
            Err(error) => tracing::debug!(%error, "The published keys could not be fetched"),
        }
        if timeout(every, drain.closing()).await.is_ok() {
            return;
        }
    }
}

async fn fetch(http: &Client, url: &str) -> Result<KeySet, reqwest::Error> {
    let answer = http.get(url).timeout(Duration::from_secs(2)).send().await?.error_for_status()?;
    let published: Jwks = answer.json().await?;
    Ok(KeySet::new(published.keys.into_iter().filter_map(read), []))
}

fn read(key: Jwk) -> Option<(String, VerifyingKey)> {
    let bytes = URL_SAFE_NO_PAD.decode(key.x).ok()?;
    let verifying = VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()?;
    (key.crv == "Ed25519").then_some((key.kid, verifying))
}
