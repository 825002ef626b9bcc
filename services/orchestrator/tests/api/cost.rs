//! What things cost the database: as much for a task of a large run as for one of a small one, and next to nothing while
//! nothing happens. Counted by PostgreSQL itself.

use std::time::{Duration, Instant};

use ensemble_testkit::{Backend, run};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::world::{Runner, World, task};

/// Statements and rows so far, but for those of the test's own connection.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Index and table scans: what has been looked at.
    rows_read: i64,
    rows_changed: i64,
    transactions: i64,
}

async fn look(database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.expect("the database is there");
    tokio::spawn(connection);
    client
}

/// Waits until the servers of the service have told what they did: they do it when they have been idle for a second.
async fn spent(client: &Client) -> Spent {
    let mut last: Option<(i64, Instant)> = None;
    let began = Instant::now();
    loop {
        client.batch_execute("SELECT pg_stat_clear_snapshot()").await.expect("statistics");
        let row = client
            .query_one(
                "SELECT (SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables), \
                 (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables), \
                 (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database())",
                &[],
            )
            .await
            .expect("statistics");
        let found = Spent { rows_read: row.get(0), rows_changed: row.get(1), transactions: row.get(2) };
        match last {
            Some((changed, since)) if changed == found.rows_changed => {
                if since.elapsed() > Duration::from_millis(2_500) {
                    return found;
                }
            }
            _ => last = Some((found.rows_changed, Instant::now())),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the statistics do not settle");
        tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await.unwrap_err();
    }
}

/// Pairs: the second of each waits for the first.
fn pairs(count: usize) -> Value {
    let tasks = (0..count).map(|at| {
        let names: Vec<String> = (at % 2 == 1).then(|| (at - 1).to_string()).into_iter().collect();
        json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
    });
    tasks.collect()
}

/// Leases and finishes so many tasks, one by one.
async fn step(runner: &Runner, count: usize) {
    for _ in 0..count {
        let lease = runner.one().await;
        runner.complete(&lease).await;
    }
}

/// What `count` tasks of a run of `size` cost, each leased and finished alone.
async fn cost(size: usize, count: usize) -> Spent {
    let world = World::new(Backend::Postgres).await;
    world.submit(pairs(size)).await;
    let runner = world.runner();
    step(&runner, 10).await;
    let client = look(&world.database.url).await;
    let before = spent(&client).await;
    step(&runner, count).await;
    let after = spent(&client).await;
    Spent {
        rows_read: after.rows_read - before.rows_read,
        rows_changed: after.rows_changed - before.rows_changed,
        transactions: after.transactions - before.transactions,
    }
}

#[test]
fn a_task_of_a_large_run_costs_as_much_as_one_of_a_small_run() {
    run(async {
        let (small, large) = (cost(100, 80).await, cost(10_000, 80).await);
        let close = |a: i64, b: i64| (a - b).abs() * 10 <= a.max(b);
        assert!(close(small.rows_changed, large.rows_changed), "{small:?} {large:?}");
        assert!(close(small.rows_read, large.rows_read), "{small:?} {large:?}");
    });
}

#[test]
fn an_idle_service_leaves_its_database_alone() {
    run(async {
        let world = World::new(Backend::Postgres).await;
        // Active runs of the account that wait for a provider that no runner has, and of others.
        for at in 0..100 {
            let owner = if at % 2 == 0 { world.api.clone() } else { world.stranger() };
            let tasks = vec![json!({ "prompt": "x", "provider": "gemini" })];
            owner.post(crate::world::RUNS, &json!({ "tasks": tasks })).await.expect(201);
        }
        let runners: Vec<Runner> = (0..100).map(|_| world.runner()).collect();
        let waiting: Vec<_> = runners
            .into_iter()
            .map(|runner| {
                tokio::spawn(async move {
                    let body = json!({ "machineId": runner.id, "providers": ["claude"], "capacity": 1, "waitMs": 60_000 });
                    runner.api.post(crate::world::LEASES, &body).await
                })
            })
            .collect();
        let client = look(&world.database.url).await;
        // Until all are waiting and the first sweep is over.
        spent(&client).await;
        let (before, began) = (spent(&client).await, Instant::now());
        tokio::time::timeout(Duration::from_secs(12), std::future::pending::<()>()).await.unwrap_err();
        let (after, took) = (spent(&client).await, began.elapsed());
        // Our own looking is among these: five questions a second while it waits for the numbers to settle.
        let rate = (after.transactions - before.transactions) as f64 / took.as_secs_f64();
        assert!(rate < 5.0, "{rate} transactions a second");
        for task in waiting {
            task.abort();
        }
        let lease = tokio::spawn({ let runner = world.runner(); async move { runner.one().await } });
        world.submit(json!([task("a")])).await;
        lease.await.unwrap();
    });
}
