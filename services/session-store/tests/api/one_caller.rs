//! A caller whose requests all wait does not make others wait.

use ensemble_testkit::{Backend, SOON, eventually, run};
use serde_json::json;
use tokio_postgres::NoTls;

use crate::fixture::Fixture;

/// More than there are connections.
const REQUESTS: usize = 40;

/// Those whose statements wait for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Not on SQLite, where there is one connection that writes.
#[test]
fn a_caller_does_not_hold_all_connections() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[("DATABASE_POOL_SIZE", "4")]).await;
        let (busy, other) = (fixture.client(), fixture.client());
        let session = busy.session().await;
        let (mut client, connection) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let holder = client.transaction().await.unwrap();
        holder.batch_execute("SELECT * FROM sessions FOR UPDATE").await.unwrap();
        let path = format!("/v1/sessions/{session}");
        for _ in 0..REQUESTS {
            let (api, path) = (busy.api.clone(), path.clone());
            tokio::spawn(async move { api.patch(&path, &json!({ "archived": true })).await });
        }
        eventually(SOON, async || fixture.number(WAITING).await == 2).await;
        for _ in 0..5 {
            other.api.get("/v1/sessions").await.expect(200);
        }
        holder.rollback().await.unwrap();
        assert_eq!(busy.api.patch(&path, &json!({ "archived": true })).await.expect(200)["archived"], true);
    });
}

/// A caller has one long answer made at a time. A page of a list is seldom long.
#[test]
fn short_lists_of_a_caller_do_not_wait_for_each_other() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[("DATABASE_POOL_SIZE", "4")]).await;
        let caller = fixture.client();
        caller.session().await;
        let (mut client, connection) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let holder = client.transaction().await.unwrap();
        holder.batch_execute("LOCK TABLE session_contents IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let lists = ["/v1/sessions", "/v2/sessions/active"].map(|path| {
            let api = caller.api.clone();
            tokio::spawn(async move { api.get(path).await })
        });
        eventually(SOON, async || fixture.number(WAITING).await == 2).await;
        holder.rollback().await.unwrap();
        for list in lists {
            let page = list.await.unwrap().expect(200);
            assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
        }
    });
}
