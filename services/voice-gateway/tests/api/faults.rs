//! Many starts with random faults: in the end every room is deleted and every session has ended for its own reason.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_doubles::livekit::{AgentPlan, Fault, Leave, Ready, WebhookFaults};
use ensemble_testkit::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::fixture::Fixture;

const STARTS: usize = 400;
const AT_ONCE: usize = 16;

/// How one session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Stopped,
    HungUp,
    CutOff,
    NeverJoined,
    Replaced,
}

const FATES: [Fate; 5] = [Fate::Stopped, Fate::HungUp, Fate::CutOff, Fate::NeverJoined, Fate::Replaced];

impl Fate {
    fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "stop_requested",
            Self::HungUp | Self::CutOff => "left",
            Self::NeverJoined => "room_finished",
            Self::Replaced => "replaced",
        }
    }
}

on_both_databases! {
    async fn many_starts_with_random_faults(on: Backend) {
        let fixture = Fixture::with(on, &[
            ("VOICE_MAX_SESSIONS_PER_USER", "0"),
            ("VOICE_MAX_SESSIONS", "0"),
            ("VOICE_STARTS_PER_MINUTE_PER_KEY", "0"),
            ("VOICE_CREATE_TIMEOUT_MS", "1500"),
            ("VOICE_EMPTY_TIMEOUT_SECONDS", "600"),
            ("VOICE_RECONCILE_SECONDS", "1"),
            ("VOICE_DEPARTURE_TIMEOUT_SECONDS", "600"),
            ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "1200"),
            ("VOICE_STATUS_FRESH_MS", "0"),
        ]).await;
        // Agents that report only by attribute send no requests of their own.
        fixture.double.plan_agents(AgentPlan { ready: Ready::ByAttribute, ..AgentPlan::default() });
        fixture.double.fail_randomly(0.08, vec![
            Fault::Slow(Duration::from_millis(60)),
            Fault::PlainUnauthorized,
            Fault::Unavailable,
            Fault::BadGateway,
            Fault::EffectWithoutAnswer(Duration::from_millis(400)),
            Fault::Hang(Duration::from_millis(400)),
        ], 20_260_326);
        fixture.double.set_webhook_faults(WebhookFaults { lost: 0.1, doubled: 0.1, late: 0.3, delay: Duration::from_millis(80) });

        let lives: Vec<Option<(String, Fate)>> =
            stream::iter(0..STARTS).map(|number| live(&fixture, number)).buffer_unordered(AT_ONCE).collect().await;
        fixture.double.clear_faults();
        // The reconciler notices the departures whose webhooks were lost. Then the time is over for all.
        for (id, _) in lives.iter().flatten().filter(|(_, fate)| matches!(fate, Fate::HungUp | Fate::CutOff)) {
            let is_gone = |status: &Value| {
                status["endedAt"].is_string() || status["participants"].as_array().unwrap().iter().any(|one| one["state"] == "away")
            };
            eventually(ensemble_testkit::SOON, async || is_gone(&fixture.status(id).await)).await;
        }
        fixture.pass(Duration::from_secs(600)).await;

        let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
        for (id, fate) in lives.iter().flatten() {
            let mut status = Value::Null;
            eventually(ensemble_testkit::SOON, async || {
                status = fixture.status(id).await;
                status["state"] == "stopped" || status["state"] == "error"
            })
            .await;
            assert_eq!(status["endReason"], fate.reason(), "{fate:?}: {status}");
            *expected.entry(fate.reason()).or_default() += 1;
        }
        assert!(lives.iter().flatten().count() > STARTS / 2, "hardly anything was allowed: {expected:?}");
        eventually(ensemble_testkit::SOON, async || fixture.double.rooms().is_empty()).await;
        ends_add_up(&fixture).await;
    }
}

/// Starts a session and does what leads to its end. `None`: the start failed.
async fn live(fixture: &Fixture, number: usize) -> Option<(String, Fate)> {
    let fate = FATES[number % FATES.len()];
    let body_of_start = json!({ "userId": format!("user-{number}"), "sessionId": "session-1" });
    let answer = fixture.api.post("/v1/voice/session/start", &body_of_start).await;
    if answer.status != 200 {
        assert!(matches!(answer.status, 502 | 503), "{}", answer.text);
        return None;
    }
    let body = answer.json();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    let (id, room, identity, token) =
        (text("gatewaySessionId"), text("roomName"), text("participantIdentity"), text("participantToken"));
    match fate {
        Fate::Stopped => {
            fixture.stop(&id).await;
        }
        Fate::HungUp | Fate::CutOff => {
            fixture.double.join(&token).unwrap();
            // The gateway must have seen the person before the departure counts.
            eventually(ensemble_testkit::SOON, async || {
                let status = fixture.status(&id).await;
                let there = status["participants"].as_array().unwrap().iter().any(|one| one["kind"] == "human");
                there || status["endedAt"].is_string()
            })
            .await;
            fixture.double.leave(&room, &identity, if fate == Fate::HungUp { Leave::HangsUp } else { Leave::Lost });
        }
        Fate::NeverJoined => {}
        Fate::Replaced => {
            fixture.double.join(&token).unwrap();
            // Until one succeeds. A start that fails must not end the first session.
            loop {
                let second = fixture.api.post("/v1/voice/session/start", &body_of_start).await;
                if second.status == 200 {
                    let second = second.json()["gatewaySessionId"].as_str().unwrap().to_owned();
                    fixture.stop(&second).await;
                    break;
                }
            }
        }
    }
    Some((id, fate))
}

/// As many ends as recorded sessions, each counted once, and no open session.
async fn ends_add_up(fixture: &Fixture) {
    let internal = Api::new(&fixture.gateway.internal_url());
    eventually(ensemble_testkit::SOON, async || {
        internal
            .get("/metrics")
            .await
            .text
            .lines()
            .any(|line| line.starts_with("ensemble_voice_live_sessions") && line.ends_with(" 0"))
    })
    .await;
    let metrics = internal.get("/metrics").await.text;
    let sum = |name: &str| -> u64 {
        // A start that was refused by the open breaker was not recorded.
        let uncounted = ["outcome=\"replayed\"", "outcome=\"livekit_away\""];
        let values = metrics
            .lines()
            .filter(|line| line.starts_with(name) && !uncounted.iter().any(|outcome| line.contains(outcome)));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let (starts, ends) = (sum("ensemble_voice_starts_total"), sum("ensemble_voice_ends_total"));
    // It is not known whether a start was recorded when the database did not answer in time.
    let unknown = sum("ensemble_voice_starts_total{outcome=\"database_away\"");
    assert!(
        (starts - unknown..=starts).contains(&ends),
        "{ends} ends of {starts} starts ({unknown} unknown): {metrics}"
    );
}
