//! Machines that are deleted while their runners ask for leases and report: no lease is granted after the deletion, and every
//! run ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_testkit::{Backend, on_both_databases, run};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Runner, statuses, task};

/// Requests of the machine's runners at any time.
const RUNNERS: usize = 6;

/// A task that is pinned to a machine and may fail often.
fn pinned(runner: &Runner) -> Value {
    json!({ "prompt": "x", "provider": "claude", "machineId": runner.id,
        "retry": { "maxAttempts": 5, "backoffMs": 0 } })
}

/// Requests leases and reports about them until the deletion was answered, and once after that. Returns the leases of the
/// requests that were made after it.
async fn ask(runner: Runner, number: usize, was_deleted: Arc<AtomicBool>) -> Vec<Value> {
    loop {
        let is_last = was_deleted.load(Ordering::SeqCst);
        let leases = runner.lease(1).await;
        if is_last {
            return leases;
        }
        for lease in &leases {
            // The deletion can be faster, so every answer is right.
            match number % 3 {
                0 => drop(runner.heartbeat(lease).await),
                1 => drop(runner.finish(lease, "failed").await),
                _ => {}
            }
        }
    }
}

/// One deletion. The requests go to these replicas in turn.
async fn round(fixture: &Fixture, replicas: &[String], other: &Runner) {
    let gone = fixture.runner();
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(fixture.submit(json!([pinned(&gone), pinned(&gone)])).await);
    }
    let free = fixture.submit(json!([task("a"), task("b")])).await;
    let was_deleted = Arc::new(AtomicBool::new(false));
    let runners: Vec<_> = (0..RUNNERS)
        .map(|number| {
            let api = gone.api.at(&replicas[number % replicas.len()]);
            let runner = Runner { id: gone.id.clone(), api };
            tokio::spawn(ask(runner, number, Arc::clone(&was_deleted)))
        })
        .collect();
    // A run can be submitted for the machine at the same moment. Then it is refused, or it ends.
    let body = json!({ "tasks": [pinned(&gone)] });
    let (late, _) = futures_util::join!(fixture.api.post(crate::fixture::RUNS, &body), async {
        let deleted_at = fixture.now().await;
        fixture.peers.remove_machine(fixture.user, &gone.id);
        fixture.delete_machine(&gone, deleted_at).await
    });
    was_deleted.store(true, Ordering::SeqCst);
    for runner in runners {
        assert_eq!(runner.await.unwrap(), Vec::<Value>::new(), "a lease was granted after the deletion was answered");
    }
    if late.status == 201 {
        held.push(late.expect(201));
    }
    for run in &held {
        let run = fixture.wait_for_end(run).await;
        assert_eq!(run["status"], "failed", "{run}");
        for task in run["tasks"].as_array().unwrap() {
            let code = task["error"]["code"].as_str().unwrap();
            // A runner that reported four failures was faster than the deletion.
            assert!(matches!(code, "MACHINE_DELETED" | "FAILED"), "{run}");
        }
    }
    // Tasks that a runner failed have ended, and the others go to another machine.
    loop {
        let leases = other.lease(2).await;
        if leases.is_empty() {
            break;
        }
        for lease in &leases {
            other.complete(lease).await;
        }
    }
    let ended = fixture.wait_for_end(&free).await;
    assert!(statuses(&ended).iter().all(|status| matches!(*status, "completed" | "failed")), "{ended}");
    fixture.peers.register_machine(fixture.user, &gone.id);
    let again = fixture.submit(json!([pinned(&gone)])).await;
    gone.complete(&gone.lease_one().await).await;
    assert_eq!(fixture.wait_for_end(&again).await["status"], "completed");
}

on_both_databases! {
    async fn no_lease_outlives_the_deletion_of_its_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let other = fixture.runner();
        // Transactions overlap most with two replicas, whose test below has the most rounds. On SQLite they never do.
        let rounds = if on == Backend::Postgres { 20 } else { 8 };
        for _ in 0..rounds {
            round(&fixture, &[fixture.service().public_url()], &other).await;
        }
    }
}

#[test]
fn no_lease_of_another_replica_outlives_the_deletion_of_its_machine() {
    run(async {
        let fixture = Fixture::new(Backend::Postgres).await;
        let replica = fixture.replica().await;
        let other = fixture.runner();
        for _ in 0..80 {
            round(&fixture, &[replica.public_url(), fixture.service().public_url()], &other).await;
        }
    });
}
