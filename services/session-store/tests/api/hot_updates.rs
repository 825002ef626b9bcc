//! Appends and heartbeats write to no index of their session's row. Only the first append of a minute does, which moves the session in
//! lists.

use std::time::Duration;

use ensemble_testkit::{Backend, eventually, run};
use serde_json::json;
use uuid::Uuid;

use crate::fixture::{Fixture, messages};

const UPDATES: i64 = 200;
const MINUTES: i64 = 20;

/// All updates of sessions, and those that wrote to no index. PostgreSQL counts them. SQLite writes to an index only what changes in it.
async fn updates(fixture: &Fixture, expected: i64) -> (i64, i64) {
    let count = async |column: &str| {
        let sql = format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'sessions'");
        fixture.number(&sql).await
    };
    // A connection tells its counts when it is idle.
    eventually(Duration::from_secs(120), async || count("n_tup_upd").await >= expected).await;
    (count("n_tup_upd").await, count("n_tup_hot_upd").await)
}

#[test]
fn appends_and_heartbeats_are_hot_updates() {
    run(async {
        let fixture = Fixture::start(Backend::Postgres).await;
        let owner = fixture.client();
        let machine = fixture.anonymous().with_token(&fixture.peers.issuer().machine(owner.id, &owner.machine));
        let made = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        let session = made["id"].as_str().unwrap().to_owned();
        let beat = json!({ "heartbeat": { "thinking": true, "hostId": Uuid::from_bytes([1; 16]) } });
        for number in 0..UPDATES / 2 {
            let message = json!({ "content": "content", "localId": format!("message-{number}"), "keyEpoch": 1 });
            owner.api.post(&messages(&session), &message).await.expect(201);
            machine.patch(&format!("/v1/sessions/{session}"), &beat).await.expect(200);
        }
        let (all, hot) = updates(&fixture, UPDATES).await;
        // Some move to another page, because an open transaction still sees an older row.
        assert!(hot * 10 >= all * 8, "{hot} of {all}");
    });
}

#[test]
fn the_first_append_of_a_minute_is_not_a_hot_update() {
    run(async {
        let fixture = Fixture::start(Backend::Postgres).await;
        let owner = fixture.client();
        let session = owner.session().await;
        for minute in 0..MINUTES {
            // It is not a hot update itself.
            fixture.execute("UPDATE sessions SET updated_at = updated_at - interval '1 hour'").await;
            for number in 0..3 {
                owner.append(&session, &format!("message-{minute}-{number}"), "content").await;
            }
        }
        let (all, hot) = updates(&fixture, 4 * MINUTES).await;
        assert_eq!(all, 4 * MINUTES);
        assert!(hot <= 2 * MINUTES, "{hot} of {all}: the first one of each minute writes to the indexes");
        assert!(hot * 10 >= 2 * MINUTES * 8, "{hot} of {all}: the others of a minute do not");
    });
}
