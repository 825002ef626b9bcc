//! A caller's short answers do not wait for each other.

use ensemble_testkit::{Backend, SOON, eventually, run, sql};
use tokio_postgres::NoTls;

use crate::{Fixture, draft};

/// Lists whose statements wait for a lock.
const LISTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND query LIKE '%daemon_state%'";

/// A caller has one long answer made at a time. A page of a list is seldom long. Not on SQLite, where nothing can be locked.
#[test]
fn short_lists_of_a_caller_do_not_wait_for_each_other() {
    run(async {
        let fixture = Fixture::new(Backend::Postgres).await;
        let (_, api) = fixture.user();
        api.post("/v1/machines", &draft("m")).await.expect(201);
        let (mut client, connection) = tokio_postgres::connect(&fixture.database.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let holder = client.transaction().await.unwrap();
        holder.batch_execute("LOCK TABLE machines IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let lists = ["/v1/machines", "/v1/machines?limit=1"].map(|path| {
            let api = api.clone();
            tokio::spawn(async move { api.get(path).await })
        });
        eventually(SOON, async || sql::number(&fixture.database.url, LISTING).await == 2).await;
        holder.rollback().await.unwrap();
        for list in lists {
            let page = list.await.unwrap().expect(200);
            assert_eq!(page["machines"].as_array().unwrap().len(), 1);
        }
    });
}
