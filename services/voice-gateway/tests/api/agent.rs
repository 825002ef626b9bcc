//! Agents that do not join, that die or are slow to be ready; and the routes of agents.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_doubles::livekit::{AgentPlan, Ready};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started};

/// The credential and addresses in the metadata of a dispatch.
pub(crate) struct AgentClient {
    pub(crate) api: Api,
    context: String,
    pub(crate) events: String,
}

pub(crate) fn agent_of(fixture: &Fixture, started: &Started) -> AgentClient {
    let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&started.room).unwrap()).unwrap();
    let base = fixture.gateway.public_url();
    let path = |name: &str| metadata["gateway"][name].as_str().unwrap().strip_prefix(&base).unwrap().to_owned();
    AgentClient {
        api: Api::new(&base).with_token(metadata["gateway"]["token"].as_str().unwrap()),
        context: path("contextUrl"),
        events: path("eventsUrl"),
    }
}

/// How long an agent may take to join, where the test lets the time pass.
const JOIN: Duration = Duration::from_secs(600);
const LONG_JOIN: (&str, &str) = ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "600");

on_both_databases! {
    async fn an_agent_that_does_not_join_is_dispatched_again_three_times(on: Backend) {
        let fixture = Fixture::with(on, &[LONG_JOIN, ("VOICE_EMPTY_TIMEOUT_SECONDS", "86400")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        for dispatches in 1..4 {
            assert_eq!(fixture.double.dispatches(&started.room), dispatches);
            fixture.pass(JOIN).await;
            eventually(SOON, async || fixture.double.dispatches(&started.room) > dispatches).await;
        }
        fixture.pass(JOIN).await;
        let status = fixture.ends(&started.id, "error", "agent_unavailable").await;
        assert!(status["activeAt"].is_null());
        assert_eq!(fixture.double.dispatches(&started.room), 4);
        fixture.room_goes(&started.room).await;
        assert!(fixture.metrics().await.contains("voice_agent_redispatches_total{service=\"voice-gateway\"} 3"));
    }

    async fn an_agent_that_joins_late_is_the_only_one(on: Backend) {
        let fixture = Fixture::with(on, &[LONG_JOIN]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        fixture.double.plan_agents(AgentPlan::default());
        fixture.double.join(&started.token).unwrap();
        fixture.status_becomes(&started.id, |status| status["participants"][0]["kind"] == "human").await;
        fixture.pass(JOIN).await;
        fixture.status_becomes(&started.id, |status| status["state"] == "active").await;
        assert_eq!(fixture.double.room(&started.room).unwrap().agents.len(), 1);
    }

    async fn an_agent_that_dies_is_replaced(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.context(&talk.id, &json!({ "open": "lib.rs" })).await;
        fixture.text(&talk.id, "one").await;
        fixture.double.kill_agents(&talk.room);
        fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
        fixture.text(&talk.id, "two").await;
        fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == true && status["pending"]["texts"] == 0).await;
        assert_eq!(fixture.double.texts(&talk.room), ["one", "two"]);
        assert_eq!(fixture.double.dispatches(&talk.room), 2);
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
        // The new one has the newest context from its dispatch.
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        assert_eq!(metadata["context"]["payload"], json!({ "open": "lib.rs" }));
        assert_eq!(fixture.status(&talk.id).await["pending"]["deliveredContextVersion"], 1);
    }

    async fn an_attribute_also_reports_readiness(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_READY_TIMEOUT_SECONDS", "3600"), ("VOICE_RECONCILE_SECONDS", "3600")]).await;
        fixture.double.plan_agents(AgentPlan { ready: Ready::ByAttribute, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        fixture.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
    }

    async fn an_agent_that_never_reports_ready_counts_as_ready_in_the_end(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_READY_TIMEOUT_SECONDS", "0.3")]).await;
        fixture.double.plan_agents(AgentPlan { ready: Ready::Never, ..AgentPlan::default() });
        fixture.talking("user-1", "session-1").await;
    }

    async fn an_agents_credential_is_valid_for_its_own_session_only(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (first, second) = (fixture.talking("user-1", "a").await, fixture.talking("user-2", "b").await);
        let (one, two) = (agent_of(&fixture, &first), agent_of(&fixture, &second));
        let ready = json!({ "type": "ready" });
        one.api.post(&one.events, &ready).await.expect(200);
        one.api.post(&two.events, &ready).await.problem(401, "UNAUTHENTICATED");
        one.api.get(&two.context).await.problem(401, "UNAUTHENTICATED");
        fixture.api.get(&one.context).await.problem(401, "UNAUTHENTICATED");
        Api::new(&fixture.gateway.public_url()).get(&one.context).await.problem(401, "UNAUTHENTICATED");
        let unknown = "/agent/v1/sessions/01890a5d-ac96-774b-bcce-b302099a8057/context";
        one.api.get(unknown).await.problem(401, "UNAUTHENTICATED");
        // An agent's credential is not a voice key.
        one.api.get(&format!("/v1/voice/session/{}/status", first.id)).await.problem(401, "UNAUTHENTICATED");
        fixture.stop(&first.id).await;
        one.api.post(&one.events, &ready).await.problem(401, "UNAUTHENTICATED");
    }

    async fn a_replaced_agents_credential_expires(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let old = agent_of(&fixture, &talk);
        for round in 2..4 {
            fixture.double.kill_agents(&talk.room);
            fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
            fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == true).await;
            assert_eq!(fixture.double.dispatches(&talk.room), round);
        }
        old.api.get(&old.context).await.problem(401, "UNAUTHENTICATED");
        let new = agent_of(&fixture, &talk);
        assert_eq!(new.api.get(&new.context).await.expect(200), json!({}));
    }

    async fn the_agent_reports_its_state(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let agent = agent_of(&fixture, &talk);
        agent.api.post(&agent.events, &json!({ "type": "state", "state": "thinking" })).await.expect(200);
        assert_eq!(fixture.status(&talk.id).await["agent"]["state"], "thinking");
        agent.api.post(&agent.events, &json!({ "type": "transcript", "role": "user", "text": "hello" })).await.expect(200);
        agent.api.post(&agent.events, &json!({ "type": "error", "code": "stt", "message": "no model" })).await.expect(200);
        agent.api.post(&agent.events, &json!({ "type": "sings" })).await.problem(400, "INVALID_ARGUMENT");
    }

    async fn a_large_initial_context_is_fetched(on: Backend) {
        let fixture = Fixture::new(on).await;
        let context = json!({ "log": "x".repeat(100_000) });
        let body = json!({ "userId": "user-1", "sessionId": "session-1", "initialContextPayload": context });
        let started = Started::of(&fixture.api.post("/v1/voice/session/start", &body).await);
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&started.room).unwrap()).unwrap();
        assert_eq!(metadata["context"]["bytes"], context.to_string().len());
        assert!(metadata["context"]["payload"].is_null());
        let before = fixture.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
        assert_eq!(before["pending"]["deliveredContextVersion"], 0);
        let agent = agent_of(&fixture, &started);
        let fetched = agent.api.get(&agent.context).await;
        assert_eq!(fetched.expect(200), context);
        assert_eq!((fetched.header("x-context-version"), fetched.header("cache-control")), (Some("1"), Some("no-store")));
        let digest = {
            use sha2::Digest;
            sha2::Sha256::digest(fetched.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(metadata["context"]["sha256"], digest);
        assert_eq!(fixture.status(&started.id).await["pending"]["deliveredContextVersion"], 1);
    }

    async fn while_no_agent_comes_starts_are_refused_and_few_are_dispatched(on: Backend) {
        let limits = [("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "1"), ("VOICE_MAX_SESSIONS_PER_USER", "0"), ("VOICE_DAILY_SECONDS_PER_USER", "0"), ("VOICE_AGENT_MAX_DISPATCHES", "30")];
        let fixture = Fixture::with(on, &limits).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        // On a slow machine the last of them are refused already.
        for number in 0..30 {
            let body = json!({ "userId": "user-1", "sessionId": format!("before-{number}") });
            fixture.api.post("/v1/voice/session/start", &body).await.expect(200);
        }
        let mut refusals = 0;
        let body = json!({ "userId": "user-1", "sessionId": "s" });
        let ask = || fixture.api.post("/v1/voice/session/start", &body);
        eventually(SOON, async || {
            let answer = ask().await.expect(200);
            refusals += u32::from(answer["reason"] == "agent_unavailable");
            refusals == 5
        })
        .await;
        // Each of the thirty would have had one more in each second. Three may be under way that were decided on before.
        let dispatched = |fixture: &Fixture| {
            fixture.double.created_rooms().iter().map(|room| fixture.double.dispatches(room)).sum::<usize>()
        };
        let (dispatches, begun) = (dispatched(&fixture), std::time::Instant::now());
        eventually(SOON, async || begun.elapsed() > Duration::from_millis(2_500)).await;
        let more = dispatched(&fixture) - dispatches;
        let most = usize::try_from(begun.elapsed().as_secs()).unwrap() / 2 + 2 + 3;
        assert!(more <= most, "{more} dispatches, and at most {most} with the probes");
        // The first agent that comes ends it.
        fixture.double.plan_agents(AgentPlan::default());
        let mut allowed = None;
        eventually(SOON, async || {
            let answer = ask().await;
            if answer.json()["allowed"] == true {
                allowed = Some(Started::of(&answer));
            }
            allowed.is_some()
        })
        .await;
        let started = allowed.unwrap();
        fixture.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
        assert_eq!(ask().await.expect(200)["allowed"], true);
    }

    async fn an_agent_that_leaves_because_the_person_left_is_not_replaced(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DEPARTURE_TIMEOUT_SECONDS", "1")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.kill_agents(&talk.room);
        fixture.double.leave(&talk.room, &talk.identity, ensemble_doubles::livekit::Leave::Lost);
        fixture.ends(&talk.id, "stopped", "left").await;
        assert_eq!(fixture.double.dispatches(&talk.room), 1);
    }

    async fn a_slow_agent_gets_the_texts_from_before_it_joined(on: Backend) {
        let fixture = Fixture::with(on, &[LONG_JOIN]).await;
        let ready = Ready::ByEvent(Duration::from_millis(300));
        fixture.double.plan_agents(AgentPlan { held: true, ready, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        for number in 0..5 {
            assert_eq!(fixture.text(&started.id, &format!("text {number}")).await["delivery"], "queued");
        }
        assert_eq!(fixture.context(&started.id, &json!({ "v": 1 })).await["delivery"], "queued");
        assert_eq!(fixture.context(&started.id, &json!({ "v": 2 })).await["contextVersion"], 2);
        fixture.double.release();
        fixture.status_becomes(&started.id, |status| status["pending"]["texts"] == 0).await;
        assert_eq!(fixture.double.texts(&started.room), ["text 0", "text 1", "text 2", "text 3", "text 4"]);
        let contexts: Vec<Value> = fixture
            .double
            .received(&started.room)
            .into_iter()
            .filter(|received| received.name == "voice.context")
            .map(|received| received.payload["payload"].clone())
            .collect();
        assert_eq!(contexts, [json!({ "v": 2 })], "only the newest");
    }
}
