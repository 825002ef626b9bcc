//! LiveKit is unavailable, slow, or refuses our key: no room is left, and callers do not wait.

use std::time::{Duration, Instant};

use ensemble_doubles::livekit::{AgentPlan, Fault};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started};

fn body() -> Value {
    json!({ "userId": "user-1", "sessionId": "session-1" })
}

on_both_databases! {
    async fn a_start_that_fails_leaves_nothing_behind(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.fail_next("CreateRoom", Fault::Unavailable, 2);
        let answer = fixture.api.post_keyed("/v1/voice/session/start", "a-key-that-is-long", &body()).await;
        answer.problem(503, "UNAVAILABLE");
        assert!(answer.header("retry-after").is_some());
        assert_eq!(fixture.double.created_rooms().len(), 0);
        // The key is free again, and stands for the start that works.
        let started = Started::of(&fixture.api.post_keyed("/v1/voice/session/start", "a-key-that-is-long", &body()).await);
        assert!(fixture.double.room(&started.room).is_some());
    }

    async fn one_failed_call_is_retried(on: Backend) {
        let fixture = Fixture::new(on).await;
        for fault in [Fault::Unavailable, Fault::BadGateway] {
            fixture.double.fail_next("CreateRoom", fault, 1);
            let started = fixture.start("user-1", "session-1").await;
            assert!(fixture.double.room(&started.room).is_some());
        }
    }

    async fn an_answer_that_is_lost_twice_leaves_no_room(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_millis(100)), 2);
        fixture.api.post("/v1/voice/session/start", &body()).await.problem(503, "UNAVAILABLE");
        assert_eq!(fixture.double.created_rooms().len(), 1);
        eventually(SOON, async || fixture.double.rooms().is_empty()).await;
    }

    async fn an_answer_that_is_lost_once_creates_one_room_with_one_agent(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_millis(100)), 1);
        let started = fixture.start("user-1", "session-1").await;
        assert_eq!((fixture.double.times_created(&started.room), fixture.double.dispatches(&started.room)), (1, 1));
    }

    async fn a_wrong_secret_fails_readiness(on: Backend) {
        let fixture = Fixture::new(on).await;
        let calls = fixture.double.calls("CreateRoom");
        fixture.double.fail_next("*", Fault::PlainUnauthorized, 50);
        let problem = fixture.api.post("/v1/voice/session/start", &body()).await.problem(502, "UPSTREAM_ERROR");
        assert!(!problem.to_string().contains("eyJ"), "the refused token is in {problem}");
        assert_eq!(fixture.double.calls("CreateRoom"), calls + 1, "repeating does not help");
        let internal = Api::new(&fixture.gateway.internal_url());
        eventually(SOON, async || internal.get("/readyz").await.status == 503).await;
        fixture.double.clear_faults();
        eventually(SOON, async || internal.get("/readyz").await.status == 200).await;
    }

    async fn starts_are_refused_at_once_while_livekit_is_unavailable(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_CREATE_TIMEOUT_MS", "200"), ("VOICE_LIST_TIMEOUT_MS", "500"), ("VOICE_DELIVERY_TIMEOUT_MS", "100"), ("VOICE_BREAKER_FAILURES", "4")]).await;
        let talk = fixture.talking("user-9", "session-9").await;
        fixture.double.fail_next("*", Fault::Hang(Duration::from_secs(5)), 10_000);
        eventually(SOON, async || {
            let answer = fixture.api.post("/v1/voice/session/start", &body()).await;
            answer.problem(503, "UNAVAILABLE")["detail"].as_str().unwrap().contains("is unavailable")
        })
        .await;
        let calls = fixture.double.calls("CreateRoom");
        for _ in 0..21 {
            let answer = fixture.api.post("/v1/voice/session/start", &body()).await;
            answer.problem(503, "UNAVAILABLE");
            assert!(answer.header("retry-after").is_some());
        }
        assert_eq!(fixture.double.calls("CreateRoom"), calls, "none of them asked LiveKit");
        assert!(fixture.metrics().await.contains("voice_starts_total{outcome=\"livekit_away\""));
        // Texts are queued, stop is accepted, and the status is not confirmed.
        assert_eq!(fixture.text(&talk.id, "later").await["delivery"], "queued");
        assert_eq!(fixture.status(&talk.id).await["live"], false);
        let stopping = fixture.stop(&talk.id).await;
        assert_eq!((&stopping["state"], &stopping["endReason"]), (&json!("stopping"), &json!("stop_requested")));
        fixture.double.clear_faults();
        fixture.ends(&talk.id, "stopped", "stop_requested").await;
        fixture.room_goes(&talk.room).await;
        eventually(SOON, async || fixture.api.post("/v1/voice/session/start", &body()).await.status == 200).await;
    }

    async fn a_start_does_not_wait_long_for_a_livekit_that_hangs(on: Backend) {
        let whole = Duration::from_secs(1);
        let more = [("VOICE_CREATE_TIMEOUT_MS", "1000"), ("VOICE_BREAKER_FAILURES", "100000")];
        let fixture = Fixture::with(on, &more).await;
        // A busy machine makes a start slower. None would be as fast as this with two whole attempts.
        eventually(SOON, async || {
            let calls = fixture.double.calls("CreateRoom");
            fixture.double.fail_next("CreateRoom", Fault::Hang(Duration::from_secs(60)), 2);
            let asked = Instant::now();
            fixture.api.post("/v1/voice/session/start", &body()).await.problem(503, "UNAVAILABLE");
            assert_eq!(fixture.double.calls("CreateRoom"), calls + 2);
            asked.elapsed() < 2 * whole
        })
        .await;
    }

    async fn deletion_is_retried_until_it_is_confirmed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let started = fixture.start("user-1", "session-1").await;
        fixture.double.fail_next("DeleteRoom", Fault::Unavailable, 3);
        assert_eq!(fixture.stop(&started.id).await["state"], "stopping");
        fixture.ends(&started.id, "stopped", "stop_requested").await;
        assert!(fixture.double.room(&started.room).is_none());
    }

    async fn a_failing_start_does_not_end_the_conversation_before_it(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.fail_next("CreateRoom", Fault::Unavailable, 2);
        fixture.api.post("/v1/voice/session/start", &body()).await.problem(503, "UNAVAILABLE");
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
    }

    async fn the_watchdog_does_not_count_what_it_could_not_see(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "0.1"), ("VOICE_BREAKER_FAILURES", "100000")]).await;
        fixture.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = fixture.start("user-1", "session-1").await;
        fixture.double.fail_next("ListParticipants", Fault::Unavailable, 12);
        fixture.ends(&started.id, "error", "agent_unavailable").await;
        assert_eq!(fixture.double.dispatches(&started.room), 4, "one by CreateRoom and three by the watchdog");
    }
}
