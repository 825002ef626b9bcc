//! Far from all limits a start is recorded by one call to PostgreSQL. It must mean the same as the careful way, which the
//! other tests take: their gateways have just begun, and do not know the database's time.

use ensemble_testkit::*;
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::stage::{Stage, Started};

/// A gateway that has recorded a session before.
async fn warm(on: Backend, more: &[(&str, &str)]) -> Stage {
    let stage = Stage::with(on, more).await;
    let other = stage.start("somebody-else", "session").await;
    stage.stop(&other.id).await;
    stage
}

/// How many calls were made to the database to record sessions at once.
async fn calls(stage: &Stage) -> u64 {
    let metrics = stage.metrics().await;
    let count = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok());
    let ours = |line: &&str| {
        line.starts_with("ensemble_db_operation_duration_seconds_count{") && line.contains("in one call\"")
    };
    metrics.lines().filter(ours).filter_map(count).sum()
}

/// How long a session may last.
fn granted(status: &Value) -> u64 {
    let at = |field: &str| status[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    at("expiresAt").since(at("createdAt")).as_secs()
}

async fn start(stage: &Stage, key: &str, session: &str) -> Answer {
    let body = json!({ "userId": "user-1", "sessionId": session });
    stage.api.post_keyed("/v1/voice/session/start", key, &body).await
}

on_both_databases! {
    async fn it_is_taken_where_there_is_one(on: Backend) {
        let stage = warm(on, &[]).await;
        let before = calls(&stage).await;
        let started = stage.start("user-1", "session-1").await;
        assert_eq!(calls(&stage).await - before, u64::from(on == Backend::Postgres));
        let status = stage.status(&started.id).await;
        assert_eq!((&status["state"], &status["userId"]), (&json!("starting"), &json!("user-1")));
        assert_eq!(status["expiresAt"], started.body["expiresAt"]);
        assert_eq!(granted(&status), 3_600);
    }

    async fn it_counts_exactly(on: Backend) {
        let stage = warm(on, &[("VOICE_MAX_SESSIONS_PER_USER", "2")]).await;
        let keys: Vec<String> = (0..8).map(|number| format!("a-key-of-16-or-more-{number}")).collect();
        let answers = futures_util::future::join_all(keys.iter().map(|key| start(&stage, key, key))).await;
        let answers: Vec<Value> = answers.iter().map(|answer| answer.expect(200)).collect();
        assert_eq!(answers.iter().filter(|answer| answer["allowed"] == true).count(), 2, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer["reason"] == "user_sessions").count(), 6, "{answers:?}");
        assert_eq!(stage.double.all_births(), 3, "with the first one of somebody else");
    }

    async fn what_is_left_of_the_day_bounds_a_session(on: Backend) {
        for (day, expected) in [("100", 60), ("50", 50)] {
            let limits = [("VOICE_DAILY_SECONDS_PER_USER", day), ("VOICE_MAX_SESSION_SECONDS", "60")];
            let stage = warm(on, &limits).await;
            let started = stage.start("user-1", "session-1").await;
            assert_eq!(granted(&stage.status(&started.id).await), expected, "of {day} s");
        }
    }

    async fn one_key_opens_one_room(on: Backend) {
        let stage = warm(on, &[]).await;
        let key = "a-key-of-16-or-more";
        let (first, second) = tokio::join!(start(&stage, key, "session-1"), start(&stage, key, "session-1"));
        let (first, second) = (Started::of(&first), Started::of(&second));
        assert_eq!((&first.id, &first.room), (&second.id, &second.room));
        let third = Started::of(&start(&stage, key, "session-1").await);
        assert_eq!(third.id, first.id);
        start(&stage, key, "session-2").await.problem(409, "IDEMPOTENCY_MISMATCH");
        assert_eq!(stage.double.all_births(), 2, "with the first one of somebody else");
    }

    async fn the_second_start_replaces_the_first(on: Backend) {
        let stage = warm(on, &[]).await;
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let again = || stage.api.post("/v1/voice/session/start", &body);
        let first = Started::of(&again().await);
        let second = Started::of(&again().await);
        stage.ends(&first.id, "stopped", "replaced").await;
        stage.room_goes(&first.room).await;
        assert_eq!(stage.status(&second.id).await["state"], "starting");
    }

    async fn its_context_reaches_the_agent(on: Backend) {
        let stage = warm(on, &[]).await;
        let large = "x".repeat(40_000);
        let body = json!({ "userId": "user-1", "sessionId": "session-1", "initialContextPayload": { "file": large } });
        let started = Started::of(&stage.api.post("/v1/voice/session/start", &body).await);
        let delivered = |status: &Value| status["pending"]["deliveredContextVersion"] == 1;
        stage.status_becomes(&started.id, delivered).await;
    }
}

/// A call whose answer was lost is made again, without anybody knowing whether it was carried out.
#[test]
fn repeated_it_finds_what_it_did() {
    ensemble_testkit::run(async {
        let database =
            TestDatabase::new(Backend::Postgres, "voice-gateway", ensemble_voice_gateway::migrations()).await;
        let psql = postgres::program("psql").unwrap();
        let open = |created_at: &str, repeated: bool| {
            let call = format!(
                "SELECT opened, replaces FROM voice_open(1, 'user', 'session', 0, 5, 700, 9223372036854775807,
                 9223372036854775807, 'the-key-of-the-caller', 'a-route', 'digest',
                 '01890a5d-ac96-774b-bcce-b302099a8057', 'voice_1', '{{}}', {created_at}, now() + interval '1 hour',
                 now() + interval '15 s', 'token', 1, '{{}}', {repeated})"
            );
            let output = std::process::Command::new(&psql).args(["-At", &database.url, "-c", &call]).output().unwrap();
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(open("now() - interval '1 s'", false), "f|f\n", "a wrong idea of the time");
        assert_eq!(open("now()", true), "t|f\n", "repeated, and it had not been carried out");
        assert_eq!(open("now() - interval '1 s'", true), "t|t\n", "repeated, and it had been");
        assert_eq!(open("now()", false), "f|t\n", "another start with the same key");
    });
}
