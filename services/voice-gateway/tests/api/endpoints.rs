//! What the operator's endpoints receive of sessions, and that none of them delays a session or another endpoint.

use ensemble_testkit::SOON;
use std::time::Instant;

use ensemble_doubles::livekit::Fault;
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::receiver::{Answers, Receiver};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A gateway that tells these endpoints, each with its secrets, and tries again soon.
async fn telling(on: Backend, receiver: &Receiver, endpoints: &[(&str, &str)], more: &[(&str, &str)]) -> Fixture {
    let line = |(name, secrets): &(&str, &str)| format!("{name} {}/{name} {secrets}\n", receiver.origin);
    let text: String = endpoints.iter().map(line).collect();
    let ours = [
        ("VOICE_WEBHOOKS", text.as_str()),
        ("VOICE_WEBHOOK_TRUSTED_ORIGINS", &receiver.origin),
        ("VOICE_WEBHOOK_RETRY_MS", "50"),
    ];
    Fixture::with(on, &[&ours, more].concat()).await
}

/// More than are sent to one endpoint at once.
async fn ten_sessions(fixture: &Fixture) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..10 {
        let started = fixture.start(&format!("user-{number}"), "session-1").await;
        fixture.stop(&started.id).await;
        ids.push(started.id);
    }
    ids
}

fn kinds(received: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = received.iter().map(|one| one["type"].as_str().unwrap()).collect();
    // They may come in another order than they happened.
    kinds.sort_unstable();
    kinds
}

const ALL: [&str; 3] = ["voice.session.active", "voice.session.ended", "voice.session.started"];

on_both_databases! {
    async fn every_endpoint_receives_start_life_and_end(on: Backend) {
        let receiver = Receiver::start();
        let fixture = telling(on, &receiver, &[("one", OLD), ("two", NEW)], &[]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.text(&talk.id, "a text that no endpoint gets").await;
        fixture.stop(&talk.id).await;
        for (path, secret) in [("/one", OLD), ("/two", NEW)] {
            eventually(SOON, async || receiver.received(path, &talk.id, secret).len() == 3).await;
            let received = receiver.received(path, &talk.id, secret);
            assert_eq!(kinds(&received), ALL);
            let of = |kind: &str| received.iter().find(|one| one["type"] == kind).unwrap();
            let (active, ended) = (of("voice.session.active"), of("voice.session.ended"));
            assert_eq!((&active["data"]["state"], &active["data"]["endReason"]), (&json!("active"), &Value::Null));
            assert_eq!(active["timestamp"], active["data"]["activeAt"]);
            let data = &ended["data"];
            assert_eq!((&data["state"], &data["endReason"]), (&json!("stopping"), &json!("stop_requested")));
            assert_eq!((&data["userId"], &data["sessionId"]), (&json!("user-1"), &json!("session-1")));
            assert_eq!((&data["userProven"], &ended["timestamp"]), (&json!(false), &data["endedAt"]));
            let calls = receiver.calls(path);
            assert!(calls.iter().all(|call| call.header("content-type") == "application/json"));
            let mut ids: Vec<&str> = calls.iter().map(|call| call.header("webhook-id")).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 3);
            assert!(calls.iter().all(|call| !call.body.contains("a text that") && !call.is_signed_by(if secret == OLD { NEW } else { OLD })));
        }
        let sent = "voice_webhook_deliveries_total{endpoint=\"two\",outcome=\"delivered\",service=\"voice-gateway\"} 3";
        eventually(SOON, async || fixture.metrics().await.contains(sent)).await;
    }

    async fn while_a_secret_is_replaced_both_sign(on: Backend) {
        let receiver = Receiver::start();
        let fixture = telling(on, &receiver, &[("one", &format!("{NEW} {OLD}"))], &[]).await;
        let started = fixture.start("user-1", "session-1").await;
        for secret in [OLD, NEW] {
            eventually(SOON, async || !receiver.received("/one", &started.id, secret).is_empty()).await;
        }
    }

    async fn what_is_not_taken_comes_again_under_the_same_id(on: Backend) {
        let receiver = Receiver::start();
        let refusals = [("one", Answers::Status(500)), ("two", Answers::Redirects), ("three", Answers::Status(401))];
        let paths = refusals.map(|(name, _)| format!("/{name}"));
        for ((_, answers), path) in refusals.into_iter().zip(&paths) {
            receiver.answer(path, answers);
        }
        let fixture = telling(on, &receiver, &refusals.map(|(name, _)| (name, OLD)), &[]).await;
        let started = fixture.start("user-1", "session-1").await;
        eventually(SOON, async || paths.iter().all(|path| receiver.calls(path).len() >= 3)).await;
        for path in &paths {
            receiver.answer(path, Answers::Status(200));
        }
        for ((name, _), path) in refusals.iter().zip(&paths) {
            let taken = format!(
                "voice_webhook_deliveries_total{{endpoint=\"{name}\",outcome=\"delivered\",service=\"voice-gateway\"}} 1"
            );
            eventually(SOON, async || fixture.metrics().await.contains(&taken)).await;
            let calls = receiver.calls(path);
            assert!(calls.iter().all(|call| call.header("webhook-id") == calls[0].header("webhook-id")));
            assert!(calls.iter().all(|call| call.is_signed_by(OLD) && call.body == calls[0].body));
        }
        assert!(receiver.calls("/elsewhere").is_empty(), "a redirect was followed");
        // The next one passes; what was taken does not come again.
        let calls = paths.each_ref().map(|path| receiver.calls(path).len());
        fixture.stop(&started.id).await;
        for (path, before) in paths.iter().zip(calls) {
            eventually(SOON, async || receiver.received(path, &started.id, OLD).len() == before + 1).await;
        }
        assert!(fixture.metrics().await.contains("voice_webhook_deliveries_waiting{endpoint=\"one\",service=\"voice-gateway\"}"));
    }

    async fn an_endpoint_that_is_slow_dead_or_endless_holds_up_no_other_and_no_session(on: Backend) {
        let receiver = Receiver::start();
        receiver.answer("/slow", Answers::Never);
        receiver.answer("/endless", Answers::Endlessly);
        let (dead, closed) = (format!("http://127.0.0.1:1 {OLD}"), "http://127.0.0.1:1");
        let text = format!(
            "dead {dead}\nslow {0}/slow {OLD}\nendless {0}/endless {OLD}\ngood {0}/good {OLD}",
            receiver.origin
        );
        let trusted = format!("{},{closed}", receiver.origin);
        let more = [("VOICE_WEBHOOKS", text.as_str()), ("VOICE_WEBHOOK_TRUSTED_ORIGINS", &trusted), ("VOICE_WEBHOOK_TIMEOUT_MS", "600000")];
        let fixture = telling(on, &receiver, &[], &more).await;
        let begun = Instant::now();
        let ids = ten_sessions(&fixture).await;
        for path in ["/good", "/endless"] {
            eventually(SOON, async || ids.iter().all(|id| receiver.received(path, id, OLD).len() == 2)).await;
        }
        // A wait for a connection to the database that is not given back lasts a minute.
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!((1..=4).contains(&receiver.calls("/slow").len()), "it waits for the first ones");
    }

    async fn what_is_too_old_is_dropped_and_what_is_gone_too(on: Backend) {
        let receiver = Receiver::start();
        receiver.answer("/old", Answers::Status(503));
        receiver.answer("/gone", Answers::Status(410));
        for (endpoint, outcome, give_up) in [("old", "expired", "0.5"), ("gone", "gone", "600")] {
            let more = [("VOICE_WEBHOOK_GIVE_UP_SECONDS", give_up)];
            let fixture = telling(on, &receiver, &[(endpoint, OLD)], &more).await;
            fixture.start("user-1", "session-1").await;
            let line = format!(
                "voice_webhook_deliveries_total{{endpoint=\"{endpoint}\",outcome=\"{outcome}\",service=\"voice-gateway\"}} 1"
            );
            eventually(SOON, async || fixture.metrics().await.contains(&line)).await;
            assert_eq!(fixture.rows("voice_webhook_deliveries").await, 0);
        }
        assert_eq!(receiver.calls("/gone").len(), 1);
    }

    async fn a_start_that_fails_is_announced_to_no_endpoint(on: Backend) {
        let receiver = Receiver::start();
        let fixture = telling(on, &receiver, &[("one", OLD)], &[]).await;
        fixture.double.fail_next("CreateRoom", Fault::Unavailable, 2);
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        fixture.api.post("/v1/voice/session/start", &body).await.problem(503, "UNAVAILABLE");
        let started = fixture.start("user-1", "session-1").await;
        fixture.stop(&started.id).await;
        eventually(SOON, async || receiver.received("/one", &started.id, OLD).len() == 2).await;
        assert_eq!(receiver.calls("/one").len(), 2);
    }

    async fn what_a_process_leaves_is_sent_by_the_next(on: Backend) {
        let receiver = Receiver::start();
        receiver.answer("/one", Answers::Status(500));
        let fixture = telling(on, &receiver, &[("one", OLD)], &[]).await;
        let started = fixture.start("user-1", "session-1").await;
        eventually(SOON, async || !receiver.calls("/one").is_empty()).await;
        let (next, first) = (fixture.vars.clone(), fixture.gateway);
        assert!(first.stop().await);
        receiver.answer("/one", Answers::Status(200));
        let before = receiver.calls("/one").len();
        let _next = start_service::<ensemble_voice_gateway::VoiceGateway>(next).await;
        eventually(SOON, async || receiver.received("/one", &started.id, OLD).len() > before).await;
    }
}

#[test]
fn replicas_share_the_work_and_send_each_once() {
    run(async {
        let receiver = Receiver::start();
        let fixture = telling(Backend::Postgres, &receiver, &[("one", OLD)], &[]).await;
        let _other = fixture.replica().await;
        let mut ids = Vec::new();
        for number in 0..20 {
            let started = fixture.start(&format!("user-{number}"), "session-1").await;
            fixture.stop(&started.id).await;
            ids.push(started.id);
        }
        let received = async || receiver.calls("/one").len();
        eventually(SOON, async || received().await >= 40).await;
        eventually(SOON, async || fixture.rows("voice_webhook_deliveries").await == 0).await;
        assert_eq!(received().await, 40);
        assert!(ids.iter().all(|id| receiver.received("/one", id, OLD).len() == 2));
    });
}

#[test]
fn addresses_that_lead_inside_are_refused_and_no_secret_is_shown() {
    let refusal = |text: &str| {
        use ensemble_chassis::{Service, Vars};
        let mut vars = Vars::from_pairs([("VOICE_WEBHOOKS", text)]);
        ensemble_voice_gateway::VoiceGateway::configure(&mut vars);
        vars.finish().unwrap_err().to_string()
    };
    for bad in ["http://hooks.example.com", "https://10.0.0.1", "https://localhost", "https://[::1]/x"] {
        let said = refusal(&format!("one {bad} {OLD}"));
        assert!(said.contains("VOICE_WEBHOOKS") && said.contains("https with a public name"), "{said}");
        assert!(!said.contains("whsec_M") && !said.contains("one"), "{said}");
    }
}
