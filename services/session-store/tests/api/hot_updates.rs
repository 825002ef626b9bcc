//! An append and a heartbeat write to no index of their session's row.

use std::time::Duration;

use ensemble_testkit::{Backend, eventually, run};
use serde_json::json;
use uuid::Uuid;

use crate::fixture::{Fixture, messages};

const UPDATES: i64 = 200;

/// PostgreSQL counts them. SQLite writes to an index only what changes in it.
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
        let count = async |column: &str| {
            let sql = format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'sessions'");
            fixture.number(&sql).await
        };
        // A connection tells its counts when it is idle.
        eventually(Duration::from_secs(120), async || count("n_tup_upd").await >= UPDATES).await;
        let (all, hot) = (count("n_tup_upd").await, count("n_tup_hot_upd").await);
        // Some move to another page, because a row before them is still seen by somebody.
        assert!(hot * 10 >= all * 8, "{hot} of {all}");
    });
}
