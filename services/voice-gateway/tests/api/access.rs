//! Access: applications by their voice keys, people by tokens in addition to the key.

use ensemble_doubles::livekit::{AgentPlan, Ready};
use ensemble_testkit::SOON;
use ensemble_testkit::*;
use futures_util::future::join_all;
use serde_json::json;

use crate::agent::agent_of;
use crate::fixture::{Fixture, OTHER_VOICE_KEY, Started, VOICE_KEY};

const CALLS: [(&str, &str); 5] = [
    ("POST", "/v1/voice/session/start"),
    ("POST", "/v1/voice/session/stop"),
    ("POST", "/v1/voice/session/text"),
    ("POST", "/v1/voice/session/context"),
    ("GET", "/v1/voice/session/x/status"),
];

on_both_databases! {
    async fn every_route_requires_a_voice_key(on: Backend) {
        let fixture = Fixture::new(on).await;
        let without_key = Api::new(&fixture.gateway.public_url());
        let user = fixture.peers.issuer().user(fixture.peers.new_user());
        for (method, path) in CALLS {
            for caller in [without_key.clone(), without_key.with_token("wrong-voice-key-000"), without_key.with_token(&user)] {
                let answer = Api::send(caller.request(method, path).json(&json!({}))).await;
                answer.problem(401, "UNAUTHENTICATED");
                assert!(answer.header("www-authenticate").is_some());
            }
            let wrong = fixture.api.request(method, path).header("x-voice-key", "wrong-voice-key-000").json(&json!({}));
            Api::send(wrong).await.problem(401, "UNAUTHENTICATED");
        }
    }

    async fn a_signed_in_person_gets_the_key_of_our_own_page(on: Backend) {
        let fixture = Fixture::new(on).await;
        let without_key = Api::new(&fixture.gateway.public_url());
        let user = without_key.with_token(&fixture.peers.issuer().user(fixture.peers.new_user()));
        let answer = user.get("/v1/voice/key").await.expect(200);
        let key = answer["voiceKey"].as_str().unwrap();
        assert!(key.len() > 40 && key != VOICE_KEY && key != OTHER_VOICE_KEY);
        for caller in [without_key.clone(), without_key.with_token(VOICE_KEY)] {
            caller.get("/v1/voice/key").await.problem(401, "UNAUTHENTICATED");
        }
        let off = Fixture::with(on, &[("VOICE_PUBLIC_KEY", "")]).await;
        let user = Api::new(&off.gateway.public_url()).with_token(&off.peers.issuer().user(off.peers.new_user()));
        user.get("/v1/voice/key").await.problem(404, "NOT_FOUND");
    }

    async fn the_key_of_our_own_page_counts_only_with_a_users_token(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (fixture.peers.new_user(), fixture.peers.new_user());
        let without_key = Api::new(&fixture.gateway.public_url());
        let user = without_key.with_token(&fixture.peers.issuer().user(alice));
        let answer = user.get("/v1/voice/key").await.expect(200);
        let key = answer["voiceKey"].as_str().unwrap();
        let body = json!({ "userId": alice, "sessionId": "session-1" });
        let send = async |api: &Api, method: &str, path: &str, body: &serde_json::Value| {
            Api::send(api.request(method, path).header("x-voice-key", key).json(body)).await
        };
        for (method, path) in CALLS {
            send(&without_key, method, path, &body).await.problem(401, "UNAUTHENTICATED");
            send(&without_key.with_token(key), method, path, &body).await.problem(401, "UNAUTHENTICATED");
            Api::send(without_key.with_token(key).request(method, path).json(&body)).await.problem(401, "UNAUTHENTICATED");
            send(&without_key.with_token("no-token"), method, path, &body).await.problem(401, "UNAUTHENTICATED");
            // An application's key with it does not prove a person either.
            send(&without_key.with_token(VOICE_KEY), method, path, &body).await.problem(401, "UNAUTHENTICATED");
        }
        let started = Started::of(&send(&user, "POST", "/v1/voice/session/start", &body).await);
        let others = without_key.with_token(&fixture.peers.issuer().user(bob));
        send(&others, "POST", "/v1/voice/session/start", &body).await.problem(403, "FORBIDDEN");
        let status = format!("/v1/voice/session/{}/status", started.id);
        send(&user, "GET", &status, &json!({})).await.expect(200);
        send(&others, "GET", &status, &json!({})).await.problem(404, "NOT_FOUND");
    }

    async fn both_headers_and_all_keys_are_valid(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS_PER_USER", "0")]).await;
        let without_key = Api::new(&fixture.gateway.public_url());
        for (number, key) in [VOICE_KEY, OTHER_VOICE_KEY].into_iter().enumerate() {
            let body = json!({ "userId": "user-1", "sessionId": format!("session-{number}") });
            let by_header = without_key.request("POST", "/v1/voice/session/start").header("x-voice-key", key).json(&body);
            Started::of(&Api::send(by_header).await);
            Started::of(&without_key.with_token(key).post("/v1/voice/session/start", &body).await);
        }
    }

    async fn two_different_keys_in_one_request_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let send = async |bearer: &str| {
            let api = Api::new(&fixture.gateway.public_url()).with_token(bearer);
            Api::send(api.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY).json(&body)).await
        };
        send(OTHER_VOICE_KEY).await.problem(401, "UNAUTHENTICATED");
        Started::of(&send(VOICE_KEY).await);
    }

    async fn a_user_token_binds_the_request_to_the_user(on: Backend) {
        let fixture = Fixture::new(on).await;
        let issuer = fixture.peers.issuer();
        let (alice, bob) = (fixture.peers.new_user(), fixture.peers.new_user());
        let without_key = Api::new(&fixture.gateway.public_url());
        let send = async |token: &str, method: &str, path: &str, body: serde_json::Value| {
            Api::send(without_key.with_token(token).request(method, path).header("x-voice-key", VOICE_KEY).json(&body)).await
        };
        let body = json!({ "userId": alice.to_string(), "sessionId": "session-1" });
        let started = Started::of(&send(&issuer.user(alice), "POST", "/v1/voice/session/start", body.clone()).await);
        send(&issuer.user(bob), "POST", "/v1/voice/session/start", body.clone()).await.problem(403, "FORBIDDEN");
        let machine = fixture.peers.new_machine(alice);
        send(&issuer.machine(alice, &machine), "POST", "/v1/voice/session/start", body.clone()).await.problem(403, "FORBIDDEN");
        for (name, bad) in issuer.bad_tokens(alice) {
            let answer = send(&bad, "POST", "/v1/voice/session/start", body.clone()).await;
            assert_eq!(answer.status, 401, "{name}: {}", answer.text);
        }
        // The session of another user counts as unknown.
        let status = format!("/v1/voice/session/{}/status", started.id);
        send(&issuer.user(alice), "GET", &status, json!({})).await.expect(200);
        send(&issuer.user(bob), "GET", &status, json!({})).await.problem(404, "NOT_FOUND");
        let stop = json!({ "gatewaySessionId": started.id });
        assert_eq!(send(&issuer.user(bob), "POST", "/v1/voice/session/stop", stop.clone()).await.expect(200)["success"], true);
        assert!(fixture.double.room(&started.room).is_some());
        send(&issuer.user(alice), "POST", "/v1/voice/session/stop", stop).await.expect(200);
        assert!(fixture.double.room(&started.room).is_none());
    }

    async fn a_user_token_can_be_required(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_REQUIRE_USER", "true")]).await;
        let alice = fixture.peers.new_user();
        let body = json!({ "userId": alice.to_string(), "sessionId": "session-1" });
        fixture.api.post("/v1/voice/session/start", &body).await.problem(401, "UNAUTHENTICATED");
        let with_person = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(alice));
        let request = with_person.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY).json(&body);
        Started::of(&Api::send(request).await);
    }

    async fn a_voice_key_alone_gets_no_credential_for_tools_and_replaces_no_users_session(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (start, alice) = ("/v1/voice/session/start", fixture.peers.new_user());
        let body = json!({ "userId": alice, "sessionId": "s", "toolBridgeBaseUrl": "https://app.example" });
        let credential = |room: &str| {
            let metadata: serde_json::Value =
                serde_json::from_str(&fixture.double.dispatch_metadata(room).unwrap()).unwrap();
            assert_eq!(metadata["toolBridge"]["baseUrl"], "https://app.example");
            metadata["toolBridge"]["token"].as_str().map(str::to_owned)
        };
        let claimed = Started::of(&fixture.api.post(start, &body).await);
        assert_eq!(credential(&claimed.room), None);
        // The user's token replaces the application's session, and not the other way round.
        let proven = Started::of(&fixture.as_user(alice, start, &body).await);
        assert!(credential(&proven.room).is_some());
        fixture.ends(&claimed.id, "stopped", "replaced").await;
        let rooms = fixture.double.created_rooms().len();
        fixture.api.post(start, &body).await.problem(403, "FORBIDDEN");
        assert_eq!(fixture.double.created_rooms().len(), rooms);
        assert_eq!(fixture.status(&proven.id).await["endReason"], json!(null));
        // An agent that is dispatched again gets what the first one got.
        fixture.status_becomes(&proven.id, |status| status["agent"]["ready"] == true).await;
        fixture.double.kill_agents(&proven.room);
        eventually(SOON, async || fixture.double.dispatches(&proven.room) == 2).await;
        assert!(credential(&proven.room).is_some());
        fixture.as_user(alice, "/v1/voice/session/stop", &json!({ "gatewaySessionId": proven.id })).await.expect(200);
        Started::of(&fixture.api.post(start, &body).await);
    }

    async fn a_voice_key_alone_does_not_repeat_a_users_start(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = fixture.peers.new_user();
        let body = json!({ "userId": alice, "sessionId": "s" });
        let keyed = async |api: Api| {
            let request = api.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY);
            Api::send(request.header("idempotency-key", "the-key-of-one-start").json(&body)).await
        };
        let person = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(alice));
        let first = Started::of(&keyed(person.clone()).await);
        keyed(fixture.api.clone()).await.problem(403, "FORBIDDEN");
        assert_eq!(Started::of(&keyed(person).await).id, first.id);
    }

    async fn wrong_keys_are_rate_limited(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_WRONG_KEYS_PER_MINUTE", "3")]).await;
        let guesser = Api::new(&fixture.gateway.public_url()).with_token("a-guess-of-a-voice-key");
        for _ in 0..3 {
            guesser.get("/v1/voice/session/x/status").await.problem(401, "UNAUTHENTICATED");
        }
        let answer = guesser.get("/v1/voice/session/x/status").await;
        answer.problem(429, "RATE_LIMITED");
        assert!(answer.header("retry-after").is_some());
        fixture.api.get("/v1/voice/session/x/status").await.problem(404, "NOT_FOUND");
    }

    async fn wrong_credentials_of_agents_count_as_wrong_keys(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_WRONG_KEYS_PER_MINUTE", "3")]).await;
        let started = fixture.start("user-1", "session-1").await;
        let agent = agent_of(&fixture, &started);
        let guesser = Api::new(&fixture.gateway.public_url()).with_token("a-guess-of-a-credential");
        let beat = json!({ "type": "heartbeat" });
        for _ in 0..3 {
            guesser.post(&agent.events, &beat).await.problem(401, "UNAUTHENTICATED");
        }
        guesser.post(&agent.events, &beat).await.problem(429, "RATE_LIMITED");
        guesser.get("/v1/voice/session/x/status").await.problem(429, "RATE_LIMITED");
        agent.api.post(&agent.events, &beat).await.expect(200);
    }

    async fn an_agent_that_calls_too_often_is_refused_for_its_session_only(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_CALLS_PER_SECOND", "2")]).await;
        // Agents of the double would call too, and more than once where answers are slow.
        fixture.double.plan_agents(AgentPlan { ready: Ready::Never, ..AgentPlan::default() });
        let (first, second) = (fixture.start("user-1", "session-1").await, fixture.start("user-2", "session-2").await);
        let (busy, other) = (agent_of(&fixture, &first), agent_of(&fixture, &second));
        let state = json!({ "type": "state", "state": "thinking" });
        // On a slow machine a burst may take so long that none of it is too many.
        let mut refused = None;
        for _ in 0..50 {
            let answers = join_all((0..20).map(|_| busy.api.post(&busy.events, &state))).await;
            refused = answers.into_iter().find(|answer| answer.status == 429);
            if refused.is_some() {
                break;
            }
        }
        let refused = refused.expect("an answer 429");
        refused.problem(429, "RATE_LIMITED");
        assert_eq!(refused.header("retry-after"), Some("1"));
        other.api.post(&other.events, &state).await.expect(200);
        eventually(SOON, async || busy.api.post(&busy.events, &state).await.status == 200).await;
    }
}
