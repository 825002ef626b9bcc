//! The service is killed and PostgreSQL is killed and restarted in the middle of a run: no task is lost or completed twice,
//! and the requests that wait get the end of the run.
#![expect(
    clippy::disallowed_methods,
    reason = "starting and stopping a PostgreSQL blocks, and only this test waits for it"
)]

use std::collections::HashSet;
use std::time::Duration;

use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::service::SHORT_WAITS;
use ensemble_testkit::{Api, Events, Program, SOON, eventually, run};
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio_postgres::NoTls;

use crate::faults::{chain, work};
use crate::fixture::{Fixture, RUNS, Runner, path, variables};

const TASKS: usize = 240;
const TIMEOUT: Duration = SOON.saturating_mul(2);

/// Waits for the end of a run with one long-poll after the other, as long as it takes.
async fn pend_to_the_end(api: Api, run: Value) -> Value {
    loop {
        let body = json!({ "waitFor": "terminal", "timeoutMs": 30_000 });
        match Api::try_send(api.request("POST", &path(&run, "/pend")).json(&body)).await {
            Ok(answer) if answer.status == 200 && answer.json()["terminal"] == true => return answer.json(),
            Ok(answer) => assert!(matches!(answer.status, 200 | 503), "{}: {}", answer.status, answer.text),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Follows the stream of a run's changes, and reconnects where it broke. Returns the last event and the completed tasks.
async fn follow_to_the_end(api: Api, run: Value) -> (Value, HashSet<String>) {
    let (mut last, mut completed) = ("0".to_owned(), HashSet::new());
    loop {
        let request = api.request("GET", &path(&run, &format!("/events?after={last}")));
        let Some(mut events) = Events::try_open(request).await.filter(|events| events.status == 200) else {
            tokio::task::yield_now().await;
            continue;
        };
        while let Ok(Some(event)) = events.next_within(SOON).await {
            let Some(id) = event.id.filter(|_| event.name == "change") else { continue };
            last = id;
            let response: Value = serde_json::from_str(&event.data).unwrap();
            for task in response["changedTasks"].as_array().unwrap().iter().filter(|task| task["status"] == "completed")
            {
                completed.insert(task["id"].as_str().unwrap().to_owned());
            }
            if response["terminal"] == true {
                return (response, completed);
            }
        }
    }
}

#[test]
fn a_run_survives_restarts_of_postgresql_and_of_the_service() {
    run(async {
        let mut cluster = block_in_place(|| Cluster::start(Durability::Full)).unwrap();
        let url = cluster.url("postgres");
        let vars = [
            ("ORCHESTRATOR_LEASE_MS", "2000"),
            ("ORCHESTRATOR_FIRST_BEAT_MS", "1000"),
            ("ORCHESTRATOR_SWEEP_MS", "200"),
            ("ORCHESTRATOR_MAX_MACHINE_LOSSES", "100"),
            ("RUST_LOG", "off"),
        ];
        let vars = [&vars[..], &SHORT_WAITS].concat();
        let mut fixture = Fixture::at(url.clone(), &vars).await;
        fixture.stop().await;
        let program = env!("CARGO_BIN_EXE_ensemble-orchestrator");
        let mut service = Program::start(program, variables(&fixture.peers, &url, &vars)).await;
        let api = fixture.api.at(&service.public_url);
        let plan = json!({ "tasks": chain(TASKS), "maxConcurrency": 16 });
        let submitted = api.post(RUNS, &plan).await.expect(201);
        let pending = tokio::spawn(pend_to_the_end(api.clone(), submitted.clone()));
        let following = tokio::spawn(follow_to_the_end(api.clone(), submitted.clone()));
        let runner = fixture.runner();
        let runner = Runner { id: runner.id, api: runner.api.at(&service.public_url) };
        let worker = tokio::spawn(work(runner, TASKS, TIMEOUT));

        let completed = async || {
            let answer = Api::try_send(api.request("GET", &path(&submitted, ""))).await.ok()?;
            (answer.status == 200).then(|| answer.json()["summary"]["completed"].as_u64().unwrap())
        };
        // Each restart waits for some more completed tasks, so that it happens in the middle of the run.
        for (step, at) in (1..=6).map(|step| (step, step * 32)) {
            eventually(TIMEOUT, async || completed().await.is_some_and(|done| done >= at)).await;
            match step % 3 {
                0 => service.restart().await,
                1 => block_in_place(|| cluster.kill().and_then(|()| cluster.up())).unwrap(),
                _ => {
                    block_in_place(|| cluster.stop());
                    block_in_place(|| cluster.up()).unwrap();
                }
            }
        }

        let ended = tokio::time::timeout(TIMEOUT, pending).await.expect("a pend returns the end").unwrap();
        assert_eq!(ended["status"], "completed", "{ended}");
        let (response, tasks) = tokio::time::timeout(TIMEOUT, following).await.expect("a stream has the end").unwrap();
        assert_eq!(
            (&response["status"], tasks.len()),
            (&json!("completed"), TASKS),
            "the stream has the end of each task"
        );
        let done = tokio::time::timeout(TIMEOUT, worker).await.expect("every report is answered").unwrap();
        assert_eq!(done.iter().collect::<HashSet<_>>().len(), done.len(), "no report was taken twice");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let query = "SELECT count(*), count(DISTINCT task_id) FROM leases WHERE outcome = 'completed'";
        let row = client.query_one(query, &[]).await.unwrap();
        let tasks = i64::try_from(TASKS).unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (tasks, tasks), "each task was completed once");
        service.kill().await;
    });
}
