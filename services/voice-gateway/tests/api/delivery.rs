//! Texts are delivered once and in order, contexts newest first, also to agents and servers without acknowledgements.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_doubles::livekit::{AgentPlan, Fault, Ready, Rpc, Via};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;

on_both_databases! {
    async fn a_message_id_is_delivered_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let send = async |text: &str| {
            let body = json!({ "gatewaySessionId": talk.id, "message": text, "messageId": "m-1" });
            fixture.api.post("/v1/voice/session/text", &body).await.expect(200)
        };
        let (first, second) = tokio::join!(send("hello"), send("hello"));
        assert_eq!(first, json!({ "accepted": true, "messageId": "m-1", "delivery": "delivered" }));
        assert_eq!(second, first);
        assert_eq!(send("something else").await, first);
        assert_eq!(fixture.double.received(&talk.room).len(), 1);
        let other = json!({ "gatewaySessionId": talk.id, "text": "hello", "messageId": "m-2" });
        fixture.api.post("/v1/voice/session/text", &other).await.expect(200);
        assert_eq!(fixture.double.texts(&talk.room), ["hello", "hello"]);
    }

    async fn concurrent_texts_arrive_in_the_order_of_their_acceptance(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let texts: Vec<String> = (0..20).map(|number| format!("text {number}")).collect();
        futures_util::future::join_all(texts.iter().map(|text| fixture.text(&talk.id, text))).await;
        // On a slow machine some are still queued.
        eventually(SOON, async || fixture.double.received(&talk.room).len() == 20).await;
        let received = fixture.double.received(&talk.room);
        let order: Vec<i64> = received.iter().map(|one| one.payload["seq"].as_i64().unwrap()).collect();
        assert_eq!(order, (1..=20).collect::<Vec<i64>>());
    }

    async fn failures_delay_and_do_not_reorder(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_RPC_TIMEOUT_MS", "200"), ("VOICE_BREAKER_FAILURES", "100000")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        for fault in [Fault::Unavailable, Fault::EffectWithoutAnswer(Duration::from_millis(400)), Fault::BadGateway, Fault::Twirp(408, "canceled")] {
            fixture.double.fail_next("PerformRpc", fault, 1);
        }
        for number in 0..6 {
            fixture.text(&talk.id, &format!("text {number}")).await;
        }
        fixture.status_becomes(&talk.id, |status| status["pending"]["texts"] == 0).await;
        assert_eq!(fixture.double.texts(&talk.room), ["text 0", "text 1", "text 2", "text 3", "text 4", "text 5"]);
    }

    async fn the_queue_is_bounded(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_QUEUE_MAX", "2"), ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "60")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        fixture.text(&started.id, "one").await;
        fixture.text(&started.id, "two").await;
        let body = json!({ "gatewaySessionId": started.id, "text": "three" });
        let answer = fixture.api.post("/v1/voice/session/text", &body).await;
        assert_eq!(answer.problem(429, "RATE_LIMITED")["accepted"], false);
        let interface: Value = serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
        let summary = interface["paths"]["/v1/voice/session/text"]["post"]["summary"].as_str().unwrap();
        assert!(summary.contains("While 32 of a session wait (VOICE_QUEUE_MAX), the next one is 429"), "{summary}");
        assert!(answer.header("retry-after").is_some());
        // The status counts undelivered texts even after the end.
        fixture.stop(&started.id).await;
        assert_eq!(fixture.status(&started.id).await["pending"]["texts"], 2);
    }

    async fn a_text_that_never_arrived_is_not_accepted_again_after_the_end(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "60")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        let body = json!({ "gatewaySessionId": started.id, "text": "hello", "messageId": "m-1" });
        let send = async || fixture.api.post("/v1/voice/session/text", &body).await;
        assert_eq!(fixture.retry(send).await.expect(200)["delivery"], "queued");
        fixture.stop(&started.id).await;
        assert_eq!(fixture.retry(send).await.problem(409, "SESSION_NOT_ACTIVE")["accepted"], false);
    }

    async fn an_old_agent_gets_packets(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_READY_TIMEOUT_SECONDS", "0.2"), ("VOICE_DATA_TOPIC_PREFIX", "happy.voice"), ("VOICE_DELIVERY_TIMEOUT_MS", "2000")]).await;
        fixture.double.plan_agents(AgentPlan { ready: Ready::Never, rpc: Rpc::NotRegistered, ..AgentPlan::default() });
        let talk = fixture.talking("user-1", "session-1").await;
        assert_eq!(fixture.text(&talk.id, "hello").await["delivery"], "sent");
        assert_eq!(fixture.context(&talk.id, &json!({ "a": 1 })).await["delivery"], "sent");
        let received = fixture.double.received(&talk.room);
        let packet = |name: &str| received.iter().find(|one| one.name == name).unwrap();
        let (text, context) = (packet("happy.voice.text"), packet("happy.voice.context"));
        assert_eq!((text.via, &text.payload["kind"], &text.payload["message"]), (Via::Data, &json!("text"), &json!("hello")));
        assert_eq!((&text.payload["userId"], &text.payload["appSessionId"]), (&json!("user-1"), &json!("session-1")));
        assert_eq!(context.payload["payload"], json!({ "a": 1 }));
    }

    async fn an_old_server_gets_packets_for_good(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.plan_agents(AgentPlan { rpc_supported: false, ..AgentPlan::default() });
        let talk = fixture.talking("user-1", "session-1").await;
        assert_eq!(fixture.text(&talk.id, "one").await["delivery"], "sent");
        assert_eq!(fixture.text(&talk.id, "two").await["delivery"], "sent");
        assert_eq!(fixture.double.calls("PerformRpc"), 1);
        assert_eq!(fixture.double.texts(&talk.room), ["one", "two"]);
    }

    async fn a_lost_acknowledgement_makes_the_text_arrive_again_under_the_same_id(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DELIVERY_TIMEOUT_MS", "300")]).await;
        fixture.double.plan_agents(AgentPlan { rpc: Rpc::LosesAnswer, ..AgentPlan::default() });
        let talk = fixture.talking("user-1", "session-1").await;
        assert_eq!(fixture.text(&talk.id, "hello").await["delivery"], "queued");
        eventually(SOON, async || fixture.double.received(&talk.room).len() >= 3).await;
        let received = fixture.double.received(&talk.room);
        assert!(received.iter().all(|one| one.payload["id"] == received[0].payload["id"]));
        assert_eq!(fixture.double.texts(&talk.room), ["hello"]);
    }

    async fn an_agent_whose_handler_always_fails_gets_a_packet(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.plan_agents(AgentPlan { rpc: Rpc::Throws, ..AgentPlan::default() });
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.text(&talk.id, "hello").await;
        fixture.status_becomes(&talk.id, |status| status["pending"]["texts"] == 0).await;
        assert_eq!(fixture.double.received(&talk.room)[0].via, Via::Data);
    }

    async fn items_larger_than_a_packet_are_fetched(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DELIVERY_TIMEOUT_MS", "2000")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        // 8 KiB of control characters take six bytes each in JSON.
        let text = "\u{1}".repeat(8_192);
        assert_eq!(fixture.text(&talk.id, &text).await["delivery"], "delivered");
        let large = json!({ "log": "y".repeat(40_960) });
        let answer = fixture.context(&talk.id, &large).await;
        assert_eq!(answer, json!({ "accepted": true, "contextVersion": 1, "delivery": "sent" }));
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        let agent = fixture.api.with_token(metadata["gateway"]["token"].as_str().unwrap());
        for received in fixture.double.received(&talk.room) {
            let path = received.payload["url"].as_str().unwrap().strip_prefix(&fixture.gateway.public_url()).unwrap().to_owned();
            let fetched = agent.get(&path).await.expect(200);
            if received.name == "voice.text" {
                assert_eq!((&fetched["text"], &fetched["seq"]), (&json!(text), &json!(1)));
            } else {
                assert_eq!(fetched, large);
            }
        }
        assert_eq!(fixture.status(&talk.id).await["pending"]["deliveredContextVersion"], 1);
        assert_eq!(fixture.context(&talk.id, &json!({})).await["delivery"], "delivered");
    }

    async fn contexts_are_opaque_and_bounded(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let raw = format!(r#"{{"gatewaySessionId":"{}","payload":{{"z":1,"a":1.50,"big":12345678901234567890}}}}"#, talk.id);
        fixture.api.post_text("/v1/voice/session/context", raw).await.expect(200);
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        let agent = fixture.api.with_token(metadata["gateway"]["token"].as_str().unwrap());
        let fetched = agent.get(&format!("/agent/v1/sessions/{}/context", talk.id)).await;
        assert_eq!(fetched.text, r#"{"z":1,"a":1.50,"big":12345678901234567890}"#);
        let too_large = json!({ "gatewaySessionId": talk.id, "payload": { "a": "x".repeat(1 << 20) } });
        assert_eq!(fixture.api.post("/v1/voice/session/context", &too_large).await.bad_fields(), ["/payload"]);
        let no_object = json!({ "gatewaySessionId": talk.id, "payload": "x" });
        assert_eq!(fixture.api.post("/v1/voice/session/context", &no_object).await.bad_fields(), ["/payload"]);
    }
}

#[test]
fn any_replica_serves_any_call() {
    ensemble_testkit::run(async {
        let fixture = Fixture::new(Backend::Postgres).await;
        let other = fixture.replica().await;
        let there = fixture.api.at(&other.public_url());
        let talk = fixture.talking("user-1", "session-1").await;
        for number in 0..10 {
            let api = if number % 2 == 0 { &fixture.api } else { &there };
            let body = json!({ "gatewaySessionId": talk.id, "text": format!("text {number}") });
            assert_eq!(api.post("/v1/voice/session/text", &body).await.expect(200)["delivery"], "delivered");
        }
        let expected: Vec<String> = (0..10).map(|number| format!("text {number}")).collect();
        assert_eq!(fixture.double.texts(&talk.room), expected);
        // One dies; its timers and deliveries go on in the other.
        fixture.double.kill_agents(&talk.room);
        assert!(fixture.gateway.stop().await);
        fixture.double.send_webhooks_to(format!("{}/hooks/livekit", other.public_url()));
        let status = async || there.get(&format!("/v1/voice/session/{}/status", talk.id)).await.expect(200);
        let body = json!({ "gatewaySessionId": talk.id, "text": "text 10" });
        there.post("/v1/voice/session/text", &body).await.expect(200);
        eventually(SOON, async || status().await["agent"]["ready"] == true && status().await["pending"]["texts"] == 0)
            .await;
        assert_eq!(fixture.double.texts(&talk.room).len(), 11);
    });
}
