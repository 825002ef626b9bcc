//! What operations cost: `tests/costs.toml`.

use std::cell::RefCell;

use ensemble_doubles::livekit::{AgentPlan, WebhookFaults};
use ensemble_testkit::{Costs, explained, on_both_databases};
use ensemble_types::ids::UserId;
use serde_json::json;

use crate::fixture::{Fixture, Started};

/// The timers sleep until the first deadline or the next sweep. No session has a deadline before the next sweep, so none wakes them.
const SWEEPS_ONLY: [(&str, &str); 7] = [
    ("VOICE_SWEEP_MS", "60000"),
    ("VOICE_RECONCILE_SECONDS", "3600"),
    ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "600"),
    ("VOICE_EMPTY_TIMEOUT_SECONDS", "600"),
    ("VOICE_SETTLE_MS", "600000"),
    ("VOICE_DELETE_RETRY_MS", "600000"),
    ("VOICE_STOP_BUDGET_MS", "60000"),
];

/// What the gateway asks LiveKit.
const CALLS: [&str; 9] = [
    "CreateRoom",
    "DeleteRoom",
    "ListRooms",
    "ListParticipants",
    "PerformRpc",
    "SendData",
    "CreateDispatch",
    "ListDispatch",
    "DeleteDispatch",
];

async fn start(fixture: &Fixture, user: UserId) -> Started {
    let body = json!({ "userId": user, "sessionId": "session" });
    Started::of(&fixture.as_user(user, "/v1/voice/session/start", &body).await)
}

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = explained(Fixture::with(on, &SWEEPS_ONLY)).await;
        // What LiveKit reports costs statements of its own, when it comes.
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        fixture.double.set_webhook_faults(WebhookFaults { lost: 1.0, ..WebhookFaults::default() });
        let of_livekit = || CALLS.iter().map(|call| fixture.double.calls(call) as u64).sum::<u64>();
        let costs = Costs::new("voice-gateway", on, &fixture.database.url);
        let mut costs = costs.with_requests(|| fixture.peers.requests() + of_livekit());
        // One session is open at a time.
        let open = RefCell::new(None::<Started>);
        let user = async || {
            if let Some(started) = open.take() {
                assert_eq!(fixture.stop(&started.id).await["state"], "stopped");
            }
            fixture.peers.new_user()
        };
        costs.count("start a voice session", user, async |user| {
            open.replace(Some(fixture.start(&user.to_string(), "session").await));
        }).await;
        costs.count("start a voice session as its user", user, async |user| {
            open.replace(Some(start(&fixture, user).await));
        }).await;
        costs.count("stop a voice session", async || {
            let user = user().await;
            fixture.start(&user.to_string(), "session").await
        }, async |started| {
            assert_eq!(fixture.stop(&started.id).await["state"], "stopped");
        }).await;
        costs.check();
    }
}
