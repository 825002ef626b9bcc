//! A start over a limit is not an error: it is answered with `allowed: false` and the reason.

use std::time::Duration;

use ensemble_doubles::livekit::Fault;
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::person::Person;

async fn ask(fixture: &Fixture, user: &str, session: &str) -> Value {
    let body = json!({ "userId": user, "sessionId": session });
    fixture.api.post("/v1/voice/session/start", &body).await.expect(200)
}

fn refused(body: &Value, reason: &str) {
    assert_eq!((&body["allowed"], &body["reason"]), (&json!(false), &json!(reason)), "{body}");
    for field in ["gatewaySessionId", "roomName", "roomUrl", "participantIdentity", "participantToken", "expiresAt"] {
        assert_eq!(body.get(field), Some(&Value::Null), "{field} of {body}");
    }
}

on_both_databases! {
    async fn sessions_of_one_user_are_counted_exactly(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS_PER_USER", "2")]).await;
        let asked = ["a", "b", "c", "d", "e", "f"].map(|session| ask(&fixture, "user-1", session));
        let answers = futures_util::future::join_all(asked).await;
        let allowed: Vec<&Value> = answers.iter().filter(|answer| answer["allowed"] == true).collect();
        assert_eq!((allowed.len(), fixture.double.created_rooms().len()), (2, 2));
        answers.iter().filter(|answer| answer["allowed"] == false).for_each(|answer| refused(answer, "user_sessions"));
        // A start that replaces a session does not add one.
        let first = answers.iter().position(|answer| answer["allowed"] == true).unwrap();
        assert_eq!(ask(&fixture, "user-1", ["a", "b", "c", "d", "e", "f"][first]).await["allowed"], true);
        assert_eq!(ask(&fixture, "user-2", "a").await["allowed"], true);
    }

    async fn all_sessions_are_counted_exactly(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS", "3")]).await;
        let users: Vec<String> = (0..8).map(|number| format!("user-{number}")).collect();
        let answers = futures_util::future::join_all(users.iter().map(|user| ask(&fixture, user, "s"))).await;
        assert_eq!(answers.iter().filter(|answer| answer["allowed"] == true).count(), 3);
        answers.iter().filter(|answer| answer["allowed"] == false).for_each(|answer| refused(answer, "total_sessions"));
    }

    async fn what_others_begin_in_a_users_name_does_not_bound_the_user(on: Backend) {
        let limits = [("VOICE_MAX_SESSIONS_PER_USER", "2"), ("VOICE_STARTS_PER_MINUTE_PER_USER", "3"), ("VOICE_STARTS_PER_MINUTE_PER_KEY", "3"),
            ("VOICE_DAILY_SECONDS_PER_USER", "600"), ("VOICE_MAX_SESSION_SECONDS", "250")];
        let fixture = Fixture::with(on, &limits).await;
        let alice = Person::new(&fixture);
        let name = alice.id.to_string();
        for session in ["x", "y"] {
            assert_eq!(ask(&fixture, &name, session).await["allowed"], true);
        }
        refused(&ask(&fixture, &name, "z").await, "user_sessions");
        refused(&ask(&fixture, &name, "z").await, "rate_limited");
        // Sessions, seconds and starts of her own are all there. In her own name she is bounded as ever.
        alice.start("a").await;
        alice.start("b").await;
        let more = async || alice.post("/v1/voice/session/start", &json!({ "userId": name, "sessionId": "c" })).await.expect(200);
        refused(&more().await, "user_sessions");
        refused(&more().await, "rate_limited");
    }

    async fn seconds_that_others_use_in_a_users_name_are_not_the_users(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DAILY_SECONDS_PER_USER", "600")]).await;
        let alice = Person::new(&fixture);
        let name = alice.id.to_string();
        let claimed = fixture.talking(&name, "a").await;
        fixture.pass(Duration::from_secs(600)).await;
        let status = fixture.ends(&claimed.id, "stopped", "expired").await;
        assert!(status["durationSeconds"].as_u64().unwrap() >= 600, "{status}");
        refused(&ask(&fixture, &name, "b").await, "user_daily_seconds");
        // Her own seconds are all there.
        let status = fixture.status(&alice.start("b").await.id).await;
        let at = |name: &str| status[name].as_str().unwrap().parse::<ensemble_types::time::Timestamp>().unwrap();
        assert_eq!(at("expiresAt").since(at("createdAt")).as_secs(), 600, "{status}");
    }

    async fn users_that_are_only_named_leave_room_for_those_who_signed_in(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS", "4")]).await;
        let users: Vec<String> = (0..8).map(|number| format!("user-{number}")).collect();
        let answers = futures_util::future::join_all(users.iter().map(|user| ask(&fixture, user, "s"))).await;
        assert_eq!(answers.iter().filter(|answer| answer["allowed"] == true).count(), 3);
        answers.iter().filter(|answer| answer["allowed"] == false).for_each(|answer| refused(answer, "total_sessions"));
        let (alice, bob) = (Person::new(&fixture), Person::new(&fixture));
        alice.start("s").await;
        let full = bob.post("/v1/voice/session/start", &json!({ "userId": bob.id, "sessionId": "s" })).await.expect(200);
        refused(&full, "total_sessions");
    }

    async fn a_refused_start_does_not_use_up_its_key(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_MAX_SESSIONS_PER_USER", "1")]).await;
        let open = fixture.start("user-1", "a").await;
        let body = json!({ "userId": "user-1", "sessionId": "b" });
        let again = || fixture.api.post_keyed("/v1/voice/session/start", "a-key-that-is-long", &body);
        refused(&again().await.expect(200), "user_sessions");
        fixture.stop(&open.id).await;
        assert_eq!(again().await.expect(200)["allowed"], true);
    }

    async fn seconds_of_a_day_run_out(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DAILY_SECONDS_PER_USER", "600")]).await;
        let talk = fixture.talking("user-1", "a").await;
        // What is left of the day bounds the session.
        fixture.pass(Duration::from_secs(600)).await;
        fixture.ends(&talk.id, "stopped", "expired").await;
        refused(&ask(&fixture, "user-1", "b").await, "user_daily_seconds");
        assert_eq!(ask(&fixture, "user-2", "b").await["allowed"], true);
    }

    async fn two_sessions_at_once_share_the_seconds_that_are_left(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DAILY_SECONDS_PER_USER", "600"), ("VOICE_MAX_SESSION_SECONDS", "400"), ("VOICE_MAX_SESSIONS_PER_USER", "0")]).await;
        let seconds = |body: &Value| {
            let expires: ensemble_types::time::Timestamp = body["expiresAt"].as_str().unwrap().parse().unwrap();
            expires
        };
        let first = fixture.start("user-1", "a").await;
        let second = ask(&fixture, "user-1", "b").await;
        // 400 of 600 seconds are granted to the first one, so 200 are left.
        let apart = seconds(&first.body).since(seconds(&second)).as_secs();
        assert!((100..=200).contains(&apart), "{apart}: {second}");
        refused(&ask(&fixture, "user-1", "c").await, "user_daily_seconds");
        // What was granted and not used is left again.
        fixture.stop(&first.id).await;
        assert_eq!(ask(&fixture, "user-1", "c").await["allowed"], true);
        // A session that is replaced does not count with what it was granted.
        assert_eq!(ask(&fixture, "user-1", "c").await["allowed"], true);
    }

    async fn seconds_of_all_users_run_out(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_DAILY_SECONDS", "600"), ("VOICE_DAILY_SECONDS_UNPROVEN", "600")]).await;
        let talk = fixture.talking("user-1", "a").await;
        fixture.pass(Duration::from_secs(600)).await;
        fixture.ends(&talk.id, "stopped", "expired").await;
        refused(&ask(&fixture, "user-2", "b").await, "total_daily_seconds");
    }

    async fn too_many_starts_in_a_minute(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_STARTS_PER_MINUTE_PER_USER", "2")]).await;
        assert_eq!(ask(&fixture, "user-1", "a").await["allowed"], true);
        assert_eq!(ask(&fixture, "user-1", "a").await["allowed"], true);
        let third = ask(&fixture, "user-1", "a").await;
        refused(&third, "rate_limited");
        assert!(third["retryAfterSeconds"].as_u64().unwrap() >= 1);
        assert_eq!(ask(&fixture, "user-2", "a").await["allowed"], true);
    }

    async fn refused_starts_of_one_user_do_not_use_up_the_limit_of_the_key(on: Backend) {
        let limits = [("VOICE_STARTS_PER_MINUTE_PER_USER", "1"), ("VOICE_STARTS_PER_MINUTE_PER_KEY", "3")];
        let fixture = Fixture::with(on, &limits).await;
        assert_eq!(ask(&fixture, "user-1", "a").await["allowed"], true);
        for _ in 0..5 {
            refused(&ask(&fixture, "user-1", "a").await, "rate_limited");
        }
        assert_eq!(ask(&fixture, "user-2", "a").await["allowed"], true);
        assert_eq!(ask(&fixture, "user-3", "a").await["allowed"], true);
        refused(&ask(&fixture, "user-4", "a").await, "rate_limited");
    }

    async fn livekit_is_full(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.fail_next("CreateRoom", Fault::Twirp(429, "resource_exhausted"), 1);
        refused(&ask(&fixture, "user-1", "a").await, "capacity");
        assert_eq!(ask(&fixture, "user-1", "a").await["allowed"], true);
    }
}
