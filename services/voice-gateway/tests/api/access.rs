//! Who may call: applications by their keys, people by their tokens beside them.

use ensemble_testkit::*;
use serde_json::json;

use crate::stage::{OTHER_VOICE_KEY, Stage, Started, VOICE_KEY};

const CALLS: [(&str, &str); 5] = [
    ("POST", "/v1/voice/session/start"),
    ("POST", "/v1/voice/session/stop"),
    ("POST", "/v1/voice/session/text"),
    ("POST", "/v1/voice/session/context"),
    ("GET", "/v1/voice/session/x/status"),
];

on_both_databases! {
    async fn every_call_wants_a_voice_key(on: Backend) {
        let stage = Stage::new(on).await;
        let anyone = Api::new(&stage.gateway.public_url());
        let user = stage.peers.issuer().user(stage.peers.new_user());
        for (method, path) in CALLS {
            for caller in [anyone.clone(), anyone.with_token("wrong-voice-key-000"), anyone.with_token(&user)] {
                let answer = Api::send(caller.request(method, path).json(&json!({}))).await;
                answer.problem(401, "UNAUTHENTICATED");
                assert!(answer.header("www-authenticate").is_some());
            }
            let wrong = stage.api.request(method, path).header("x-voice-key", "wrong-voice-key-000").json(&json!({}));
            Api::send(wrong).await.problem(401, "UNAUTHENTICATED");
        }
    }

    async fn both_forms_and_all_keys_are_valid(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_MAX_SESSIONS_PER_USER", "0")]).await;
        let anyone = Api::new(&stage.gateway.public_url());
        for (number, key) in [VOICE_KEY, OTHER_VOICE_KEY].into_iter().enumerate() {
            let body = json!({ "userId": "user-1", "sessionId": format!("session-{number}") });
            let by_header = anyone.request("POST", "/v1/voice/session/start").header("x-voice-key", key).json(&body);
            Started::of(&Api::send(by_header).await);
            Started::of(&anyone.with_token(key).post("/v1/voice/session/start", &body).await);
        }
    }

    async fn two_keys_in_one_call_are_none(on: Backend) {
        let stage = Stage::new(on).await;
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let send = async |bearer: &str| {
            let api = Api::new(&stage.gateway.public_url()).with_token(bearer);
            Api::send(api.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY).json(&body)).await
        };
        send(OTHER_VOICE_KEY).await.problem(401, "UNAUTHENTICATED");
        Started::of(&send(VOICE_KEY).await);
    }

    async fn a_persons_token_binds_the_call_to_the_person(on: Backend) {
        let stage = Stage::new(on).await;
        let issuer = stage.peers.issuer();
        let (alice, bob) = (stage.peers.new_user(), stage.peers.new_user());
        let anyone = Api::new(&stage.gateway.public_url());
        let send = async |token: &str, method: &str, path: &str, body: serde_json::Value| {
            Api::send(anyone.with_token(token).request(method, path).header("x-voice-key", VOICE_KEY).json(&body)).await
        };
        let body = json!({ "userId": alice.to_string(), "sessionId": "session-1" });
        let started = Started::of(&send(&issuer.user(alice), "POST", "/v1/voice/session/start", body.clone()).await);
        send(&issuer.user(bob), "POST", "/v1/voice/session/start", body.clone()).await.problem(403, "FORBIDDEN");
        let machine = stage.peers.new_machine(alice);
        send(&issuer.machine(alice, &machine), "POST", "/v1/voice/session/start", body.clone()).await.problem(403, "FORBIDDEN");
        for (name, bad) in issuer.bad_tokens(alice) {
            let answer = send(&bad, "POST", "/v1/voice/session/start", body.clone()).await;
            assert_eq!(answer.status, 401, "{name}: {}", answer.text);
        }
        // Another's session is as good as none.
        let status = format!("/v1/voice/session/{}/status", started.id);
        send(&issuer.user(alice), "GET", &status, json!({})).await.expect(200);
        send(&issuer.user(bob), "GET", &status, json!({})).await.problem(404, "NOT_FOUND");
        let stop = json!({ "gatewaySessionId": started.id });
        assert_eq!(send(&issuer.user(bob), "POST", "/v1/voice/session/stop", stop.clone()).await.expect(200)["success"], true);
        assert!(stage.double.room(&started.room).is_some());
        send(&issuer.user(alice), "POST", "/v1/voice/session/stop", stop).await.expect(200);
        assert!(stage.double.room(&started.room).is_none());
    }

    async fn a_person_can_be_demanded(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_REQUIRE_USER", "true")]).await;
        let alice = stage.peers.new_user();
        let body = json!({ "userId": alice.to_string(), "sessionId": "session-1" });
        stage.api.post("/v1/voice/session/start", &body).await.problem(401, "UNAUTHENTICATED");
        let with_person = Api::new(&stage.gateway.public_url()).with_token(&stage.peers.issuer().user(alice));
        let request = with_person.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY).json(&body);
        Started::of(&Api::send(request).await);
    }

    async fn guessing_keys_is_slowed_down(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_WRONG_KEYS_PER_MINUTE", "3")]).await;
        let guesser = Api::new(&stage.gateway.public_url()).with_token("a-guess-of-a-voice-key");
        for _ in 0..3 {
            guesser.get("/v1/voice/session/x/status").await.problem(401, "UNAUTHENTICATED");
        }
        let answer = guesser.get("/v1/voice/session/x/status").await;
        answer.problem(429, "RATE_LIMITED");
        assert!(answer.header("retry-after").is_some());
        stage.api.get("/v1/voice/session/x/status").await.problem(404, "NOT_FOUND");
    }
}
