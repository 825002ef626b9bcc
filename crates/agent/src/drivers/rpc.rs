//! JSON-RPC 2.0 (jsonrpc.org/specification): our requests until they are answered, and what errors say.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::words::ErrorCode;
use serde_json::{Value, json};

use crate::json::{some, text};

/// Our requests that may wait for an answer.
const MOST: usize = 64;

/// Our requests that wait for an answer.
#[derive(Debug)]
pub(crate) struct Calls<C> {
    next: u64,
    waiting: BTreeMap<u64, C>,
}

impl<C> Default for Calls<C> {
    fn default() -> Self {
        Self { next: 0, waiting: BTreeMap::new() }
    }
}

impl<C> Calls<C> {
    /// The request to write, or nothing when too many wait.
    pub(crate) fn begin(&mut self, call: C, method: &str, params: Value) -> Option<Value> {
        if self.waiting.len() >= MOST {
            return None;
        }
        self.next = self.next.saturating_add(1);
        self.waiting.insert(self.next, call);
        Some(json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}))
    }

    /// Whether every request was answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The request that this id answers.
    pub(crate) fn end(&mut self, id: &Value) -> Option<C> {
        self.waiting.remove(&id.as_u64()?)
    }
}

/// What an error says: its message, and the details that some agents put the real reason into.
pub(crate) fn reason(error: &Value) -> String {
    let details = some(error, "/data/details").or(some(error, "/data/message")).or(some(error, "/data"));
    match (text(error, "/message"), details) {
        (message, Some(details)) if message != details => format!("{message}: {details}"),
        ("", None) => "The agent gave no reason.".to_owned(),
        (message, _) => message.to_owned(),
    }
}

/// Agents put the HTTP status of the model's answer into `code`, or name it in the text.
pub(crate) fn code(error: &Value) -> ErrorCode {
    let number = error.get("code").and_then(Value::as_i64);
    let text = reason(error).to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match number {
        Some(401 | 403 | -32000) => ErrorCode::Login,
        Some(429) => ErrorCode::Quota,
        Some(503 | 529) => ErrorCode::Overloaded,
        _ if has(&["unauthorized", "authentication", "api key", "api-key", "status 401"]) => ErrorCode::Login,
        _ if has(&[
            "rate limit",
            "usage limit",
            "current quota",
            "resource exhausted",
            "resource_exhausted",
            "status 429",
        ]) =>
        {
            ErrorCode::Quota
        }
        _ if has(&["overloaded", "status 503", "status 529"]) => ErrorCode::Overloaded,
        _ if has(&["context length", "context window", "prompt is too long"]) => ErrorCode::Context,
        _ => ErrorCode::Unknown,
    }
}
