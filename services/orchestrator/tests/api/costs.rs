//! What operations cost: `tests/costs.toml`.

use std::cell::RefCell;
use std::time::Duration;

use ensemble_testkit::{Api, Costs, SOON, eventually, explained, on_both_databases, statements};
use ensemble_types::ids::{RunId, TaskId};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, Runner, path, task};

/// Shorter than the life of a lease: a deadline before the next sweep wakes the timers.
const SWEEP: [(&str, &str); 1] = [("ORCHESTRATOR_SWEEP_MS", "20000")];

/// A lease of a new run with one task.
async fn leased(fixture: &Fixture, runner: &Runner) -> (Value, Value) {
    let run = fixture.submit(json!([task("x")])).await;
    (run, runner.lease_one().await)
}

/// Ends the last lease, so that the next operation does not find one more than the operation before it.
async fn end(runner: &Runner, last: &RefCell<Option<Value>>) {
    if let Some(lease) = last.take() {
        runner.complete(&lease).await;
    }
}

/// Waits until a run has ended.
async fn wait_for_end(api: Api, run: Value) {
    let body = json!({ "waitFor": "terminal", "timeoutMs": 100_000 });
    assert_eq!(api.post(&path(&run, "/pend"), &body).await.expect(200)["terminal"], true);
}

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = explained(Fixture::with(on, &SWEEP)).await;
        let runner = fixture.runner();
        // With a few rows one index is as good as another.
        let many = fixture.submit(json!(vec![task("x"); 300])).await;
        fixture.api.post(&path(&many, "/cancel"), &json!({})).await.expect(200);
        for _ in 0..40 {
            let (_, lease) = leased(&fixture, &runner).await;
            runner.complete(&lease).await;
        }
        let costs = Costs::new("orchestrator", on, &fixture.url);
        let mut costs = costs.with_requests(|| fixture.peers.requests());
        let nothing = async || {};

        costs.count("look for work where there is none", nothing, async |()| {
            assert!(runner.lease(1).await.is_empty());
        }).await;
        costs.count("look for work on a machine that is new here", async || fixture.runner(), async |new| {
            assert!(new.lease(1).await.is_empty());
        }).await;
        costs.count("submit a run of one task", async || fixture.other_account(), async |account| {
            account.post(RUNS, &json!({ "tasks": [task("x")] })).await.expect(201);
        }).await;
        costs.count("submit a run of one task with its ids", async || fixture.other_account(), async |account| {
            let task = json!({ "id": TaskId::generate(), "prompt": "x", "provider": "claude" });
            account.post(RUNS, &json!({ "id": RunId::generate(), "tasks": [task] })).await.expect(201);
        }).await;
        costs.count("submit a run to a machine that is new here", async || {
            let owner = fixture.peers.new_user();
            (fixture.api.with_token(&fixture.peers.issuer().user(owner)), fixture.runner_of(owner).id)
        }, async |(account, machine)| {
            let task = json!({ "prompt": "x", "provider": "claude", "machineId": machine });
            account.post(RUNS, &json!({ "tasks": [task] })).await.expect(201);
        }).await;
        let last = RefCell::new(None);
        costs.count("lease a task", async || {
            end(&runner, &last).await;
            fixture.submit(json!([task("x")])).await;
        }, async |()| {
            last.replace(Some(runner.lease(1).await.remove(0)));
        }).await;
        let only_lease = async || {
            end(&runner, &last).await;
            let (_, lease) = leased(&fixture, &runner).await;
            last.replace(Some(lease.clone()));
            lease
        };
        costs.count("heartbeat of a lease", only_lease, async |lease| {
            runner.heartbeat(&lease).await.expect(200);
        }).await;
        costs.count("output of a task", only_lease, async |lease| {
            runner.output(&lease, 0, "text").await.expect(200);
        }).await;
        end(&runner, &last).await;
        costs.count("finish a task and its run", async || leased(&fixture, &runner).await, async |(_, lease)| {
            runner.complete(&lease).await;
        }).await;
        costs.count("read a run", async || fixture.submit(json!([task("x")])).await, async |run| {
            fixture.run(&run).await;
        }).await;
        costs.count("wait for a run that has ended", async || {
            let run = fixture.submit(json!([task("x")])).await;
            while let [lease] = runner.wait(1, Duration::ZERO).await.as_slice() {
                runner.complete(lease).await;
            }
            run
        }, async |run| {
            wait_for_end(fixture.api.clone(), run).await;
        }).await;
        costs.count("finish a run that is waited for", async || {
            let (run, lease) = leased(&fixture, &runner).await;
            let before = statements(&fixture.url);
            let waiting = tokio::spawn(wait_for_end(fixture.api.clone(), run));
            // It has read that the run has not ended.
            eventually(SOON, async || statements(&fixture.url) > before).await;
            (lease, waiting)
        }, async |(lease, waiting)| {
            runner.complete(&lease).await;
            waiting.await.unwrap();
        }).await;
        costs.count("list of runs", nothing, async |()| {
            fixture.api.get(&format!("{RUNS}?limit=20")).await.expect(200);
        }).await;
        costs.check();
    }
}
