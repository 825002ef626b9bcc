//! What operations cost the database: `tests/costs.toml`.

use std::time::Duration;

use ensemble_testkit::{Costs, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Runner, path, task};

/// A lease of a new run with one task.
async fn leased(fixture: &Fixture, runner: &Runner) -> (Value, Value) {
    let run = fixture.submit(json!([task("x")])).await;
    (run, runner.lease_one().await)
}

on_both_databases! {
    async fn operations_cost_what_the_table_says(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let (_, warm) = leased(&fixture, &runner).await;
        runner.complete(&warm).await;
        let mut costs = Costs::new("orchestrator", on, &fixture.url);
        let nothing = async || {};

        costs.count("look for work where there is none", nothing, async |()| {
            assert!(runner.lease(1).await.is_empty());
        }).await;
        costs.count("submit a run of one task", nothing, async |()| {
            fixture.submit(json!([task("x")])).await;
        }).await;
        while let [lease] = runner.lease(1).await.as_slice() {
            runner.complete(lease).await;
        }
        costs.count("lease a task", async || {
            fixture.submit(json!([task("x")])).await;
        }, async |()| {
            assert_eq!(runner.lease(1).await.len(), 1);
        }).await;
        costs.count("heartbeat of a lease", async || leased(&fixture, &runner).await, async |(_, lease)| {
            runner.heartbeat(&lease).await.expect(200);
        }).await;
        costs.count("output of a task", async || leased(&fixture, &runner).await, async |(_, lease)| {
            runner.output(&lease, 0, "text").await.expect(200);
        }).await;
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
            let body = json!({ "waitFor": "terminal", "timeoutMs": 1_000 });
            assert_eq!(fixture.api.post(&path(&run, "/pend"), &body).await.expect(200)["terminal"], true);
        }).await;
        costs.count("list of runs", nothing, async |()| {
            fixture.api.get(&format!("{}?limit=20", crate::fixture::RUNS)).await.expect(200);
        }).await;
        costs.check();
    }
}
