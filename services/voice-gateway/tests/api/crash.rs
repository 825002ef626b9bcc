//! kill -9 at the worst moment.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_doubles::livekit::{AgentPlan, Double, Fault};
use ensemble_testkit::service::Program;
use ensemble_testkit::*;
use serde_json::json;

use crate::clock::pass;
use crate::fixture::{Started, VOICE_KEY, vars};

on_both_databases! {
    async fn killed_between_create_room_and_its_answer(on: Backend) {
        let (double, peers) = (Double::start().unwrap(), Peers::start().await);
        let database = TestDatabase::new(on, "voice-gateway", ensemble_voice_gateway::migrations()).await;
        let vars = vars(&double, &peers, &database, &[("RUST_LOG", "warn"), ("VOICE_CREATE_TIMEOUT_MS", "40000"), ("VOICE_CREATE_GIVE_UP_MS", "600000")]);
        let mut program = Program::start(env!("CARGO_BIN_EXE_ensemble-voice-gateway"), vars).await;
        double.send_webhooks_to(format!("{}/hooks/livekit", program.public_url));
        double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_secs(30)), 1);

        let api = Api::new(&program.public_url).with_token(VOICE_KEY);
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let request = api.request("POST", "/v1/voice/session/start").header("idempotency-key", "the-same-key-twice").json(&body);
        let answer = tokio::spawn(Api::try_send(request));
        eventually(SOON, async || double.rooms().len() == 1).await;
        program.kill().await;
        assert!(answer.await.unwrap().is_err(), "the gateway answered before it was killed");
        assert_eq!(double.rooms().len(), 1, "the room exists, and the caller got no answer");

        program.restart().await;
        pass(&database, Duration::from_secs(600)).await;
        // No room without a session …
        eventually(SOON, async || double.rooms().is_empty()).await;
        // … and no session without an end, so that the repeated start is a new one.
        eventually(SOON, async || {
            let request = api.request("POST", "/v1/voice/session/start").header("idempotency-key", "the-same-key-twice");
            let answer = Api::send(request.json(&body)).await;
            answer.status == 200 && double.room(&Started::of(&answer).room).is_some()
        })
        .await;
        assert_eq!(double.rooms().len(), 1);
        let metrics = Api::new(&program.internal_url).get("/metrics").await.text;
        assert!(metrics.contains("voice_ends_total{reason=\"start_failed\",service=\"voice-gateway\"} 1"), "{metrics}");
        program.kill().await;
    }

    async fn killed_in_the_middle_of_a_conversation(on: Backend) {
        let (double, peers) = (Double::start().unwrap(), Peers::start().await);
        let database = TestDatabase::new(on, "voice-gateway", ensemble_voice_gateway::migrations()).await;
        let vars = vars(&double, &peers, &database, &[("RUST_LOG", "warn"), ("VOICE_DELIVERY_LEASE_MS", "500")]);
        let mut program = Program::start(env!("CARGO_BIN_EXE_ensemble-voice-gateway"), vars).await;
        double.send_webhooks_to(format!("{}/hooks/livekit", program.public_url));
        let api = Api::new(&program.public_url).with_token(VOICE_KEY);
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let started = Started::of(&api.post("/v1/voice/session/start", &body).await);
        double.join(&started.token).unwrap();
        let status = async || api.get(&format!("/v1/voice/session/{}/status", started.id)).await.expect(200);
        eventually(SOON, async || status().await["state"] == "active").await;

        // The agent gets it, and the gateway dies before it learns that.
        double.fail_next("PerformRpc", Fault::EffectWithoutAnswer(Duration::from_secs(30)), 1);
        let text = json!({ "gatewaySessionId": started.id, "text": "once" });
        let sent = tokio::spawn(Api::try_send(api.request("POST", "/v1/voice/session/text").json(&text)));
        eventually(SOON, async || double.received(&started.room).len() == 1).await;
        program.kill().await;
        assert!(sent.await.unwrap().is_err());
        program.restart().await;
        assert_eq!(status().await["state"], "active");
        eventually(SOON, async || status().await["pending"]["texts"] == 0).await;
        assert_eq!(double.texts(&started.room), ["once"]);
        assert_eq!(double.received(&started.room).len(), 2, "the same text twice on the wire, under one id");
        program.kill().await;
    }
}
