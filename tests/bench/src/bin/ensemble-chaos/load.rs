//! Clients that write and read messages. Each continues through every fault until it is stopped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_testkit::Events;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::history::{At, History, HistoryLog, Message, When};

/// The timeout of a client: longer than every deadline of the services.
const TIMEOUT: Duration = Duration::from_secs(15);
/// An event stream sends data at least this often.
const SILENCE: Duration = Duration::from_secs(40);

/// What every client needs.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    /// The edge, or one service.
    pub(crate) url: String,
    pub(crate) log: Arc<Mutex<HistoryLog>>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// A response and its time.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) when: When,
}

impl Answer {
    pub(crate) fn text(&self, pointer: &str) -> Option<String> {
        Some(self.body.pointer(pointer)?.as_str()?.to_owned())
    }
}

/// One request, and the error statuses that it may receive.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) who: &'a str,
    pub(crate) token: &'a str,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) expected: &'static [u16],
}

impl Client {
    pub(crate) fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits between two requests, so that the load has a realistic rate. Ends early when the client is stopped.
    pub(crate) async fn pause(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.stop.clone().wait_for(|stop| *stop)).await;
    }

    pub(crate) fn now(&self) -> At {
        self.log.lock().map(|log| log.now()).unwrap_or_default()
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut History)) {
        if let Ok(mut log) = self.log.lock() {
            change(&mut log.history);
        }
    }

    fn write(&self, when: When, call: &Call<'_>, outcome: &Value) {
        if let Ok(mut log) = self.log.lock() {
            log.write(when, call.who, &format!("{} {}", call.method, call.path), outcome);
        }
    }

    /// Sends a request once. `None` when there is no response. Records responses that are not allowed.
    pub(crate) async fn call(&self, call: Call<'_>) -> Option<Answer> {
        let sent = self.now();
        let method = reqwest::Method::from_bytes(call.method.as_bytes()).ok()?;
        let mut request = self.http.request(method, format!("{}{}", self.url, call.path)).timeout(TIMEOUT);
        if !call.token.is_empty() {
            request = request.bearer_auth(call.token);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let got = match request.send().await {
            Ok(answer) => {
                let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
                answer.text().await.map(|text| (status, headers, text))
            }
            Err(error) => Err(error),
        };
        let when = When { sent, answered: self.now() };
        let (status, headers, text) = match got {
            Ok(got) => got,
            Err(error) => {
                self.write(when, &call, &json!({ "lost": error.to_string() }));
                self.note(|h| {
                    h.lost += 1;
                    if error.is_timeout() {
                        h.unexpected.push(format!("X1: {} {} hung for {TIMEOUT:?}", call.method, call.path));
                    }
                });
                return None;
            }
        };
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        self.write(when, &call, &json!({ "status": status, "requestId": header("x-request-id") }));
        let violation = violation(status, call.expected, &header, &body);
        self.note(|h| {
            h.requests += 1;
            h.refused += u64::from(status >= 500);
            if let Some(violation) = violation {
                h.unexpected.push(format!("X1: {} {} {violation}: {text:.300}", call.method, call.path));
            }
        });
        Some(Answer { status, body, when })
    }

    /// Appends messages. Repeats each with its `localId` until it is acknowledged, and sometimes once more with
    /// different content, which must have no effect.
    pub(crate) async fn write_messages(self, token: String, sessions: Vec<String>, name: usize, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let (who, mut count) = (format!("writer {name}"), 0_u64);
        while !self.stopped() {
            count += 1;
            let Some(session) = sessions.get(random.gen_range(0..sessions.len())) else { return };
            let local_id = format!("w{name}-{count}");
            let mut content = format!("canary-content-{local_id}-{}", "x".repeat(random.gen_range(0..2048)));
            let mut replays = u32::from(random.gen_ratio(1, 10));
            // A message is completed even after the stop, so that its outcome is known.
            for _ in 0..200 {
                let body = json!({ "content": content, "localId": local_id });
                let path = format!("/v3/sessions/{session}/messages");
                let call = Call { who: &who, token: &token, method: "POST", path, body: Some(body), expected: &[] };
                match self.call(call).await {
                    Some(Answer { status: 200 | 201, body, .. }) => {
                        if let Some(message) = Message::from_json(session, &body) {
                            self.note(|h| h.acknowledged.push(message));
                        }
                        if replays == 0 {
                            break;
                        }
                        replays -= 1;
                        content = format!("canary-content-{local_id}-again");
                    }
                    // Unlike `pause`, this also waits after the stop, when the last message is still being repeated.
                    _ => tokio::time::sleep(Duration::from_millis(random.gen_range(20..200))).await,
                }
            }
            self.pause(Duration::from_millis(random.gen_range(0..20))).await;
        }
    }

    async fn page(&self, who: &str, token: &str, session: &str, query: &str) -> Option<Vec<Message>> {
        let path = format!("/v3/sessions/{session}/messages?{query}");
        match self.call(Call { who, token, method: "GET", path, body: None, expected: &[] }).await {
            Some(Answer { status: 200, body, .. }) => Some(Message::page(session, &body)),
            _ => None,
        }
    }

    /// Reads a session page by page, continuing after the last message that it saw.
    pub(crate) async fn read_forwards(self, token: String, session: String) {
        let mut seen: Vec<Message> = Vec::new();
        while !self.stopped() {
            let after = seen.last().map_or(0, |last| last.seq);
            match self.page("reader", &token, &session, &format!("after={after}&limit=100")).await {
                Some(page) if page.is_empty() => self.pause(Duration::from_millis(30)).await,
                Some(page) => seen.extend(page),
                None => self.pause(Duration::from_millis(100)).await,
            }
        }
        self.note(|h| h.forwards.push(seen));
    }

    /// Reads from the newest message to the first, repeatedly, while others append.
    pub(crate) async fn read_backwards(self, token: String, session: String) {
        while !self.stopped() {
            let mut seen: Vec<Message> = Vec::new();
            loop {
                let query = seen.last().map_or("limit=97".to_owned(), |last| format!("before={}&limit=97", last.seq));
                match self.page("walker", &token, &session, &query).await {
                    Some(page) if page.is_empty() => break,
                    Some(page) => seen.extend(page),
                    // An interrupted walk continues. A walk that is stopped is not checked.
                    None if self.stopped() => return,
                    None => self.pause(Duration::from_millis(100)).await,
                }
                if seen.last().is_some_and(|last| last.seq == 1) {
                    break;
                }
            }
            self.note(|h| h.backwards.push(seen));
            self.pause(Duration::from_millis(300)).await;
        }
    }

    /// Follows a session by its stream, and reconnects with the last id when the stream ends.
    pub(crate) async fn follow(self, token: String, session: String) {
        let mut seen: Vec<Message> = Vec::new();
        let mut stop = self.stop.clone();
        while !self.stopped() {
            let after = seen.last().map_or(0, |last| last.seq);
            let url = format!("{}/v3/sessions/{session}/messages/stream?after={after}", self.url);
            let opened = tokio::time::timeout(TIMEOUT, Events::try_open(self.http.get(url).bearer_auth(&token))).await;
            let Ok(opened) = opened else {
                self.note(|h| h.unexpected.push(format!("X1: a stream was not opened within {TIMEOUT:?}")));
                continue;
            };
            let Some(mut events) = opened.filter(|events| events.status == 200) else {
                self.pause(Duration::from_millis(100)).await;
                continue;
            };
            loop {
                let event = tokio::select! {
                    event = events.next_within(SILENCE) => event,
                    _ = stop.wait_for(|stop| *stop) => break,
                };
                let Ok(Some(event)) = event else { break };
                if event.name == "end" {
                    break;
                }
                let message = serde_json::from_str(&event.data).unwrap_or_default();
                if event.name == "message" {
                    seen.extend(Message::from_json(&session, &message));
                }
            }
        }
        self.note(|h| h.forwards.push(seen));
    }
}

/// The violation of a response. Success, expected errors and well-formed "unavailable" problems are allowed.
fn violation(
    status: u16,
    expected: &[u16],
    header: &dyn Fn(&str) -> Option<String>,
    body: &Value,
) -> Option<&'static str> {
    if (200..300).contains(&status) {
        return None;
    }
    if !expected.contains(&status) && !matches!(status, 429 | 502..=504) {
        return Some("has a status that is not allowed");
    }
    if header("content-type").is_none_or(|kind| !kind.starts_with("application/problem+json"))
        || body.get("code").and_then(Value::as_str).is_none()
        || body.get("status").and_then(Value::as_u64) != Some(u64::from(status))
    {
        return Some("is an error without a problem");
    }
    (matches!(status, 429 | 502..=504) && header("retry-after").is_none()).then_some("is a refusal without Retry-After")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(status: u16, kind: &str, retry: bool, body: &Value) -> Option<&'static str> {
        let header = |name: &str| match name {
            "content-type" => Some(kind.to_owned()),
            "retry-after" if retry => Some("1".to_owned()),
            _ => None,
        };
        violation(status, &[404], &header, body)
    }

    #[test]
    fn x1_only_what_may_be_answered_is_fine() {
        const PROBLEM: &str = "application/problem+json";
        let problem = |status: u16| json!({ "status": status, "code": "SOME_CODE" });
        assert_eq!(judge(200, "text/plain", false, &Value::Null), None);
        assert_eq!(judge(404, PROBLEM, false, &problem(404)), None);
        assert_eq!(judge(503, PROBLEM, true, &problem(503)), None);
        for (status, retry) in [(500, true), (401, false), (403, false), (503, false), (504, false), (429, false)] {
            assert!(judge(status, PROBLEM, retry, &problem(status)).is_some(), "{status}");
        }
        assert!(judge(503, "text/html", true, &problem(503)).is_some());
        assert!(judge(503, PROBLEM, true, &Value::Null).is_some());
        assert!(judge(503, PROBLEM, true, &problem(500)).is_some());
    }
}
