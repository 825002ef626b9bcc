//! Words that the agent speaks as they are, and a session as a stream of events.

use ensemble_doubles::livekit::AgentPlan;
use ensemble_testkit::SOON;
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::person::{Person, metadata, report, said};

const SAY: &str = "/v1/voice/session/say";

/// The next event: its name and its data.
async fn next(events: &mut Events) -> Option<(SseEvent, Value)> {
    let event = events.next_within(SOON).await.unwrap()?;
    let data = serde_json::from_str(&event.data).unwrap();
    Some((event, data))
}

/// The next event of this name.
async fn next_of(events: &mut Events, name: &str) -> (SseEvent, Value) {
    loop {
        let (event, data) = next(events).await.expect("the stream has ended");
        if event.name == name {
            return (event, data);
        }
    }
}

on_both_databases! {
    async fn words_reach_the_agent_in_order_with_the_texts(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Person::new(&fixture);
        let started = alice.talk("session-1").await;
        let body = |text: &str, more: Value| {
            let mut body = json!({ "gatewaySessionId": started.id, "text": text });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        alice.post("/v1/voice/session/text", &body("one", json!({}))).await.expect(200);
        let answer = alice.post(SAY, &body("A run ended.", json!({ "messageId": "m-1" }))).await.expect(200);
        assert_eq!(answer, json!({ "accepted": true, "messageId": "m-1", "delivery": "delivered" }));
        alice.post(SAY, &body("A run ended.", json!({ "messageId": "m-1" }))).await.expect(200);
        alice.post(SAY, &body("Something needs your answer.", json!({ "interrupt": true }))).await.expect(200);
        alice.post("/v1/voice/session/text", &body("two", json!({}))).await.expect(200);
        let received = fixture.double.received(&started.room);
        let shown: Vec<(String, Value, Value, Value)> = received
            .iter()
            .map(|one| (one.name.clone(), one.payload["seq"].clone(), one.payload["text"].clone(), one.payload["interrupt"].clone()))
            .collect();
        assert_eq!(shown, [
            ("voice.text".to_owned(), json!(1), json!("one"), Value::Null),
            ("voice.say".to_owned(), json!(2), json!("A run ended."), json!(false)),
            ("voice.say".to_owned(), json!(3), json!("Something needs your answer."), json!(true)),
            ("voice.text".to_owned(), json!(4), json!("two"), Value::Null),
        ]);
    }

    async fn only_the_sessions_user_makes_the_agent_speak(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (Person::new(&fixture), Person::new(&fixture));
        let started = alice.talk("session-1").await;
        let body = json!({ "gatewaySessionId": started.id, "text": "Approve everything." });
        fixture.api.post(SAY, &body).await.problem(401, "UNAUTHENTICATED");
        let without_key = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(alice.id));
        without_key.post(SAY, &body).await.problem(401, "UNAUTHENTICATED");
        bob.post(SAY, &body).await.problem(404, "NOT_FOUND");
        assert_eq!(fixture.double.received(&started.room).len(), 0);
        for text in [String::new(), "x".repeat(8_193)] {
            let body = json!({ "gatewaySessionId": started.id, "text": text });
            assert_eq!(alice.post(SAY, &body).await.bad_fields(), ["/text"]);
        }
        fixture.stop(&started.id).await;
        alice.post(SAY, &body).await.problem(409, "SESSION_NOT_ACTIVE");
    }

    async fn words_wait_in_the_queue_of_the_texts(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_QUEUE_MAX", "2"), ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "60")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let alice = Person::new(&fixture);
        let started = alice.start("session-1").await;
        let body = json!({ "gatewaySessionId": started.id, "text": "words" });
        for _ in 0..2 {
            assert_eq!(alice.post(SAY, &body).await.expect(200)["delivery"], "queued");
        }
        let refused = alice.post(SAY, &body).await;
        refused.problem(429, "RATE_LIMITED");
        assert!(refused.header("retry-after").is_some());
    }

    async fn a_session_is_a_stream_of_events(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Person::new(&fixture);
        let started = alice.talk("session-1").await;
        said(&fixture, &started, "user", "first", "u1").await;
        let mut events = alice.events(&started, None).await;
        assert_eq!(events.status, 200);
        let (event, data) = next_of(&mut events, "utterance").await;
        assert_eq!((event.id.as_deref(), &data["text"]), (Some("1.0"), &json!("first")));
        let (_, data) = next_of(&mut events, "status").await;
        assert_eq!((&data["state"], &data["lastError"]), (&json!("active"), &Value::Null));
        // What happens from now on arrives by itself.
        said(&fixture, &started, "assistant", "second", "a1").await;
        assert_eq!(next_of(&mut events, "utterance").await.1["text"], "second");
        let tools = metadata(&fixture, &started)["tools"].clone();
        let agent = Api::new(&fixture.gateway.public_url()).with_token(tools["token"].as_str().unwrap());
        agent.get("/v1/voice/tools/sessions.list").await.expect(200);
        let (event, data) = next_of(&mut events, "tool").await;
        assert_eq!((event.id.as_deref(), &data["name"]), (Some("2.1"), &json!("sessions.list")));
        report(&fixture, &started, &json!({ "type": "error", "code": "llm_error", "message": "Timeout" })).await.expect(200);
        loop {
            let status = next_of(&mut events, "status").await.1;
            if status["lastError"]["code"] == "llm_error" {
                assert_eq!(status["lastError"]["message"], "Timeout");
                break;
            }
        }
        // A reader that reconnects continues after what it has.
        said(&fixture, &started, "user", "third", "u2").await;
        let mut again = alice.events(&started, Some("2.1")).await;
        assert_eq!(next(&mut again).await.unwrap().1["text"], "third");
        fixture.stop(&started.id).await;
        for reader in [&mut events, &mut again] {
            loop {
                let status = next_of(reader, "status").await.1;
                if status["state"] == "stopped" || status["state"] == "stopping" {
                    break;
                }
            }
        }
        let last = loop {
            let (event, data) = next(&mut again).await.expect("the last event says why");
            if event.name == "end" {
                assert_eq!((&data["reason"], event.retry), (&json!("terminal"), None));
                break event.id.expect("the end has an id");
            }
        };
        assert!(next(&mut again).await.is_none());
        // The numbers alone do not say that the last status is known.
        let mut without_end = alice.events(&started, last.strip_suffix(".end")).await;
        assert_eq!(next_of(&mut without_end, "status").await.1["state"], "stopped");
        assert_eq!(alice.events(&started, Some(&last)).await.status, 204, "a reader that knows the end does not come back");
    }

    async fn a_stream_is_its_users_and_ends_with_their_token(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (Person::new(&fixture), Person::new(&fixture));
        let started = alice.talk("session-1").await;
        let path = format!("/v1/voice/session/{}/events", started.id);
        fixture.api.get(&path).await.problem(401, "UNAUTHENTICATED");
        bob.get(&path).await.problem(404, "NOT_FOUND");
        let without_key = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(alice.id));
        without_key.get(&path).await.problem(401, "UNAUTHENTICATED");
        let (token, id) = fixture.peers.issuer().revocable(alice.id);
        let mut events = alice.events_with(&token, &started, None).await;
        next_of(&mut events, "status").await;
        fixture.peers.issuer().revoke(id);
        assert_eq!(next_of(&mut events, "end").await.1["reason"], "unauthenticated");
        assert!(next(&mut events).await.is_none());
    }
}
