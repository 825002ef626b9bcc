//! Webhooks as LiveKit signs and sends them: a bare JWT with the digest of the body in `Authorization`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use livekit_api::access_token::AccessToken;
use rand::Rng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use crate::livekit::faults::WebhookFaults;

/// LiveKit tries five times in all.
const ATTEMPTS: u32 = 5;

#[derive(Clone)]
pub(crate) struct Webhooks {
    runtime: Handle,
    http: reqwest::Client,
    target: Arc<Mutex<(Option<String>, WebhookFaults)>>,
}

impl Webhooks {
    pub(crate) fn new(runtime: Handle, http: reqwest::Client) -> Self {
        Self { runtime, http, target: Arc::default() }
    }

    pub(crate) fn send_to(&self, url: String) {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(url);
    }

    pub(crate) fn set_faults(&self, faults: WebhookFaults) {
        self.target.lock().unwrap_or_else(PoisonError::into_inner).1 = faults;
    }

    /// Sends an event, subject to the faults.
    pub(crate) fn emit(&self, event: &str, room: &Value, participant: Option<Value>) {
        let (url, faults) = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if url.is_none() {
            return;
        }
        let mut dice = rand::thread_rng();
        let id = format!("EV_{:016x}", dice.r#gen::<u64>());
        let mut body = json!({ "event": event, "id": id, "createdAt": unix_seconds().to_string(), "room": room });
        if let (Some(object), Some(participant)) = (body.as_object_mut(), participant) {
            object.insert("participant".to_owned(), participant);
        }
        if dice.gen_bool(faults.lost) {
            return;
        }
        let copies = if dice.gen_bool(faults.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let wait =
                if dice.gen_bool(faults.late) { faults.delay.mul_f64(dice.r#gen::<f64>()) } else { Duration::ZERO };
            let (this, body) = (self.clone(), body.to_string());
            self.runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                for attempt in 0..ATTEMPTS {
                    let status = this.send_raw(&body, crate::livekit::API_KEY, crate::livekit::API_SECRET).await;
                    if status != 0 && status != 429 && status < 500 {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
                }
            });
        }
    }

    /// The status of the answer; 0 when there was none.
    pub(crate) async fn send_raw(&self, body: &str, key: &str, secret: &str) -> u16 {
        let Some(url) = self.target.lock().unwrap_or_else(PoisonError::into_inner).0.clone() else { return 0 };
        let digest = STANDARD.encode(Sha256::digest(body.as_bytes()));
        let Ok(token) =
            AccessToken::with_api_key(key, secret).with_ttl(Duration::from_secs(300)).with_sha256(&digest).to_jwt()
        else {
            return 0;
        };
        let sent = self
            .http
            .post(url)
            .header("authorization", token)
            .header("content-type", "application/webhook+json")
            .body(body.to_owned())
            .timeout(Duration::from_secs(5))
            .send()
            .await;
        sent.map_or(0, |response| response.status().as_u16())
    }
}

#[expect(clippy::disallowed_methods, reason = "the double plays a foreign server, with a clock of its own")]
pub(crate) fn unix_seconds() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}
