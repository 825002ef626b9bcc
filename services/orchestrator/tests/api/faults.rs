//! Replicas, kills and missed notifications: every run ends as it should, and no task is completed twice.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_orchestrator::Orchestrator;
use ensemble_testkit::{Api, Backend, Program, SOON, eventually, run, start_service};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::fixture::{Fixture, NO_SWEEP, Runner, path, task, variables};

/// Waits for the end of a run.
fn until_the_end() -> Value {
    json!({ "waitFor": "terminal", "timeoutMs": 100_000 })
}

/// Leases and completes tasks until `goal` of them are done, and repeats requests that fail. Returns the completed tasks.
pub(crate) async fn work(runner: Runner, goal: usize, timeout: Duration) -> Vec<String> {
    let mut done = Vec::new();
    let began = std::time::Instant::now();
    while done.len() < goal && began.elapsed() < timeout {
        let body = json!({ "machineId": runner.id, "providers": ["claude"], "capacity": 8, "waitMs": 500 });
        let asked = Api::try_send(runner.api.request("POST", crate::fixture::LEASES).json(&body)).await;
        let leases = match asked {
            Ok(answer) if answer.status == 200 => answer.json()["leases"].as_array().unwrap().clone(),
            _ => Vec::new(),
        };
        for lease in leases {
            report(&runner, &lease, &mut done).await;
        }
    }
    done
}

/// Repeats a report until it gets a response, as a runner does.
async fn report(runner: &Runner, lease: &Value, done: &mut Vec<String>) {
    let path = format!("{}/{}/finish", crate::fixture::LEASES, lease["id"].as_str().unwrap());
    let body = json!({ "fence": lease["fence"], "status": "completed" });
    let began = std::time::Instant::now();
    while began.elapsed() < SOON {
        match Api::try_send(runner.api.request("POST", &path).json(&body)).await {
            Ok(answer) if answer.status == 200 => return done.push(lease["taskId"].as_str().unwrap().to_owned()),
            Ok(answer) if answer.status == 409 => return,
            _ => tokio::task::yield_now().await,
        }
    }
    panic!("no response to a report");
}

/// Four chains of tasks, each task depending on the one before it in its chain.
pub(crate) fn chain(count: usize) -> Value {
    let tasks: Vec<Value> = (0..count)
        .map(|at| {
            let names: Vec<String> = at.checked_sub(4).map(|to| to.to_string()).into_iter().collect();
            json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
        })
        .collect();
    json!(tasks)
}

#[test]
fn two_replicas_share_one_database() {
    run(async {
        let fixture = Fixture::with(Backend::Postgres, &NO_SWEEP).await;
        let second = start_service::<Orchestrator>(variables(&fixture.peers, &fixture.url, &NO_SWEEP)).await;
        let there = |runner: Runner| Runner { id: runner.id, api: runner.api.at(&second.public_url()) };
        // A notification crosses from one replica to the other, for runners and for requests that wait for a run.
        let runner = fixture.runner();
        let waiting = tokio::spawn({
            let runner = there(runner.clone());
            async move { runner.lease_one().await }
        });
        eventually(SOON, async || second.in_flight() == 1).await;
        let submitted = fixture.submit(json!([task("a")])).await;
        let lease = waiting.await.unwrap();
        let api = fixture.api.at(&second.public_url());
        let pend = path(&submitted, "/pend");
        let ended = tokio::spawn(async move { api.post(&pend, &until_the_end()).await.expect(200) });
        eventually(SOON, async || second.in_flight() == 1).await;
        runner.complete(&lease).await;
        assert_eq!(ended.await.unwrap()["status"], "completed");
        // Runners work at both replicas: each task is done once.
        let submitted = fixture.submit_run(json!({ "tasks": chain(200), "maxConcurrency": 64, "spread": true })).await;
        let workers = (0..6).map(|at| {
            let runner = fixture.runner();
            tokio::spawn(work(if at % 2 == 0 { runner } else { there(runner) }, 34, 5 * SOON))
        });
        let workers: Vec<_> = workers.collect();
        let ended = fixture.wait_for_end(&submitted).await;
        assert_eq!((&ended["status"], &ended["summary"]["completed"]), (&json!("completed"), &json!(200)));
        for worker in workers {
            worker.abort();
        }
        assert!(ended["tasks"].as_array().unwrap().iter().all(|task| task["attempt"] == 1));
        second.stop().await;
    });
}

/// How many tasks of a run have completed. `None` while the service is not available.
async fn completed(api: &Api, run: &Value) -> Option<u64> {
    let answer = Api::try_send(api.request("GET", &path(run, ""))).await.ok()?;
    (answer.status == 200).then(|| answer.json()["summary"]["completed"].as_u64().unwrap())
}

/// The program is killed several times while a runner works.
async fn survives_kills(on: Backend) {
    let vars = [
        // Eight tasks are reported one after the other. On a busy machine all but the first would be lost after half a second.
        ("ORCHESTRATOR_LEASE_MS", "3000"),
        ("ORCHESTRATOR_FIRST_BEAT_MS", "2000"),
        ("ORCHESTRATOR_SWEEP_MS", "200"),
        ("ORCHESTRATOR_MAX_MACHINE_LOSSES", "100"),
        ("RUST_LOG", "error"),
    ];
    let mut fixture = Fixture::with(on, &vars).await;
    fixture.stop().await;
    let program = env!("CARGO_BIN_EXE_ensemble-orchestrator");
    let mut service = Program::start(program, variables(&fixture.peers, &fixture.url, &vars)).await;
    let api = fixture.api.at(&service.public_url);
    let plan = json!({ "tasks": chain(120), "maxConcurrency": 16 });
    let submitted = api.post(crate::fixture::RUNS, &plan).await.expect(201);
    let runner = fixture.runner_of(fixture.user);
    let runner = Runner { id: runner.id, api: runner.api.at(&service.public_url) };
    let worker = tokio::spawn(work(runner, 120, 5 * SOON));
    for step in 1..=3 {
        eventually(SOON, async || completed(&api, &submitted).await.is_some_and(|done| done >= step * 25)).await;
        service.restart().await;
    }
    eventually(SOON, async || completed(&api, &submitted).await == Some(120)).await;
    worker.abort();
    let run = api.get(&path(&submitted, "")).await.expect(200);
    assert_eq!(
        run["summary"],
        json!({ "total": 120, "queued": 0, "running": 0, "completed": 120, "failed": 0, "cancelled": 0 })
    );
    service.kill().await;
}

#[test]
fn a_run_survives_kills_of_the_service_on_postgres() {
    run(survives_kills(Backend::Postgres));
}

#[test]
fn a_run_survives_kills_of_the_service_on_sqlite() {
    run(survives_kills(Backend::Sqlite));
}

/// Ends the database's sessions, as a restart of PostgreSQL does.
async fn cut_all(url: &str, which: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
         AND pid <> pg_backend_pid() AND application_name LIKE '{which}'"
    );
    client.batch_execute(&cut).await.unwrap();
    drop(client);
    let _ = connection.await;
}

#[test]
fn broken_connections_lose_no_task() {
    run(async {
        let fixture = Fixture::with(Backend::Postgres, &[("ORCHESTRATOR_SWEEP_MS", "200")]).await;
        let submitted = fixture.submit_run(json!({ "tasks": chain(120), "maxConcurrency": 16 })).await;
        let worker = tokio::spawn(work(fixture.runner(), 120, 5 * SOON));
        for step in 1..=4 {
            let is_reached = async || completed(&fixture.api, &submitted).await.is_some_and(|done| done >= step * 20);
            eventually(SOON, is_reached).await;
            cut_all(&fixture.url, "ensemble%").await;
        }
        eventually(SOON, async || completed(&fixture.api, &submitted).await == Some(120)).await;
        let done = worker.await.unwrap();
        assert_eq!(done.iter().collect::<HashSet<_>>().len(), done.len(), "no report was taken twice");
    });
}

#[test]
fn the_sweep_finds_changes_without_notifications() {
    run(async {
        let vars = [("ORCHESTRATOR_SWEEP_MS", "300")];
        let fixture = Fixture::with(Backend::Postgres, &vars).await;
        let runner = fixture.runner();
        let submitted = fixture.submit(json!([task("a")])).await;
        let lease = runner.lease_one().await;
        let pend = path(&submitted, "/pend");
        let ended = {
            let api = fixture.api.clone();
            tokio::spawn(async move { api.post(&pend, &until_the_end()).await.expect(200) })
        };
        let waiting = tokio::spawn({
            let runner = runner.clone();
            async move { runner.lease_one().await }
        });
        fixture.wait_for_requests(2).await;
        // The test changes the database itself, without a notification: the task completes, and then it is queued again.
        let (client, connection) = tokio_postgres::connect(&fixture.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute(
                "BEGIN; UPDATE leases SET ended_at = now(), end_reason = 'finished', outcome = 'completed'; \
                 UPDATE tasks SET status = 'completed', finished_at = now(), started_at = now(), version = 3; \
                 UPDATE runs SET status = 'completed', finished_at = now(), running = 0, completed = 1, version = 3, \
                 updated_at = now(); COMMIT",
            )
            .await
            .unwrap();
        assert_eq!(
            tokio::time::timeout(SOON, ended).await.expect("found by the sweep").unwrap()["status"],
            "completed"
        );
        assert_eq!(runner.finish(&lease, "completed").await.expect(200)["taskStatus"], "completed");
        client
            .batch_execute(
                "BEGIN; UPDATE tasks SET status = 'queued', finished_at = NULL, version = 4; \
                 UPDATE runs SET status = 'running', finished_at = NULL, queued = 1, ready = 1, completed = 0, \
                 version = 4, updated_at = now(); COMMIT",
            )
            .await
            .unwrap();
        let again = tokio::time::timeout(SOON, waiting).await.expect("found by the sweep").unwrap();
        assert_eq!(again["attempt"], 2);
    });
}
