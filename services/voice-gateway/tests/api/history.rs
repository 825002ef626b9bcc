//! What only a session's user reads: their list of sessions, what was said, what the agent read, and why it does not work.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started};
use crate::person::{Person, metadata, report, said};

fn transcript(started: &Started) -> String {
    format!("/v1/voice/session/{}/transcript", started.id)
}

fn status(started: &Started) -> String {
    format!("/v1/voice/session/{}/status", started.id)
}

fn texts(transcript: &Value) -> Vec<String> {
    let said = transcript["utterances"].as_array().unwrap();
    said.iter()
        .map(|one| format!("{} {}: {}", one["seq"], one["role"].as_str().unwrap(), one["text"].as_str().unwrap()))
        .collect()
}

on_both_databases! {
    async fn what_was_said_is_read_by_its_user(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, bob) = (Person::new(&fixture), Person::new(&fixture));
        let started = alice.talk("session-1").await;
        said(&fixture, &started, "user", "Are the tests green?", "u1").await;
        said(&fixture, &started, "assistant", "Two fail.", "a1").await;
        said(&fixture, &started, "assistant", "Two fail.", "a1").await;
        report(&fixture, &started, &json!({ "type": "transcript", "role": "user", "text": "é".repeat(3_000) })).await.expect(200);
        let token = metadata(&fixture, &started)["tools"]["token"].as_str().unwrap().to_owned();
        let tools = Api::new(&fixture.gateway.public_url()).with_token(&token);
        tools.get("/v1/voice/tools/runs.show?run=4wz9k2xq").await.problem(404, "NOT_FOUND");

        let read = alice.get(&transcript(&started)).await.expect(200);
        assert_eq!(texts(&read)[..2], ["1 user: Are the tests green?", "2 assistant: Two fail."], "{read}");
        let long = &read["utterances"][2];
        assert_eq!((long["text"].as_str().unwrap().len(), &long["cut"], &read["utterances"][0]["cut"]), (4_096, &json!(true), &json!(false)));
        assert_eq!((read["utterances"].as_array().unwrap().len(), &read["more"], &read["deletedAt"]), (3, &json!(false), &Value::Null));
        let calls = read["toolCalls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["name"], &calls[0]["run"]), (1, &json!("runs.show"), &json!("4wz9k2xq")));
        let part = alice.get(&format!("{}?after=1&limit=1", transcript(&started))).await.expect(200);
        assert_eq!((texts(&part), &part["more"]), (vec!["2 assistant: Two fail.".to_owned()], &json!(true)));

        // The voice key alone is not enough, and another user's session does not exist.
        fixture.api.get(&transcript(&started)).await.problem(401, "UNAUTHENTICATED");
        let without_key = Api::new(&fixture.gateway.public_url()).with_token(&fixture.peers.issuer().user(alice.id));
        without_key.get(&transcript(&started)).await.problem(401, "UNAUTHENTICATED");
        bob.get(&transcript(&started)).await.problem(404, "NOT_FOUND");
        for bad in ["?limit=0", "?limit=201", "?after=-1"] {
            assert_eq!(alice.get(&format!("{}{bad}", transcript(&started))).await.status, 400, "{bad}");
        }
    }

    async fn only_the_newest_utterances_are_kept(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_CALLS_PER_SECOND", "0")]).await;
        let alice = Person::new(&fixture);
        let started = alice.talk("session-1").await;
        for number in 1..=502 {
            said(&fixture, &started, "user", &number.to_string(), &number.to_string()).await;
        }
        let first = alice.get(&format!("{}?limit=200", transcript(&started))).await.expect(200);
        assert_eq!((texts(&first)[0].as_str(), &first["more"]), ("3 user: 3", &json!(true)));
        let last = alice.get(&format!("{}?after=402&limit=200", transcript(&started))).await.expect(200);
        assert_eq!((texts(&last).len(), texts(&last)[99].as_str()), (100, "502 user: 502"));
    }

    async fn what_was_said_is_gone_a_while_after_the_end(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_TRANSCRIPT_KEEP_SECONDS", "600")]).await;
        let alice = Person::new(&fixture);
        let (ends, lives) = (alice.talk("session-1").await, alice.talk("session-2").await);
        for started in [&ends, &lives] {
            said(&fixture, started, "user", "a secret", "u1").await;
        }
        fixture.stop(&ends.id).await;
        let read = alice.get(&transcript(&ends)).await.expect(200);
        assert_eq!(texts(&read), ["1 user: a secret"]);
        assert!(read["deletedAt"].is_string());
        fixture.ends(&ends.id, "stopped", "stop_requested").await;
        fixture.pass(Duration::from_secs(600)).await;
        assert_eq!(alice.get(&transcript(&ends)).await.status, 404);
        // Nothing more is kept, and the session that is still open keeps what it has.
        report(&fixture, &ends, &json!({ "type": "transcript", "role": "user", "text": "x" })).await.problem(401, "UNAUTHENTICATED");
        eventually(SOON, async || fixture.rows("voice_utterances").await == 1).await;
        assert_eq!(texts(&alice.get(&transcript(&lives)).await.expect(200)), ["1 user: a secret"]);
    }

    async fn a_status_says_why_the_agent_does_not_work(on: Backend) {
        let fixture = Fixture::new(on).await;
        let alice = Person::new(&fixture);
        let started = alice.talk("session-1").await;
        assert_eq!(alice.get(&status(&started)).await.expect(200)["lastError"], Value::Null);
        for code in ["stt_error", "llm_error"] {
            let event = json!({ "type": "error", "code": code, "message": format!("{code}: APIStatusError") });
            report(&fixture, &started, &event).await.expect(200);
        }
        let error = alice.get(&status(&started)).await.expect(200)["lastError"].clone();
        assert_eq!((&error["code"], &error["message"]), (&json!("llm_error"), &json!("llm_error: APIStatusError")), "{error}");
        assert!(error["at"].is_string());
        // A caller with only the voice key learns the kind of failure.
        let error = fixture.status(&started.id).await["lastError"].clone();
        assert_eq!((&error["code"], &error["message"]), (&json!("llm_error"), &Value::Null));
        fixture.stop(&started.id).await;
        let error = alice.get(&status(&started)).await.expect(200)["lastError"].clone();
        assert_eq!((&error["code"], &error["message"]), (&json!("llm_error"), &Value::Null), "its text went with the session");
    }

    async fn a_user_lists_their_own_sessions(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS_PER_USER", "0"), ("VOICE_DAILY_SECONDS_PER_USER", "0")]).await;
        let (alice, bob) = (Person::new(&fixture), Person::new(&fixture));
        let mut started = Vec::new();
        for number in 0..5 {
            started.push(alice.start(&format!("session-{number}")).await.id);
        }
        bob.start("session-1").await;
        fixture.stop(&started[0]).await;
        let mut listed = Vec::new();
        let mut path = "/v1/voice/sessions?limit=2".to_owned();
        loop {
            let page = alice.get(&path).await.expect(200);
            listed.extend(page["sessions"].as_array().unwrap().clone());
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            path = format!("/v1/voice/sessions?limit=2&cursor={cursor}");
        }
        let ids: Vec<&str> = listed.iter().map(|one| one["gatewaySessionId"].as_str().unwrap()).collect();
        started.reverse();
        assert_eq!(ids, started, "all of hers, newest first");
        assert_eq!((&listed[4]["state"], &listed[4]["endReason"]), (&json!("stopped"), &json!("stop_requested")));
        assert!(listed.iter().all(|one| one["userId"] == json!(alice.id)));
        assert_eq!(bob.get("/v1/voice/sessions").await.expect(200)["sessions"].as_array().unwrap().len(), 1);
        fixture.api.get("/v1/voice/sessions").await.problem(401, "UNAUTHENTICATED");
        for bad in ["?limit=0", "?limit=101", "?cursor=x"] {
            assert_eq!(alice.get(&format!("/v1/voice/sessions{bad}")).await.status, 400, "{bad}");
        }
    }
}
