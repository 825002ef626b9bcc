//! Replicas, kills and lost wake-ups: every run ends right, and no task is completed twice.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_orchestrator::Orchestrator;
use ensemble_testkit::{Api, Backend, Program, eventually, run, start_service};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::world::{Runner, World, path, task, variables};

/// For what takes a second on a quiet machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Works at one service until so much is done, through refusals and silence. Gives what was accepted.
pub(crate) async fn work(runner: Runner, goal: usize, timeout: Duration) -> Vec<String> {
    let mut done = Vec::new();
    let began = std::time::Instant::now();
    while done.len() < goal && began.elapsed() < timeout {
        let body = json!({ "machineId": runner.id, "providers": ["claude"], "capacity": 8, "waitMs": 500 });
        let asked = Api::try_send(runner.api.request("POST", crate::world::LEASES).json(&body)).await;
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

/// Reports until an answer comes, as a runner does.
async fn report(runner: &Runner, lease: &Value, done: &mut Vec<String>) {
    let path = format!("{}/{}/finish", crate::world::LEASES, lease["id"].as_str().unwrap());
    let body = json!({ "fence": lease["fence"], "status": "completed" });
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        match Api::try_send(runner.api.request("POST", &path).json(&body)).await {
            Ok(answer) if answer.status == 200 => return done.push(lease["taskId"].as_str().unwrap().to_owned()),
            Ok(answer) if answer.status == 409 => return,
            _ => tokio::task::yield_now().await,
        }
    }
    panic!("no answer to a report");
}

/// Four tasks abreast, each waiting for the one before it.
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
        let world = World::new(Backend::Postgres).await;
        let second = start_service::<Orchestrator>(variables(&world.peers, &world.url, &[])).await;
        let there = |runner: Runner| Runner { id: runner.id, api: runner.api.at(&second.public_url()) };
        // A wake-up crosses from one to the other, for runners and for those who wait for a run.
        let runner = world.runner();
        let waiting = tokio::spawn({
            let runner = there(runner.clone());
            async move { runner.one().await }
        });
        tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>()).await.unwrap_err();
        let before = std::time::Instant::now();
        let submitted = world.submit(json!([task("a")])).await;
        let lease = waiting.await.unwrap();
        assert!(before.elapsed() < Duration::from_secs(3), "not by the sweep");
        let api = world.api.at(&second.public_url());
        let pend = path(&submitted, "/pend");
        let ended = tokio::spawn(async move { api.post(&pend, &json!({ "waitFor": "terminal" })).await.expect(200) });
        tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>()).await.unwrap_err();
        let before = std::time::Instant::now();
        runner.complete(&lease).await;
        assert_eq!(ended.await.unwrap()["status"], "completed");
        assert!(before.elapsed() < Duration::from_secs(3), "not by the sweep");
        // Work on both at once: each task is done once.
        let submitted = world.submit_run(json!({ "tasks": chain(200), "maxConcurrency": 64, "spread": true })).await;
        let workers = (0..6).map(|at| {
            let runner = world.runner();
            tokio::spawn(work(if at % 2 == 0 { runner } else { there(runner) }, 34, TIMEOUT))
        });
        let workers: Vec<_> = workers.collect();
        let ended = world.ended(&submitted).await;
        assert_eq!((&ended["status"], &ended["summary"]["completed"]), (&json!("completed"), &json!(200)));
        for worker in workers {
            worker.abort();
        }
        assert!(ended["tasks"].as_array().unwrap().iter().all(|task| task["attempt"] == 1));
        second.stop().await;
    });
}

/// The program is killed again and again while runners work.
async fn survives_kills(on: Backend) {
    let vars = [
        ("ORCHESTRATOR_LEASE_MS", "1000"),
        ("ORCHESTRATOR_FIRST_BEAT_MS", "500"),
        ("ORCHESTRATOR_SWEEP_MS", "200"),
        ("ORCHESTRATOR_MAX_MACHINE_LOSSES", "100"),
        ("RUST_LOG", "error"),
    ];
    let mut world = World::with(on, &vars).await;
    world.stop().await;
    let program = env!("CARGO_BIN_EXE_ensemble-orchestrator");
    let mut service = Program::start(program, variables(&world.peers, &world.url, &vars)).await;
    let api = world.api.at(&service.public_url);
    let plan = json!({ "tasks": chain(120), "maxConcurrency": 16 });
    let submitted = api.post(crate::world::RUNS, &plan).await.expect(201);
    let runner = world.runner_of(world.user);
    let runner = Runner { id: runner.id, api: runner.api.at(&service.public_url) };
    let worker = tokio::spawn(work(runner, 120, TIMEOUT));
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_millis(400), std::future::pending::<()>()).await.unwrap_err();
        service.restart().await;
    }
    let ended = async || {
        let answer = Api::try_send(api.request("GET", &path(&submitted, ""))).await;
        answer.ok().filter(|answer| answer.status == 200).map(|answer| answer.json())
    };
    eventually(Duration::from_secs(60), async || ended().await.is_some_and(|run| run["status"] == "completed")).await;
    worker.abort();
    let run = ended().await.unwrap();
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

/// Ends every session of the database, as a restart of PostgreSQL does.
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
fn connections_that_break_cost_a_moment_and_no_task() {
    run(async {
        let world = World::with(Backend::Postgres, &[("ORCHESTRATOR_SWEEP_MS", "200")]).await;
        let submitted = world.submit_run(json!({ "tasks": chain(120), "maxConcurrency": 16 })).await;
        let worker = tokio::spawn(work(world.runner(), 120, TIMEOUT));
        for _ in 0..4 {
            tokio::time::timeout(Duration::from_millis(200), std::future::pending::<()>()).await.unwrap_err();
            cut_all(&world.url, "ensemble%").await;
        }
        let state = async || {
            let answer = world.api.get(&path(&submitted, "")).await;
            (answer.status == 200).then(|| answer.json())
        };
        eventually(Duration::from_secs(60), async || state().await.is_some_and(|run| run["status"] == "completed"))
            .await;
        let done = worker.await.unwrap();
        assert_eq!(done.iter().collect::<HashSet<_>>().len(), done.len(), "no report was taken twice");
    });
}

#[test]
fn the_sweep_finds_what_a_lost_wake_up_did_not_tell() {
    run(async {
        let vars = [("ORCHESTRATOR_SWEEP_MS", "300")];
        let world = World::with(Backend::Postgres, &vars).await;
        let runner = world.runner();
        let submitted = world.submit(json!([task("a")])).await;
        let lease = runner.one().await;
        let pend = path(&submitted, "/pend");
        let ended = {
            let api = world.api.clone();
            tokio::spawn(async move { api.post(&pend, &json!({ "waitFor": "terminal" })).await.expect(200) })
        };
        let waiting = tokio::spawn({
            let runner = runner.clone();
            async move { runner.one().await }
        });
        tokio::time::timeout(Duration::from_millis(700), std::future::pending::<()>()).await.unwrap_err();
        // Behind the service's back: a task is done and another one is there, and nobody is told.
        let (client, connection) = tokio_postgres::connect(&world.url, NoTls).await.unwrap();
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
            tokio::time::timeout(Duration::from_secs(5), ended).await.expect("found by the sweep").unwrap()["status"],
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
        let again = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("found by the sweep").unwrap();
        assert_eq!(again["attempt"], 2);
    });
}
