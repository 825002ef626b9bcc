//! Large runs of every shape end as they should, and a task of them costs no more statements than a task alone. They have a tenth of
//! the tasks that a run may have: `make bench ROWS="run-shapes large-runs"` takes the largest.

use std::collections::{HashMap, HashSet};

use ensemble_testkit::{SOON, on_both_databases, statements};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Runner};

/// What a task costs that is leased and reported alone. See `cost.rs`.
const STATEMENTS: usize = 23;
/// What a run costs apart from its tasks, and the sweeps meanwhile.
const OTHER_STATEMENTS: usize = 200;

fn node(depends_on: &[usize]) -> Value {
    let names: Vec<String> = depends_on.iter().map(usize::to_string).collect();
    json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
}

/// Completes this many tasks. Returns their ids in the order in which they ended.
async fn work(runner: &Runner, count: usize) -> Vec<String> {
    let mut done = Vec::new();
    while done.len() < count {
        let leases = runner.wait(64, SOON).await;
        assert!(!leases.is_empty(), "after {} of {count} no lease was granted", done.len());
        let reports = leases.iter().map(|lease| runner.complete(lease));
        futures_util::future::join_all(reports).await;
        done.extend(leases.iter().map(|lease| lease["taskId"].as_str().unwrap().to_owned()));
    }
    done
}

async fn complete(fixture: &Fixture, tasks: Vec<Value>) {
    let (count, before) = (tasks.len(), statements(&fixture.url));
    let run = fixture.submit_run(json!({ "tasks": tasks, "maxConcurrency": 64 })).await;
    let done = work(&fixture.runner(), count).await;
    let run = fixture.wait_for_end(&run).await;
    assert_cost(fixture, before, count, STATEMENTS);
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

fn assert_cost(fixture: &Fixture, before: u64, tasks: usize, of_each: usize) {
    let spent = usize::try_from(statements(&fixture.url) - before).unwrap();
    println!("{tasks} tasks: {spent} statements");
    assert!(spent > 0 && spent <= tasks * of_each + OTHER_STATEMENTS, "{tasks} tasks: {spent} statements");
}

on_both_databases! {
    async fn a_thousand_tasks_fan_out_and_in(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut tasks = vec![node(&[])];
        tasks.extend((1..1_021).map(|_| node(&[0])));
        // Each task depends on as many others as one task may, and the last one on all of these.
        tasks.extend((0..4).map(|at| node(&(1 + at * 255..1 + (at + 1) * 255).collect::<Vec<_>>())));
        tasks.push(node(&(1_021..1_025).collect::<Vec<_>>()));
        assert_eq!(tasks.len(), 1_026);
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
        let tasks = (0..1_000_usize).map(|at| {
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
        complete(&fixture, (0..100_usize).map(|at| node(&at.checked_sub(1).into_iter().collect::<Vec<_>>())).collect()).await;
    }

    async fn a_failure_fails_a_chain_of_a_thousand(on: Backend) {
        let fixture = Fixture::new(on).await;
        let tasks: Vec<Value> =
            (0..1_000_usize).map(|at| node(&at.checked_sub(1).into_iter().collect::<Vec<_>>())).collect();
        let run = fixture.submit(json!(tasks)).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let before = statements(&fixture.url);
        runner.finish(&lease, "failed").await.expect(200);
        let run = fixture.wait_for_end(&run).await;
        // One looks for the next task of the chain. The tasks are written in batches.
        assert_cost(&fixture, before, 1_000, 1);
        assert_eq!((&run["status"], &run["summary"]["failed"]), (&json!("failed"), &json!(1_000)));
    }
}
