//! What happens to a task writes to no index of its run's row.

use std::time::Duration;

use ensemble_testkit::{Backend, eventually, run};
use serde_json::json;

use crate::fixture::{Fixture, number, task};

const TASKS: usize = 100;

/// PostgreSQL counts them. SQLite writes to an index only what changes in it.
#[test]
fn the_life_of_a_task_is_hot_updates_of_its_run() {
    run(async {
        let fixture = Fixture::new(Backend::Postgres).await;
        let runner = fixture.runner();
        fixture.submit(json!(vec![task("x"); TASKS])).await;
        for _ in 0..TASKS {
            let lease = runner.lease_one().await;
            runner.heartbeat(&lease).await.expect(200);
            runner.complete(&lease).await;
        }
        let count = async |column: &str| {
            let sql = format!("SELECT {column} FROM pg_stat_user_tables WHERE relname = 'runs'");
            number(&fixture, &sql).await
        };
        // A grant, the start and the end of each. A connection tells its counts when it is idle.
        let updates = i64::try_from(3 * TASKS).unwrap();
        eventually(Duration::from_secs(120), async || count("n_tup_upd").await >= updates).await;
        let (all, hot) = (count("n_tup_upd").await, count("n_tup_hot_upd").await);
        // Some move to another page, because an open transaction still sees an older row.
        assert!(hot * 10 >= all * 8, "{hot} of {all}");
    });
}
