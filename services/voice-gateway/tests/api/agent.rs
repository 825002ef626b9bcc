//! Agents that do not come, that die, that are slow to be ready; and the door that is theirs alone.

use std::time::Duration;

use ensemble_livekit_double::{AgentPlan, Ready};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::stage::{Stage, Started};

/// The credential and addresses that the agent was given.
struct Door {
    api: Api,
    context: String,
    events: String,
}

fn door(stage: &Stage, started: &Started) -> Door {
    let metadata: Value = serde_json::from_str(&stage.double.dispatch_metadata(&started.room).unwrap()).unwrap();
    let base = stage.gateway.public_url();
    let path = |name: &str| metadata["gateway"][name].as_str().unwrap().strip_prefix(&base).unwrap().to_owned();
    Door {
        api: Api::new(&base).with_token(metadata["gateway"]["token"].as_str().unwrap()),
        context: path("contextUrl"),
        events: path("eventsUrl"),
    }
}

on_both_databases! {
    async fn an_agent_that_does_not_come_is_sent_for_three_times(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "0.3")]).await;
        stage.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = stage.start("user-1", "session-1").await;
        let status = stage.ends(&started.id, "error", "agent_unavailable").await;
        assert!(status["activeAt"].is_null());
        assert_eq!(stage.double.dispatches(&started.room), 4);
        stage.room_goes(&started.room).await;
        assert!(stage.metrics().await.contains("voice_agent_redispatches_total{service=\"voice-gateway\"} 3"));
    }

    async fn an_agent_that_comes_late_is_the_only_one(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "2")]).await;
        stage.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = stage.start("user-1", "session-1").await;
        stage.double.plan_agents(AgentPlan::default());
        stage.double.join(&started.token).unwrap();
        stage.status_becomes(&started.id, |status| status["state"] == "active").await;
        assert_eq!(stage.double.room(&started.room).unwrap().agents.len(), 1);
    }

    async fn an_agent_that_dies_is_replaced(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        stage.context(&talk.id, &json!({ "open": "lib.rs" })).await;
        stage.text(&talk.id, "one").await;
        stage.double.kill_agents(&talk.room);
        stage.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
        stage.text(&talk.id, "two").await;
        stage.status_becomes(&talk.id, |status| status["agent"]["ready"] == true && status["pending"]["texts"] == 0).await;
        assert_eq!(stage.double.texts(&talk.room), ["one", "two"]);
        assert_eq!(stage.double.dispatches(&talk.room), 2);
        assert_eq!(stage.status(&talk.id).await["state"], "active");
        // The new one has the newest context from its dispatch.
        let metadata: Value = serde_json::from_str(&stage.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        assert_eq!(metadata["context"]["payload"], json!({ "open": "lib.rs" }));
        assert_eq!(stage.status(&talk.id).await["pending"]["deliveredContextVersion"], 1);
    }

    async fn readiness_is_also_an_attribute(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_READY_TIMEOUT_SECONDS", "3600"), ("VOICE_RECONCILE_SECONDS", "3600")]).await;
        stage.double.plan_agents(AgentPlan { ready: Ready::ByAttribute, ..AgentPlan::default() });
        let started = stage.start("user-1", "session-1").await;
        stage.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
    }

    async fn an_agent_that_never_says_so_counts_as_ready_in_the_end(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_READY_TIMEOUT_SECONDS", "0.3")]).await;
        stage.double.plan_agents(AgentPlan { ready: Ready::Never, ..AgentPlan::default() });
        stage.talking("user-1", "session-1").await;
    }

    async fn the_agents_door_opens_for_its_own_session_only(on: Backend) {
        let stage = Stage::new(on).await;
        let (first, second) = (stage.talking("user-1", "a").await, stage.talking("user-2", "b").await);
        let (one, two) = (door(&stage, &first), door(&stage, &second));
        let ready = json!({ "type": "ready" });
        one.api.post(&one.events, &ready).await.expect(200);
        one.api.post(&two.events, &ready).await.problem(401, "UNAUTHENTICATED");
        one.api.get(&two.context).await.problem(401, "UNAUTHENTICATED");
        stage.api.get(&one.context).await.problem(401, "UNAUTHENTICATED");
        Api::new(&stage.gateway.public_url()).get(&one.context).await.problem(401, "UNAUTHENTICATED");
        let unknown = "/agent/v1/sessions/01890a5d-ac96-774b-bcce-b302099a8057/context";
        one.api.get(unknown).await.problem(401, "UNAUTHENTICATED");
        // An agent's credential is none of an application's.
        one.api.get(&format!("/v1/voice/session/{}/status", first.id)).await.problem(401, "UNAUTHENTICATED");
        stage.stop(&first.id).await;
        one.api.post(&one.events, &ready).await.problem(401, "UNAUTHENTICATED");
    }

    async fn a_replaced_agent_loses_its_key_in_time(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        let old = door(&stage, &talk);
        for round in 2..4 {
            stage.double.kill_agents(&talk.room);
            stage.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
            stage.status_becomes(&talk.id, |status| status["agent"]["ready"] == true).await;
            assert_eq!(stage.double.dispatches(&talk.room), round);
        }
        old.api.get(&old.context).await.problem(401, "UNAUTHENTICATED");
        let new = door(&stage, &talk);
        assert_eq!(new.api.get(&new.context).await.expect(200), json!({}));
    }

    async fn the_agent_tells_how_it_fares(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        let door = door(&stage, &talk);
        door.api.post(&door.events, &json!({ "type": "state", "state": "thinking" })).await.expect(200);
        assert_eq!(stage.status(&talk.id).await["agent"]["state"], "thinking");
        door.api.post(&door.events, &json!({ "type": "transcript", "role": "user", "text": "hello" })).await.expect(200);
        door.api.post(&door.events, &json!({ "type": "error", "code": "stt", "message": "no model" })).await.expect(200);
        door.api.post(&door.events, &json!({ "type": "sings" })).await.problem(400, "INVALID_ARGUMENT");
    }

    async fn a_large_initial_context_is_fetched(on: Backend) {
        let stage = Stage::new(on).await;
        let context = json!({ "log": "x".repeat(100_000) });
        let body = json!({ "userId": "user-1", "sessionId": "session-1", "initialContextPayload": context });
        let started = Started::of(&stage.api.post("/v1/voice/session/start", &body).await);
        let metadata: Value = serde_json::from_str(&stage.double.dispatch_metadata(&started.room).unwrap()).unwrap();
        assert_eq!(metadata["context"]["bytes"], context.to_string().len());
        assert!(metadata["context"]["payload"].is_null());
        let before = stage.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
        assert_eq!(before["pending"]["deliveredContextVersion"], 0);
        let door = door(&stage, &started);
        let fetched = door.api.get(&door.context).await;
        assert_eq!(fetched.expect(200), context);
        assert_eq!((fetched.header("x-context-version"), fetched.header("cache-control")), (Some("1"), Some("no-store")));
        let digest = {
            use sha2::Digest;
            sha2::Sha256::digest(fetched.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(metadata["context"]["sha256"], digest);
        assert_eq!(stage.status(&started.id).await["pending"]["deliveredContextVersion"], 1);
    }

    async fn an_agent_that_leaves_because_the_person_left_is_not_replaced(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_DEPARTURE_TIMEOUT_SECONDS", "1")]).await;
        let talk = stage.talking("user-1", "session-1").await;
        stage.double.kill_agents(&talk.room);
        stage.double.leave(&talk.room, &talk.identity, ensemble_livekit_double::Leave::Lost);
        stage.ends(&talk.id, "stopped", "left").await;
        assert_eq!(stage.double.dispatches(&talk.room), 1);
    }

    async fn a_slow_agent_gets_what_was_said_before_it_came(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "10")]).await;
        let plan = AgentPlan { join_after: Duration::from_secs(4), ..AgentPlan::default() };
        stage.double.plan_agents(AgentPlan { ready: Ready::ByEvent(Duration::from_millis(300)), ..plan });
        let started = stage.start("user-1", "session-1").await;
        for number in 0..5 {
            assert_eq!(stage.text(&started.id, &format!("text {number}")).await["delivery"], "queued");
        }
        assert_eq!(stage.context(&started.id, &json!({ "v": 1 })).await["delivery"], "queued");
        assert_eq!(stage.context(&started.id, &json!({ "v": 2 })).await["contextVersion"], 2);
        stage.status_becomes(&started.id, |status| status["pending"]["texts"] == 0).await;
        assert_eq!(stage.double.texts(&started.room), ["text 0", "text 1", "text 2", "text 3", "text 4"]);
        let contexts: Vec<Value> = stage
            .double
            .heard(&started.room)
            .into_iter()
            .filter(|heard| heard.name == "voice.context")
            .map(|heard| heard.payload["payload"].clone())
            .collect();
        assert_eq!(contexts, [json!({ "v": 2 })], "only the newest");
    }
}
