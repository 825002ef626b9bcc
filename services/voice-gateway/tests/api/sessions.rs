//! Start, status, stop, and what can happen in between.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_doubles::livekit::{API_KEY, API_SECRET, AgentPlan, Fault, Leave};
use ensemble_testkit::*;
use livekit_api::access_token::TokenVerifier;
use serde_json::json;

use crate::fixture::{Fixture, Started};

on_both_databases! {
    async fn a_conversation_from_start_to_stop(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = json!({
            "userId": "user-1", "sessionId": "session-1", "language": "en",
            "initialContextPayload": { "file": "main.rs" },
            "toolBridgeBaseUrl": "https://app.example/", "welcomeMessage": "Hello",
        });
        let started = Started::of(&fixture.api.post("/v1/voice/session/start", &body).await);
        assert_eq!(started.body["roomUrl"], "wss://voice.example");
        assert!(started.body["reason"].is_null());
        let status = fixture.status(&started.id).await;
        assert_eq!(status["state"], "starting", "{status}");
        assert_eq!((&status["userId"], &status["sessionId"]), (&json!("user-1"), &json!("session-1")));

        fixture.status_becomes(&started.id, |status| status["agent"]["ready"] == true).await;
        assert_eq!(fixture.double.join(&started.token).unwrap(), started.identity);
        let active = fixture.status_becomes(&started.id, |status| status["state"] == "active").await;
        assert_eq!(active["participants"].as_array().unwrap().len(), 2, "{active}");
        assert!(active["activeAt"].is_string() && active["endedAt"].is_null(), "{active}");
        assert_eq!(active["pending"], json!({ "texts": 0, "contextVersion": 1, "deliveredContextVersion": 1 }));
        let live = fixture.status_becomes(&started.id, |status| status["live"] == true).await;
        assert_eq!(live["state"], "active");

        assert_eq!(fixture.text(&started.id, "what does main do?").await["delivery"], "delivered");
        assert_eq!(fixture.double.texts(&started.room), ["what does main do?"]);

        let stopped = fixture.stop(&started.id).await;
        assert_eq!((&stopped["state"], &stopped["endReason"]), (&json!("stopped"), &json!("stop_requested")));
        assert!(fixture.double.room(&started.room).is_none());
        let again = fixture.stop(&started.id).await;
        assert_eq!(again, stopped);
        let over = fixture.status(&started.id).await;
        assert_eq!((&over["state"], &over["live"]), (&json!("stopped"), &json!(false)));
        let late = json!({ "gatewaySessionId": started.id, "text": "too late" });
        let problem = fixture.api.post("/v1/voice/session/text", &late).await.problem(409, "SESSION_NOT_ACTIVE");
        assert_eq!(problem["accepted"], false);
    }

    async fn the_token_has_the_least_grants_and_ends_with_the_session(on: Backend) {
        let fixture = Fixture::new(on).await;
        let started = fixture.start("user-1", "session-1").await;
        let claims = TokenVerifier::with_api_key(API_KEY, API_SECRET).verify(&started.token).unwrap();
        let video = &claims.video;
        assert!(video.room_join && video.room == started.room);
        assert!(!video.room_create && !video.room_admin && !video.room_list && !video.room_record && !video.agent && !video.hidden);
        assert_eq!(video.can_publish_sources, ["microphone"]);
        assert!(claims.room_config.is_none() && claims.metadata.is_empty() && claims.attributes.is_empty());
        let expires_at: ensemble_types::time::Timestamp = started.body["expiresAt"].as_str().unwrap().parse().unwrap();
        assert!((i64::try_from(claims.exp).unwrap() - expires_at.unix_seconds()).abs() <= 1);
    }

    async fn the_token_does_not_outlive_a_session_that_was_slow_to_start(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_CREATE_TIMEOUT_MS", "60000"), ("VOICE_CREATE_GIVE_UP_MS", "600000")]).await;
        fixture.double.fail_next("CreateRoom", Fault::Held, 1);
        let is_slow = async {
            eventually(SOON, async || fixture.double.calls("CreateRoom") == 1).await;
            fixture.pass(Duration::from_secs(60)).await;
            fixture.double.release();
        };
        let (started, ()) = tokio::join!(fixture.start("user-1", "session-1"), is_slow);
        let claims = TokenVerifier::with_api_key(API_KEY, API_SECRET).verify(&started.token).unwrap();
        let expires_at: ensemble_types::time::Timestamp = started.body["expiresAt"].as_str().unwrap().parse().unwrap();
        assert!(i64::try_from(claims.exp).unwrap() <= expires_at.unix_seconds() + 1);
    }

    async fn the_agent_gets_what_it_needs_and_no_shared_secret(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        let body = json!({
            "userId": alice.to_string(), "sessionId": "session-1", "language": "en-GB", "welcomeMessage": "Hello",
            "initialContextPayload": { "n": 1.0 }, "toolBridgeBaseUrl": "https://app.example/tools",
        });
        let started = Started::of(&fixture.as_user(alice, "/v1/voice/session/start", &body).await);
        let text = fixture.double.dispatch_metadata(&started.room).unwrap();
        assert!(!text.contains(crate::fixture::BRIDGE_KEY) && !text.contains(API_SECRET));
        // Opaque: the context is sent byte for byte.
        assert!(text.contains(r#""payload":{"n":1.0}"#), "{text}");
        let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(metadata["welcomeMessage"], "Hello");
        assert_eq!(metadata["toolBridge"]["baseUrl"], "https://app.example/tools");
        assert_eq!(metadata["context"]["version"], 1);
        let token = metadata["toolBridge"]["token"].as_str().unwrap();
        let claims = token.split('.').nth(1).unwrap();
        let claims = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, claims).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!((&claims["sub"], &claims["sessionId"]), (&json!(alice.to_string()), &json!("session-1")));
        assert_eq!(claims["aud"], "https://app.example/tools");
    }

    async fn invalid_fields_are_named(on: Backend) {
        let fixture = Fixture::new(on).await;
        let start = async |more: serde_json::Value| {
            let mut body = json!({ "userId": "user-1", "sessionId": "session-1" });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fixture.api.post("/v1/voice/session/start", &body).await
        };
        for (more, pointer) in [
            (json!({ "userId": "" }), "/userId"),
            (json!({ "sessionId": "x".repeat(65) }), "/sessionId"),
            (json!({ "sessionId": 7 }), "/sessionId"),
            (json!({ "welcomeMessage": "x".repeat(501) }), "/welcomeMessage"),
            (json!({ "initialContextPayload": [1] }), "/initialContextPayload"),
            (json!({ "initialContextPayload": { "a": "x".repeat(262_144) } }), "/initialContextPayload"),
            (json!({ "toolBridgeBaseUrl": "https://evil.example" }), "/toolBridgeBaseUrl"),
            (json!({ "toolBridgeBaseUrl": "https://app.example@evil.example" }), "/toolBridgeBaseUrl"),
        ] {
            assert_eq!(start(more.clone()).await.bad_fields(), [pointer], "{more}");
        }
        let text = json!({ "gatewaySessionId": "x", "text": "" });
        assert_eq!(fixture.api.post("/v1/voice/session/text", &text).await.bad_fields(), ["/text"]);
        assert_eq!(fixture.double.created_rooms().len(), 0);
    }

    async fn unknown_sessions_are_not_found(on: Backend) {
        let fixture = Fixture::new(on).await;
        for id in ["01890a5d-ac96-774b-bcce-b302099a8057", "not-an-id"] {
            let missing = fixture.api.get(&format!("/v1/voice/session/{id}/status")).await.problem(404, "NOT_FOUND");
            assert_eq!(missing["found"], false);
            let body = json!({ "gatewaySessionId": id, "text": "x", "payload": {} });
            for path in ["/v1/voice/session/text", "/v1/voice/session/context"] {
                assert_eq!(fixture.api.post(path, &body).await.problem(404, "NOT_FOUND")["accepted"], false);
            }
            let stopped = fixture.stop(id).await;
            assert_eq!(stopped, json!({ "success": true, "state": "stopped", "endReason": null, "durationSeconds": 0 }));
        }
    }

    async fn one_key_opens_one_room(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let key = "a-key-of-16-or-more";
        let start = || fixture.api.post_keyed("/v1/voice/session/start", key, &body);
        let (first, second) = tokio::join!(start(), start());
        let (first, second) = (Started::of(&first), Started::of(&second));
        assert_eq!((&first.id, &first.room, &first.identity), (&second.id, &second.room, &second.identity));
        let third = Started::of(&start().await);
        assert_eq!(third.id, first.id);
        assert_eq!((fixture.double.created_rooms().len(), fixture.double.dispatches(&first.room)), (1, 1));
        let other = json!({ "userId": "user-1", "sessionId": "session-2" });
        fixture.api.post_keyed("/v1/voice/session/start", key, &other).await.problem(409, "IDEMPOTENCY_MISMATCH");
        // The same key of another user is another key.
        let stranger = json!({ "userId": "user-2", "sessionId": "session-1" });
        assert_ne!(Started::of(&fixture.api.post_keyed("/v1/voice/session/start", key, &stranger).await).id, first.id);
        fixture.stop(&first.id).await;
        start().await.problem(409, "SESSION_NOT_ACTIVE");
    }

    async fn the_second_start_replaces_the_first(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (first, second) = tokio::join!(fixture.start("user-1", "session-1"), fixture.start("user-1", "session-1"));
        assert_ne!(first.id, second.id);
        let third = fixture.start("user-1", "session-1").await;
        for replaced in [&first, &second] {
            fixture.ends(&replaced.id, "stopped", "replaced").await;
            fixture.room_goes(&replaced.room).await;
        }
        assert!(fixture.double.room(&third.room).is_some());
        let other = fixture.start("user-1", "session-2").await;
        assert!(fixture.double.room(&third.room).is_some() && fixture.double.room(&other.room).is_some());
    }

    async fn hanging_up_ends_the_session(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.leave(&talk.room, &talk.identity, Leave::HangsUp);
        let status = fixture.ends(&talk.id, "stopped", "left").await;
        assert!(status["activeAt"].is_string());
        fixture.room_goes(&talk.room).await;
    }

    async fn a_person_may_reconnect(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DEPARTURE_TIMEOUT_SECONDS", "600")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.leave(&talk.room, &talk.identity, Leave::Lost);
        let away = |status: &serde_json::Value| {
            status["participants"].as_array().unwrap().iter().any(|one| one["state"] == "away")
        };
        let status = fixture.status_becomes(&talk.id, away).await;
        assert_eq!(status["state"], "active");
        fixture.double.join(&talk.token).unwrap();
        fixture.status_becomes(&talk.id, |status| !away(status)).await;
        fixture.double.leave(&talk.room, &talk.identity, Leave::Lost);
        fixture.status_becomes(&talk.id, away).await;
        fixture.pass(Duration::from_secs(600)).await;
        fixture.ends(&talk.id, "stopped", "left").await;
    }

    async fn a_session_without_its_person_ends(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_EMPTY_TIMEOUT_SECONDS", "600")]).await;
        let started = fixture.start("user-1", "session-1").await;
        fixture.pass(Duration::from_secs(600)).await;
        fixture.ends(&started.id, "stopped", "room_finished").await;
        fixture.room_goes(&started.room).await;
    }

    async fn every_session_expires(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSION_SECONDS", "600")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.pass(Duration::from_secs(600)).await;
        fixture.ends(&talk.id, "stopped", "expired").await;
        fixture.room_goes(&talk.room).await;
    }

    async fn a_restart_loses_nothing(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "10")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        assert_eq!(fixture.text(&started.id, "before the restart").await["delivery"], "queued");
        let vars = fixture.vars.clone();
        assert!(fixture.gateway.stop().await);
        let gateway = ensemble_testkit::start_service::<ensemble_voice_gateway::VoiceGateway>(vars).await;
        let api = fixture.api.at(&gateway.public_url());
        fixture.double.send_webhooks_to(format!("{}/hooks/livekit", gateway.public_url()));
        let status = api.get(&format!("/v1/voice/session/{}/status", started.id)).await.expect(200);
        assert_eq!((&status["state"], &status["pending"]["texts"]), (&json!("starting"), &json!(1)));
        fixture.double.close_room(&started.room);
        eventually(SOON, async || {
            let status = api.get(&format!("/v1/voice/session/{}/status", started.id)).await.expect(200);
            status["endReason"] == "room_finished"
        })
        .await;
    }

    async fn a_language_chooses_its_agent(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_NAMES", "zh=agent-zh,zh-tw=agent-tw"), ("VOICE_MAX_SESSIONS_PER_USER", "0")]).await;
        for (language, agent) in [("zh-CN", "agent-zh"), ("zh-TW", "agent-tw"), ("en", "ensemble-voice")] {
            let body = json!({ "userId": "user-1", "sessionId": language, "language": language });
            let started = Started::of(&fixture.api.post("/v1/voice/session/start", &body).await);
            assert_eq!(fixture.status(&started.id).await["agent"]["name"], agent);
        }
    }
}
