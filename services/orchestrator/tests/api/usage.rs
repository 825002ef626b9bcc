//! Sums of tokens and costs.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, path, task};

const USAGE: &str = "/v1/orchestrator/usage";

fn spent(status: &str, input: u64, cost: f64) -> Value {
    json!({ "status": status, "providerSessionId": "s", "usage": { "inputTokens": input, "outputTokens": 1, "costUsd": cost } })
}

on_both_databases! {
    async fn every_attempt_is_counted_once_and_stays_when_its_run_is_deleted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let policy = json!({ "maxAttempts": 2, "backoffMs": 0 });
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "retry": policy },
            { "prompt": "b", "provider": "codex" },
            { "prompt": "c", "provider": "gemini" },
        ])).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        let lease = runner.lease_one().await;
        runner.report(&lease, "finish", spent("failed", 10, 0.5)).await.expect(200);
        runner.report(&lease, "finish", spent("failed", 10, 0.5)).await.expect(200);
        for _ in 0..2 {
            let lease = runner.lease_one().await;
            runner.report(&lease, "finish", spent("completed", 100, 0.25)).await.expect(200);
        }
        // Nothing was reported about this one.
        runner.complete(&runner.lease_one().await).await;
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!(ended["status"], "completed");
        let of_tasks: Vec<f64> = ended["tasks"].as_array().unwrap().iter().filter_map(|task| task["usage"]["costUsd"].as_f64()).collect();
        assert_eq!(of_tasks, [0.75, 0.25], "with the attempt that failed");
        let report = fixture.api.get(USAGE).await.expect(200);
        let total = json!({ "attempts": 3, "inputTokens": 210, "outputTokens": 3, "costUsd": 1.0 });
        assert_eq!((&report["total"], &report["by"], report["items"].as_array().unwrap().len()), (&total, &json!("day"), 1));
        let today = report["items"][0]["day"].as_str().unwrap();
        assert!(report["to"].as_str().unwrap() > today && report["from"].as_str().unwrap() < today, "{report}");
        fixture.api.delete(&path(&run, "")).await.expect(200);
        let by = async |by: &str| fixture.api.get(&format!("{USAGE}?by={by}")).await.expect(200);
        assert_eq!(by("day").await["items"][0]["costUsd"], 1.0);
        assert_eq!(
            by("provider").await["items"],
            json!([
                { "provider": "claude", "attempts": 2, "inputTokens": 110, "outputTokens": 2, "costUsd": 0.75 },
                { "provider": "codex", "attempts": 1, "inputTokens": 100, "outputTokens": 1, "costUsd": 0.25 },
            ])
        );
        let second = fixture.submit(json!([task("d")])).await;
        other.report(&other.lease_one().await, "finish", spent("completed", 1, 9.0)).await.expect(200);
        fixture.wait_for_end(&second).await;
        let machines = by("machine").await;
        let ids: Vec<&Value> = machines["items"].as_array().unwrap().iter().map(|item| &item["machineId"]).collect();
        assert_eq!(ids, [&json!(other.id), &json!(runner.id)]);
        assert_eq!(fixture.other_account().get(USAGE).await.expect(200)["total"]["attempts"], 0);
        runner.api.get(USAGE).await.problem(403, "FORBIDDEN");
    }

    async fn huge_reports_do_not_break_the_sums(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b"), task("c")])).await;
        let runner = fixture.runner();
        for _ in 0..3 {
            let usage = json!({ "inputTokens": u64::MAX, "outputTokens": u64::MAX, "costUsd": 1e308 });
            let report = json!({ "status": "completed", "providerSessionId": "s", "usage": usage });
            runner.report(&runner.lease_one().await, "finish", report).await.expect(200);
        }
        let total = &fixture.api.get(USAGE).await.expect(200)["total"];
        assert_eq!((&total["inputTokens"], &total["costUsd"]), (&json!(3_u64 << 36), &json!(3e6)));
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!(ended["tasks"][0]["usage"]["inputTokens"], 1_u64 << 36);
    }

    async fn the_time_has_bounds(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.api.post(RUNS, &json!({ "tasks": [task("a")] })).await.expect(201);
        let runner = fixture.runner();
        runner.report(&runner.lease_one().await, "finish", spent("completed", 5, 0.5)).await.expect(200);
        let of = async |from: &str, to: &str| fixture.api.get(&format!("{USAGE}?from={from}&to={to}")).await;
        assert_eq!(of("2020-01-01T00:00:00Z", "2020-12-31T23:00:00Z").await.expect(200)["items"], json!([]));
        for (from, to) in [
            ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
            ("2020-01-02T00:00:00Z", "2020-01-01T00:00:00Z"),
            ("yesterday", "2020-01-01T00:00:00Z"),
        ] {
            of(from, to).await.problem(400, "INVALID_ARGUMENT");
        }
        fixture.api.get(&format!("{USAGE}?by=hour")).await.problem(400, "INVALID_ARGUMENT");
    }
}
