//! The agents of the double: when they come, how they say that they are ready, and what they do with what they hear.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::world::Inner;

/// How agents behave.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// False: no worker is registered, and dispatches are forgotten.
    pub workers: bool,
    pub join_after: Duration,
    pub ready: Ready,
    pub rpc: Rpc,
    /// False: the server is older than PerformRpc.
    pub rpc_supported: bool,
}

/// How an agent says that its handlers are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It calls the gateway, so long after it joined.
    ByEvent(Duration),
    /// It sets its attribute, which no webhook tells.
    ByAttribute,
    Never,
}

/// What an agent does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpc {
    Answers,
    /// It takes the call up, but the answer is lost.
    AnswersIntoTheVoid,
    /// It knows no such method.
    NotRegistered,
    Throws,
}

/// By which way something was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Rpc,
    Data,
}

/// Something that an agent heard.
#[derive(Clone, Debug)]
pub struct Heard {
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
            ready: Ready::ByEvent(Duration::ZERO),
            rpc: Rpc::Answers,
            rpc_supported: true,
        }
    }
}

/// Texts without repetitions, as an agent that keeps to the contract takes them up.
pub(crate) fn texts(heard: &[Heard]) -> Vec<String> {
    let mut seen = HashSet::new();
    let of = |payload: &Value, name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
    heard
        .iter()
        .filter(|one| one.name.ends_with(".text"))
        .filter(|one| seen.insert(of(&one.payload, "id")))
        .filter_map(|one| {
            of(&one.payload, "text").or_else(|| of(&one.payload, "message")).or_else(|| of(&one.payload, "url"))
        })
        .collect()
}

/// An agent comes, if there is a worker, and says that it is ready.
pub(crate) fn send_agent(inner: &Arc<Inner>, room: String, room_sid: String, metadata: String) {
    let inner = Arc::clone(inner);
    let plan = inner.read(|world| world.plan.clone());
    if !plan.workers {
        return;
    }
    let runtime = inner.runtime.clone();
    runtime.spawn(async move {
        tokio::time::sleep(plan.join_after).await;
        let says_ready = plan.ready == Ready::ByAttribute;
        if !inner.join_agent(&room, &room_sid, plan.rpc, says_ready) {
            return;
        }
        if let Ready::ByEvent(after) = plan.ready {
            tokio::time::sleep(after).await;
            say_ready(&inner, &metadata).await;
        }
    });
}

async fn say_ready(inner: &Inner, metadata: &str) {
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
