//! The agents of the double: when they join, how they report that they are ready, and how they answer RPC calls.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::livekit::state::Inner;

/// How agents behave.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// False: no worker is registered, and dispatches are dropped.
    pub workers: bool,
    pub join_after: Duration,
    /// True: they wait in front of the room until [`Double::release`](crate::livekit::Double::release).
    pub held: bool,
    pub ready: Ready,
    pub rpc: Rpc,
    /// False: the server is older than PerformRpc.
    pub rpc_supported: bool,
}

/// How an agent reports that its handlers are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It calls the gateway this long after it joined.
    ByEvent(Duration),
    /// It sets an attribute, for which there is no webhook.
    ByAttribute,
    Never,
}

/// How an agent answers an RPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpc {
    Answers,
    /// It accepts the call, but the answer is lost.
    LosesAnswer,
    /// It has no such method.
    NotRegistered,
    Throws,
    /// It is gone, and LiveKit has not noticed.
    Silent,
}

/// The transport by which an item arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Rpc,
    Data,
}

/// An item that an agent received.
#[derive(Clone, Debug)]
pub struct Received {
    pub room: String,
    pub via: Via,
    /// The method, or the topic.
    pub name: String,
    pub payload: Value,
}

impl Default for AgentPlan {
    fn default() -> Self {
        Self {
            workers: true,
            join_after: Duration::from_millis(20),
            held: false,
            ready: Ready::ByEvent(Duration::ZERO),
            rpc: Rpc::Answers,
            rpc_supported: true,
        }
    }
}

/// Texts without repetitions, as an agent that follows the contract reads them.
pub(crate) fn texts(received: &[Received]) -> Vec<String> {
    let mut seen = HashSet::new();
    let of = |payload: &Value, name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
    received
        .iter()
        .filter(|one| one.name.ends_with(".text"))
        .filter(|one| seen.insert(of(&one.payload, "id")))
        .filter_map(|one| {
            of(&one.payload, "text").or_else(|| of(&one.payload, "message")).or_else(|| of(&one.payload, "url"))
        })
        .collect()
}

/// An agent joins, if there is a worker, and reports that it is ready.
pub(crate) fn dispatch_agent(inner: &Arc<Inner>, room: String, room_sid: String, metadata: String) {
    let inner = Arc::clone(inner);
    let plan = inner.read(|state| state.plan.clone());
    if !plan.workers {
        return;
    }
    let runtime = inner.runtime.clone();
    runtime.spawn(async move {
        tokio::time::sleep(plan.join_after).await;
        if plan.held {
            inner.released().await;
        }
        let reports_ready = plan.ready == Ready::ByAttribute;
        if !inner.join_agent((&room, &room_sid), &metadata, plan.rpc, reports_ready) {
            return;
        }
        if let Ready::ByEvent(after) = plan.ready {
            tokio::time::sleep(after).await;
            report_ready(&inner, &metadata).await;
        }
    });
}

async fn report_ready(inner: &Inner, metadata: &str) {
    let Ok(metadata) = serde_json::from_str::<Value>(metadata) else { return };
    let text = |pointer: &str| metadata.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (Some(url), Some(token)) = (text("/gateway/eventsUrl"), text("/gateway/token")) else { return };
    for attempt in 0..6_u32 {
        let sent = inner
            .http
            .post(&url)
            .bearer_auth(&token)
            .json(&serde_json::json!({ "type": "ready" }))
            .timeout(Duration::from_secs(2))
            .send()
            .await;
        if sent.is_ok_and(|response| response.status().as_u16() < 500) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
    }
}
