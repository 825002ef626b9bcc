//! The clients: writers, readers, racers. Each goes on through every fault until it is told to stop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::history::{History, Told};

/// How long a client waits for any answer: longer than every deadline of the services.
const PATIENCE: Duration = Duration::from_secs(15);

/// What every client needs.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) edge: String,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// An answer, or nothing when it was lost on the way.
pub(crate) type Answer = Option<(u16, Value)>;

impl Client {
    pub(crate) fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut History)) {
        if let Ok(mut history) = self.history.lock() {
            change(&mut history);
        }
    }

    pub(crate) async fn call(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let method = reqwest::Method::from_bytes(method.as_bytes()).ok()?;
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.edge)).timeout(PATIENCE);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                if error.is_timeout() {
                    self.note(|h| h.strange.push(format!("X1: {method} {path} hung for {PATIENCE:?}")));
                }
                return None;
            }
        };
        let (status, retry) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
        let text = answer.text().await.ok()?;
        self.note(|h| {
            h.requests += 1;
            h.refused += u64::from(status >= 500);
            let fine = match status {
                200..=299 | 401 | 403 | 404 | 409 | 429 | 502 | 504 => true,
                503 => retry,
                _ => false,
            };
            if !fine {
                h.strange.push(format!("X1: {method} {path} was answered {status}: {text:.200}"));
            }
        });
        Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// Appends one message after the other; repeats each with its `localId` until it is acknowledged, and now and then
    /// once more.
    pub(crate) async fn write(self, token: String, sessions: Vec<String>, name: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut count = 0_u64;
        while !self.stopped() {
            count += 1;
            let Some(session) = sessions.get(random.gen_range(0..sessions.len())) else { return };
            let local_id = format!("w{name}-{count}");
            let content = format!("canary-content-{local_id}-{}", "x".repeat(random.gen_range(0..2048)));
            let path = format!("/v3/sessions/{session}/messages");
            let body = json!({ "content": content, "localId": local_id });
            let mut replays = u32::from(random.gen_ratio(1, 10));
            // A message once begun is seen through, also after the stop: its fate should be known.
            for _ in 0..200 {
                match self.call(&token, "POST", &path, Some(body.clone())).await {
                    Some((200 | 201, message)) => {
                        if let Some(told) = Told::from_json(session, &message) {
                            self.note(|h| h.acknowledged.push(told));
                        }
                        if replays == 0 {
                            break;
                        }
                        replays -= 1;
                    }
                    _ => tokio::time::sleep(Duration::from_millis(random.gen_range(20..200))).await,
                }
            }
        }
    }

    /// Follows one session by pages, as a client that keeps its place.
    pub(crate) async fn read(self, token: String, session: String) {
        let mut after = 0;
        let mut seen = Vec::new();
        while !self.stopped() {
            let path = format!("/v3/sessions/{session}/messages?after={after}&limit=100");
            match self.call(&token, "GET", &path, None).await {
                Some((200, page)) => {
                    let messages = page.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
                    let told: Vec<Told> = messages.iter().filter_map(|m| Told::from_json(&session, m)).collect();
                    after = told.last().map_or(after, |last| last.seq);
                    let empty = told.is_empty();
                    seen.extend(told);
                    if empty {
                        tokio::time::sleep(Duration::from_millis(30)).await;
                    }
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        self.note(|h| h.seen.push(seen));
    }

    /// Changes the metadata of one session, each time against the version it last saw.
    pub(crate) async fn race(self, token: String, session: String, name: usize) {
        let path = format!("/v1/sessions/{session}");
        let mut count = 0_u64;
        let mut version = 1;
        while !self.stopped() {
            count += 1;
            let value = format!("r{name}-{count}");
            let body = json!({ "metadata": value, "expectedMetadataVersion": version });
            match self.call(&token, "PATCH", &path, Some(body)).await {
                Some((200, session)) => {
                    version = session.get("metadataVersion").and_then(Value::as_u64).unwrap_or(version);
                    self.note(|h| h.versions.entry(version).or_default().push(value));
                }
                Some((409, problem)) => {
                    version = problem.pointer("/current/version").and_then(Value::as_u64).unwrap_or(version);
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Opens a public link as somebody new, over and over.
    pub(crate) async fn visit(self, token: String) {
        while !self.stopped() {
            if let Some((200, _)) = self.call("", "GET", &format!("/v1/public-sessions/{token}"), None).await {
                self.note(|h| h.uses += 1);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Shares a session, checks that the guest gets in, takes it back, and checks that the guest does not: from the
    /// moment that the removal was answered.
    pub(crate) async fn revoke(self, owner: String, guest: String, guest_id: String, session: String) {
        let shares = format!("/v1/sessions/{session}/shares");
        let share = json!({ "userId": guest_id, "accessLevel": "edit", "encryptedKey": "sealed" });
        let read = format!("/v3/sessions/{session}/messages?limit=1");
        while !self.stopped() {
            let granted = self.call(&owner, "POST", &shares, Some(share.clone())).await;
            if !matches!(granted, Some((200 | 201, _))) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            let _ = self.call(&guest, "GET", &read, None).await;
            if let Some((200, _)) = self.call(&owner, "DELETE", &format!("{shares}/{guest_id}"), None).await {
                for _ in 0..3 {
                    if let Some((200, _)) = self.call(&guest, "GET", &read, None).await {
                        self.note(|h| h.strange.push("A1: a read succeeded after the revoke was answered".to_owned()));
                    }
                }
            }
        }
    }
}
