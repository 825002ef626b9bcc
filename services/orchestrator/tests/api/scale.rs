//! Large runs of every shape end as they should.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Runner};

fn node(depends_on: &[usize]) -> Value {
    let names: Vec<String> = depends_on.iter().map(usize::to_string).collect();
    json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
}

/// Completes this many tasks. Returns their ids in the order in which they ended.
async fn work(runner: &Runner, count: usize) -> Vec<String> {
    let mut done = Vec::new();
    while done.len() < count {
        let leases = runner.wait(64, Duration::from_secs(20)).await;
        assert!(!leases.is_empty(), "after {} of {count} no lease was granted", done.len());
        let reports = leases.iter().map(|lease| runner.complete(lease));
        futures_util::future::join_all(reports).await;
        done.extend(leases.iter().map(|lease| lease["taskId"].as_str().unwrap().to_owned()));
    }
    done
}

async fn complete(fixture: &Fixture, tasks: Vec<Value>) {
    let count = tasks.len();
    let run = fixture.submit_run(json!({ "tasks": tasks, "maxConcurrency": 64 })).await;
    let done = work(&fixture.runner(), count).await;
    let run = fixture.wait_for_end(&run).await;
    assert_eq!((&run["status"], &run["summary"]["completed"]), (&json!("completed"), &json!(count)));
    assert_eq!(done.iter().collect::<HashSet<_>>().len(), count, "each task was done once");
    let order: HashMap<&str, usize> = done.iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
    for task in run["tasks"].as_array().unwrap() {
        assert_eq!(task["attempt"], 1);
        for target in task["dependsOn"].as_array().unwrap() {
            assert!(
                order[target.as_str().unwrap()] < order[task["id"].as_str().unwrap()],
                "it ran before its dependency"
            );
        }
    }
}

on_both_databases! {
    async fn ten_thousand_tasks_fan_out_and_in(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut tasks = vec![node(&[])];
        tasks.extend((1..9_960).map(|_| node(&[0])));
        // Each task depends on as many others as one task may, and the last one on all of these.
        tasks.extend((0..39).map(|at| node(&(1 + at * 255..1 + (at + 1) * 255).collect::<Vec<_>>())));
        tasks.push(node(&(9_960..9_999).collect::<Vec<_>>()));
        assert_eq!(tasks.len(), 10_000);
        complete(&fixture, tasks).await;
    }

    async fn a_random_graph_runs_in_the_order_of_its_dependencies(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
        };
        let tasks = (0..10_000_usize).map(|at| {
            let near = at.min(200);
            let mut targets: Vec<usize> = (0..random(5).min(near)).map(|_| at - 1 - random(near)).collect();
            targets.sort_unstable();
            targets.dedup();
            node(&targets)
        });
        complete(&fixture, tasks.collect()).await;
    }

    async fn a_chain_runs_in_its_order(on: Backend) {
        let fixture = Fixture::new(on).await;
        complete(&fixture, (0..500_usize).map(|at| node(&at.checked_sub(1).into_iter().collect::<Vec<_>>())).collect()).await;
    }

    async fn a_failure_fails_a_chain_of_ten_thousand(on: Backend) {
        let fixture = Fixture::new(on).await;
        let tasks: Vec<Value> =
            (0..10_000_usize).map(|at| node(&at.checked_sub(1).into_iter().collect::<Vec<_>>())).collect();
        let run = fixture.submit(json!(tasks)).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.finish(&lease, "failed").await.expect(200);
        let run = fixture.wait_for_end(&run).await;
        assert_eq!((&run["status"], &run["summary"]["failed"]), (&json!("failed"), &json!(10_000)));
    }
}
