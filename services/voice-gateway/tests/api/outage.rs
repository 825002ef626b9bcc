//! LiveKit is away, slow, or does not know us: nothing is left behind, and nobody waits.

use std::time::{Duration, Instant};

use ensemble_livekit_double::{AgentPlan, Fault};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::stage::{Stage, Started, TIMEOUT};

fn wish() -> Value {
    json!({ "userId": "user-1", "sessionId": "session-1" })
}

on_both_databases! {
    async fn a_start_that_fails_leaves_nothing_behind(on: Backend) {
        let stage = Stage::new(on).await;
        stage.double.fail_next("CreateRoom", Fault::Unavailable, 2);
        let answer = stage.api.post_keyed("/v1/voice/session/start", "a-key-that-is-long", &wish()).await;
        answer.problem(503, "UNAVAILABLE");
        assert!(answer.header("retry-after").is_some());
        assert_eq!(stage.double.all_births(), 0);
        // The key is free again, and stands for the start that works.
        let started = Started::of(&stage.api.post_keyed("/v1/voice/session/start", "a-key-that-is-long", &wish()).await);
        assert!(stage.double.room(&started.room).is_some());
    }

    async fn one_hiccup_is_not_noticed(on: Backend) {
        let stage = Stage::new(on).await;
        for fault in [Fault::Unavailable, Fault::BadGateway] {
            stage.double.fail_next("CreateRoom", fault, 1);
            let started = stage.start("user-1", "session-1").await;
            assert!(stage.double.room(&started.room).is_some());
        }
    }

    async fn an_answer_that_is_lost_twice_leaves_no_room(on: Backend) {
        let stage = Stage::new(on).await;
        stage.double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_secs(1)), 2);
        stage.api.post("/v1/voice/session/start", &wish()).await.problem(503, "UNAVAILABLE");
        assert_eq!(stage.double.all_births(), 1);
        eventually(TIMEOUT, async || stage.double.rooms().is_empty()).await;
    }

    async fn an_answer_that_is_lost_once_makes_one_room_with_one_agent(on: Backend) {
        let stage = Stage::new(on).await;
        stage.double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_secs(1)), 1);
        let started = stage.start("user-1", "session-1").await;
        assert_eq!((stage.double.births(&started.room), stage.double.dispatches(&started.room)), (1, 1));
    }

    async fn a_wrong_secret_is_the_operators_business(on: Backend) {
        let stage = Stage::new(on).await;
        let calls = stage.double.calls("CreateRoom");
        stage.double.fail_next("*", Fault::PlainUnauthorized, 50);
        let problem = stage.api.post("/v1/voice/session/start", &wish()).await.problem(502, "UPSTREAM_ERROR");
        assert!(!problem.to_string().contains("eyJ"), "the refused token is in {problem}");
        assert_eq!(stage.double.calls("CreateRoom"), calls + 1, "repeating does not help");
        let internal = Api::new(&stage.gateway.internal_url());
        eventually(TIMEOUT, async || internal.get("/readyz").await.status == 503).await;
        stage.double.mend();
        eventually(TIMEOUT, async || internal.get("/readyz").await.status == 200).await;
    }

    async fn nobody_waits_for_a_livekit_that_is_away(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_CREATE_TIMEOUT_MS", "200"), ("VOICE_BREAKER_FAILURES", "4")]).await;
        let talk = stage.talking("user-9", "session-9").await;
        stage.double.fail_next("*", Fault::Hang(Duration::from_secs(5)), 10_000);
        eventually(TIMEOUT, async || {
            let answer = stage.api.post("/v1/voice/session/start", &wish()).await;
            answer.problem(503, "UNAVAILABLE")["detail"].as_str().unwrap().contains("is away")
        })
        .await;
        let mut took = Vec::new();
        for _ in 0..21 {
            let asked = Instant::now();
            let answer = stage.api.post("/v1/voice/session/start", &wish()).await;
            took.push(asked.elapsed());
            answer.problem(503, "UNAVAILABLE");
            assert!(answer.header("retry-after").is_some());
        }
        // Of each: a machine that does something else for a moment is none of the gateway's doing.
        took.sort_unstable();
        assert!(took[10] < Duration::from_millis(100), "{took:?}");
        assert!(stage.metrics().await.contains("voice_starts_total{outcome=\"livekit_away\""));
        // Texts queue, stop is accepted, status says that it is not confirmed.
        assert_eq!(stage.text(&talk.id, "later").await["delivery"], "queued");
        assert_eq!(stage.status(&talk.id).await["live"], false);
        let stopping = stage.stop(&talk.id).await;
        assert_eq!((&stopping["state"], &stopping["endReason"]), (&json!("stopping"), &json!("stop_requested")));
        stage.double.mend();
        stage.ends(&talk.id, "stopped", "stop_requested").await;
        stage.room_goes(&talk.room).await;
        eventually(TIMEOUT, async || stage.api.post("/v1/voice/session/start", &wish()).await.status == 200).await;
    }

    async fn a_livekit_that_hangs_is_not_waited_for_longer_than_callers_do(on: Backend) {
        // What an operator has who sets nothing: two attempts, in all less than five seconds.
        let stage = Stage::with(on, &[("VOICE_CREATE_TIMEOUT_MS", "3000")]).await;
        stage.double.fail_next("CreateRoom", Fault::Hang(Duration::from_secs(60)), 2);
        let asked = Instant::now();
        stage.api.post("/v1/voice/session/start", &wish()).await.problem(503, "UNAVAILABLE");
        assert!(asked.elapsed() < Duration::from_secs(6), "two whole attempts would take this long");
        assert_eq!(stage.double.calls("CreateRoom"), 2);
    }

    async fn deleting_goes_on_until_it_is_confirmed(on: Backend) {
        let stage = Stage::new(on).await;
        let started = stage.start("user-1", "session-1").await;
        stage.double.fail_next("DeleteRoom", Fault::Unavailable, 3);
        assert_eq!(stage.stop(&started.id).await["state"], "stopping");
        stage.ends(&started.id, "stopped", "stop_requested").await;
        assert!(stage.double.room(&started.room).is_none());
    }

    async fn a_failing_start_does_not_end_the_conversation_before_it(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        stage.double.fail_next("CreateRoom", Fault::Unavailable, 2);
        stage.api.post("/v1/voice/session/start", &wish()).await.problem(503, "UNAVAILABLE");
        assert_eq!(stage.status(&talk.id).await["state"], "active");
    }

    async fn the_watchdog_does_not_count_what_it_could_not_see(on: Backend) {
        let stage = Stage::with(on, &[("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "0.3"), ("VOICE_BREAKER_FAILURES", "100000")]).await;
        stage.double.plan_agents(AgentPlan { workers: false, ..AgentPlan::default() });
        let started = stage.start("user-1", "session-1").await;
        stage.double.fail_next("ListParticipants", Fault::Unavailable, 12);
        stage.ends(&started.id, "error", "agent_unavailable").await;
        assert_eq!(stage.double.dispatches(&started.room), 4, "one by CreateRoom and three by the watchdog");
    }
}
