//! What operations cost the database: as much for a task of a large run as for a task of a small one, and almost nothing
//! while nothing happens. PostgreSQL counts the statements itself, in a server of its own.

use std::time::{Duration, Instant};

use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::{SOON, eventually, run};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

use crate::fixture::{Fixture, LEASES, RUNS, Runner, task};

/// Tasks whose cost is measured.
const COUNTED: usize = 80;

/// Statements, and the rows that they returned or changed.
#[derive(Clone, Copy, Debug)]
struct Spent {
    statements: i64,
    rows: i64,
}

struct Counting {
    cluster: Cluster,
    client: Client,
}

impl Counting {
    async fn start() -> Self {
        let start = || Cluster::start_with(Durability::None, &["shared_preload_libraries=pg_stat_statements"]);
        let cluster = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let (client, connection) = tokio_postgres::connect(&cluster.url("postgres"), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("CREATE EXTENSION pg_stat_statements").await.unwrap();
        Self { cluster, client }
    }

    /// A service on a new database with this name.
    async fn fixture(&self, database: &str) -> Fixture {
        self.client.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
        // Costs are counted, not timed, so that a slow machine is no failure.
        Fixture::at(self.cluster.url(database), &[("DATABASE_TIMEOUT_MS", "30000")]).await
    }

    /// What a database has spent so far, without the notifications: one carries all topics of a moment, so how many there are
    /// depends on the speed of the machine.
    async fn spent(&self, database: &str) -> Spent {
        let query = "SELECT COALESCE(sum(s.calls), 0)::bigint, COALESCE(sum(s.rows), 0)::bigint \
             FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1 AND s.query NOT LIKE '%pg_notify%'";
        let row = self.client.query_one(query, &[&database]).await.unwrap();
        Spent { statements: row.get(0), rows: row.get(1) }
    }
}

/// Tasks that each depend on the one before, so that every task except the last releases one other.
fn chain(count: usize) -> Value {
    let tasks = (0..count).map(|at| {
        let names: Vec<String> = at.checked_sub(1).map(|before| before.to_string()).into_iter().collect();
        json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
    });
    tasks.collect()
}

/// Leases and finishes `count` tasks, one by one.
async fn step(runner: &Runner, count: usize) {
    for _ in 0..count {
        let lease = runner.lease_one().await;
        runner.complete(&lease).await;
    }
}

/// What 80 tasks cost, each leased and finished alone, when the account has this many runs of this size.
async fn cost(counting: &Counting, database: &str, runs: usize, size: usize) -> Spent {
    let fixture = counting.fixture(database).await;
    for _ in 0..runs {
        fixture.submit(chain(size)).await;
    }
    let runner = fixture.runner();
    step(&runner, 10).await;
    let before = counting.spent(database).await;
    step(&runner, COUNTED).await;
    let after = counting.spent(database).await;
    let spent = Spent { statements: after.statements - before.statements, rows: after.rows - before.rows };
    println!("{COUNTED} tasks of {runs} runs of {size}: {spent:?}");
    spent
}

/// Equal within 10 %.
fn assert_same_cost(one: Spent, other: Spent) {
    let close = |a: i64, b: i64| (a - b).abs() * 10 <= a.max(b);
    assert!(close(one.statements, other.statements) && close(one.rows, other.rows), "{one:?} {other:?}");
}

#[test]
fn a_task_costs_as_much_in_a_large_run_and_among_many_runs_as_in_a_small_one() {
    run(async {
        let counting = Counting::start().await;
        let small = cost(&counting, "small", 1, 100).await;
        let large = cost(&counting, "large", 1, 1_000).await;
        assert_same_cost(small, large);
        let many = cost(&counting, "many", 100, 20).await;
        assert_same_cost(small, many);
        // Lease: look for waits, for work and for orders, begin, lock, find, write the task, the run and the lease, read, read what
        // was signed, commit. Finish: begin, lock, write the
        // lease and the task, find and write the dependents, write the run, commit. Some statements of the timers.
        assert!(large.statements / 80 <= 21, "{large:?}");
    });
}

/// The time over which an idle service is measured.
async fn pass(time: Duration) {
    let began = Instant::now();
    eventually(time * 2, async || began.elapsed() >= time).await;
}

#[test]
fn an_idle_service_leaves_its_database_alone() {
    run(async {
        let counting = Counting::start().await;
        let fixture = counting.fixture("idle").await;
        // Active runs for a provider that no runner has. Half of them belong to the account whose runners wait.
        for at in 0..100 {
            let owner = if at % 2 == 0 { fixture.api.clone() } else { fixture.other_account() };
            let tasks = vec![json!({ "prompt": "x", "provider": "gemini" })];
            owner.post(RUNS, &json!({ "tasks": tasks })).await.expect(201);
        }
        let runners: Vec<Runner> = (0..100).map(|_| fixture.runner()).collect();
        let waiting: Vec<_> = runners
            .into_iter()
            .map(|runner| {
                tokio::spawn(async move {
                    let body =
                        json!({ "machineId": runner.id, "providers": ["claude"], "capacity": 1, "waitMs": 60_000 });
                    runner.api.post(LEASES, &body).await
                })
            })
            .collect();
        // Wait until all runners wait and a sweep or two has passed.
        let (inside, connection) = tokio_postgres::connect(&counting.cluster.url("idle"), NoTls).await.unwrap();
        tokio::spawn(connection);
        eventually(SOON, async || {
            let known = inside.query_one("SELECT count(*) FROM runners", &[]).await.unwrap();
            known.get::<_, i64>(0) == 100
        })
        .await;
        drop(inside);
        pass(Duration::from_secs(8)).await;
        let (before, began) = (counting.spent("idle").await, Instant::now());
        pass(Duration::from_secs(15)).await;
        let (after, took) = (counting.spent("idle").await, began.elapsed());
        let rate = (after.statements - before.statements) as f64 / took.as_secs_f64();
        println!("idle with 100 active runs and 100 waiting runners: {rate:.2} statements a second");
        assert!(rate < 5.0, "{rate} statements a second");
        for task in waiting {
            task.abort();
        }
        // The waiting runners are gone, and the service still grants leases.
        fixture.submit(json!([task("a")])).await;
        fixture.runner().lease_one().await;
    });
}
