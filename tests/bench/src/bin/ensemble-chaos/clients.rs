//! Clients whose access rights are checked: writers that race for a version, visitors of public links, a guest whose
//! share changes, a user without access; and a client that submits runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_types::time::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::history::{Change, Entry, Level, Link, Share};
use crate::load::{Answer, Call, Client};

const MAX_USES: usize = 10;
/// The lifetime of a link that expires.
const SHORT_LIFE: Duration = Duration::from_millis(1_500);
/// How much later than its expiry a link may still open.
const EXPIRY_GRACE: Duration = Duration::from_secs(1);

/// Tokens of recent links, including invalid ones. Visitors try all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkPool(Arc<Mutex<VecDeque<String>>>);

impl LinkPool {
    fn put(&self, token: String) {
        if let Ok(mut links) = self.0.lock() {
            links.push_back(token);
            if links.len() > 3 {
                links.pop_front();
            }
        }
    }

    fn any(&self, random: &mut StdRng) -> Option<String> {
        let links = self.0.lock().ok()?;
        links.get(random.gen_range(0..links.len().max(1))).cloned()
    }
}

pub(crate) struct User {
    pub(crate) token: String,
    pub(crate) id: String,
}

impl Client {
    /// Waits a random time between requests, as a person does.
    async fn think(&self, random: &mut StdRng, up_to_ms: u64) {
        self.pause(Duration::from_millis(random.gen_range(up_to_ms / 2..=up_to_ms))).await;
    }

    /// Changes the metadata of one session, each time with the version that it last saw.
    pub(crate) async fn race(self, token: String, session: String, name: usize) {
        let who = format!("racer {name}");
        let (mut count, mut version) = (0_u64, 1);
        while !self.stopped() {
            count += 1;
            let value = format!("canary-metadata-r{name}-{count}");
            let body = Some(json!({ "metadata": value, "expectedMetadataVersion": version }));
            let path = format!("/v1/sessions/{session}");
            let call = Call { who: &who, token: &token, method: "PATCH", path, body, expected: &[409] };
            match self.call(call).await {
                Some(Answer { status: 200, body, .. }) => {
                    version = body.get("metadataVersion").and_then(Value::as_u64).unwrap_or(version);
                    self.note(|h| h.versions.entry(version).or_default().push(value));
                }
                Some(Answer { status: 409, body, .. }) => {
                    version = body.pointer("/current/version").and_then(Value::as_u64).unwrap_or(version);
                }
                _ => self.pause(Duration::from_millis(100)).await,
            }
            self.pause(Duration::from_millis(20)).await;
        }
    }

    /// Creates public links: each replaces the one before, some expire soon, some are deleted.
    pub(crate) async fn make_links(self, token: String, session: String, links: LinkPool, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let path = format!("/v1/sessions/{session}/public-share");
        let call = |method, body| Call { who: "owner", token: &token, method, path: path.clone(), body, expected: &[] };
        // The server's clock, and when it was read.
        let mut clock: Option<(Timestamp, Duration)> = None;
        let mut current: Option<String> = None;
        while !self.stopped() {
            let end = clock.filter(|_| random.gen_ratio(1, 3)).map(|(then, at)| {
                let now = then.plus(self.now().saturating_sub(at));
                now.plus(SHORT_LIFE).to_string()
            });
            let body = json!({ "maxUses": MAX_USES, "expiresAt": end });
            let made = self.call(call("POST", Some(body))).await;
            let Some(made) = made.filter(|answer| matches!(answer.status, 200 | 201)) else {
                self.think(&mut random, 200).await;
                continue;
            };
            let moment = |name: &str| made.text(name)?.parse::<Timestamp>().ok();
            let (Some(link), Some(created)) = (made.text("/token"), moment("/createdAt")) else { continue };
            clock = Some((created, made.when.answered));
            let expiry = moment("/expiresAt").map(|end| made.when.answered + end.since(created) + EXPIRY_GRACE);
            self.note(|h| {
                if let Some(old) = current.as_ref().and_then(|old| h.links.get_mut(old)) {
                    let dead = old.dead_from.map_or(made.when.answered, |dead| dead.min(made.when.answered));
                    old.dead_from = Some(dead);
                }
                h.links.insert(link.clone(), Link { max_uses: MAX_USES, views: Vec::new(), dead_from: expiry });
            });
            links.put(link.clone());
            current = Some(link);
            self.think(&mut random, 2_500).await;
            if random.gen_ratio(1, 3)
                && let Some(Answer { status: 200, when, .. }) = self.call(call("DELETE", None)).await
            {
                self.note(|h| {
                    if let Some(old) = current.as_ref().and_then(|old| h.links.get_mut(old)) {
                        old.dead_from = Some(old.dead_from.map_or(when.answered, |dead| dead.min(when.answered)));
                    }
                });
                self.think(&mut random, 500).await;
            }
        }
    }

    /// Opens public links repeatedly, each time as a new visitor.
    pub(crate) async fn open_links(self, links: LinkPool, name: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let who = format!("visitor {name}");
        while !self.stopped() {
            if let Some(link) = links.any(&mut random) {
                let path = format!("/v1/public-sessions/{link}");
                let call = Call { who: &who, token: "", method: "GET", path, body: None, expected: &[404] };
                if let Some(Answer { status: 200, when, .. }) = self.call(call).await {
                    self.note(|h| h.links.entry(link).or_default().views.push(when));
                }
            }
            self.think(&mut random, 120).await;
        }
    }

    /// The owner shares a session and raises, lowers and removes the guest's level, while the guest tries to use it.
    pub(crate) async fn share(self, owner: String, guest: User, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stopped() {
            // A lost response may take effect later, so the scenario continues in a new session.
            let body = Some(json!({ "machineId": "m", "metadata": "canary-metadata", "encryptionKey": "canary-key" }));
            let path = "/v1/sessions".to_owned();
            let made = self.call(Call { who: "owner", token: &owner, method: "POST", path, body, expected: &[] }).await;
            let Some(session) = made.filter(|made| made.status == 201).and_then(|made| made.text("/id")) else {
                self.think(&mut random, 200).await;
                continue;
            };
            let mut share = Share::default();
            for _ in 0..30 {
                let level = match random.gen_range(0..3) {
                    0 => Level::Nothing,
                    1 => Level::View,
                    _ => Level::Edit,
                };
                let change = self.set_level(&owner, &guest.id, &session, level).await;
                share.changes.push(change);
                for _ in 0..random.gen_range(1..4) {
                    share.entries.extend(self.try_to_enter(&guest.token, &session, &mut random).await);
                }
                if change.answered.is_none() || self.stopped() {
                    break;
                }
            }
            self.note(|h| h.shares.push(share));
        }
    }

    async fn set_level(&self, owner: &str, guest: &str, session: &str, level: Level) -> Change {
        let shares = format!("/v1/sessions/{session}/shares");
        let share = |level: &str| Some(json!({ "userId": guest, "accessLevel": level, "encryptedKey": "canary-key" }));
        let (method, path, body) = match level {
            Level::Nothing => ("DELETE", format!("{shares}/{guest}"), None),
            Level::View => ("POST", shares, share("view")),
            Level::Edit => ("POST", shares, share("edit")),
        };
        let sent = self.now();
        // There may be no share to remove.
        let expected: &[u16] = if level == Level::Nothing { &[404] } else { &[] };
        let answer = self.call(Call { who: "owner", token: owner, method, path, body, expected }).await;
        let answered = answer.filter(|answer| answer.status < 500).map(|answer| answer.when.answered);
        Change { level, sent, answered }
    }

    async fn try_to_enter(&self, guest: &str, session: &str, random: &mut StdRng) -> Option<Entry> {
        let path = format!("/v3/sessions/{session}/messages");
        let (needs, method, body) = if random.gen_bool(0.5) {
            (Level::View, "GET", None)
        } else {
            let local_id = format!("g{}", random.r#gen::<u64>());
            (Level::Edit, "POST", Some(json!({ "content": "canary-content", "localId": local_id })))
        };
        let call = Call { who: "guest", token: guest, method, path, body, expected: &[403, 404] };
        let answer = self.call(call).await?;
        (answer.status < 300).then_some(Entry { needs, when: answer.when })
    }

    /// A1: a user with whom nothing was ever shared.
    pub(crate) async fn probe_without_access(self, stranger: String, session: String, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stopped() {
            let (method, path, body) = match random.gen_range(0..4) {
                0 => ("GET", format!("/v1/sessions/{session}"), None),
                1 => ("GET", format!("/v3/sessions/{session}/messages"), None),
                2 => ("PATCH", format!("/v1/sessions/{session}"), Some(json!({ "metadata": "stolen" }))),
                _ => {
                    let body = json!({ "content": "stolen", "localId": "stolen" });
                    ("POST", format!("/v3/sessions/{session}/messages"), Some(body))
                }
            };
            let call = Call { who: "stranger", token: &stranger, method, path, body, expected: &[404] };
            if let Some(Answer { status: 200..300, .. }) = self.call(call.clone()).await {
                self.note(|h| h.unexpected.push(format!("A1: {} {} succeeded without access", call.method, call.path)));
            }
            self.think(&mut random, 150).await;
        }
    }

    /// Submits runs, waits for them and cancels them, and sends the machine's heartbeat.
    pub(crate) async fn submit_runs(self, token: String, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let call =
            |method, path: String, body| Call { who: "worker", token: &token, method, path, body, expected: &[] };
        while !self.stopped() {
            let beat = Some(json!({ "activity": { "busy": random.gen_bool(0.5) } }));
            let _ = self.call(call("PATCH", "/v1/machines/m".to_owned(), beat)).await;
            let task = json!({ "prompt": "canary-prompt", "provider": "claude", "machineId": "m" });
            let body = Some(json!({ "tasks": [task] }));
            let runs = "/v1/orchestrator/runs";
            if let Some(run) = self.call(call("POST", runs.to_owned(), body)).await.and_then(|made| made.text("/id")) {
                let pend = Some(json!({ "timeoutMs": random.gen_range(100..1_500) }));
                let _ = self.call(call("POST", format!("{runs}/{run}/pend"), pend)).await;
                let _ = self.call(call("POST", format!("{runs}/{run}/cancel"), Some(json!({})))).await;
            }
            self.think(&mut random, 200).await;
        }
    }
}
