//! A caller's short answers do not wait for each other.

use ensemble_testkit::{Backend, SOON, eventually, run};
use serde_json::json;
use tokio_postgres::NoTls;

use crate::fixture::{Fixture, RUNS, number, task};

/// Lists whose statements wait for a lock.
const LISTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND query LIKE '%cancel_reason%'";

/// A caller has one long answer made at a time. A page of a list is seldom long. Not on SQLite, where nothing can be locked.
#[test]
fn short_lists_of_a_caller_do_not_wait_for_each_other() {
    run(async {
        let fixture = Fixture::with(Backend::Postgres, &[("DATABASE_POOL_SIZE", "4")]).await;
        fixture.submit(json!([task("x")])).await;
        let (mut client, connection) = tokio_postgres::connect(&fixture.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let holder = client.transaction().await.unwrap();
        holder.batch_execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let lists = [RUNS.to_owned(), format!("{RUNS}?status=active")].map(|path| {
            let api = fixture.api.clone();
            tokio::spawn(async move { api.get(&path).await })
        });
        eventually(SOON, async || number(&fixture, LISTING).await == 2).await;
        holder.rollback().await.unwrap();
        for list in lists {
            let page = list.await.unwrap().expect(200);
            assert_eq!(page["runs"].as_array().unwrap().len(), 1);
        }
    });
}

/// Long pages are made one after the other, and hold what is on them.
#[test]
fn a_long_list_of_runs_is_whole() {
    run(async {
        let fixture = Fixture::new(Backend::Postgres).await;
        let title = "\u{1F40E}".repeat(256);
        for _ in 0..100 {
            fixture.submit_run(json!({ "title": title, "tasks": [task("x")] })).await;
        }
        let path = format!("{RUNS}?limit=100");
        let lists = futures_util::future::join_all((0..4).map(|_| fixture.api.get(&path))).await;
        for list in lists {
            let page = list.expect(200);
            assert_eq!(page["runs"].as_array().unwrap().len(), 100);
            assert!(page["runs"].as_array().unwrap().iter().all(|run| run["title"] == title.as_str()));
        }
    });
}
