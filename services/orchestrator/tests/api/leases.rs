//! Holding an attempt: heartbeats, fences, reports.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::world::{World, task};

on_both_databases! {
    async fn a_report_may_be_repeated_and_the_first_one_counts(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        let reports = (0..8).map(|_| runner.finish(&lease, "completed"));
        for answer in futures_util::future::join_all(reports).await {
            assert_eq!(answer.expect(200), json!({ "taskStatus": "completed" }));
        }
        assert_eq!(runner.finish(&lease, "failed").await.expect(200)["taskStatus"], "completed");
        runner.beat(&lease).await.problem(409, "LEASE_LOST");
        runner.output(&lease, 0, "late").await.problem(409, "LEASE_LOST");
        let now = world.run(&run).await;
        assert_eq!((&now["status"], &now["summary"]["completed"], &now["version"]), (&json!("completed"), &json!(1), &json!(3)));
    }

    async fn many_reports_at_once_complete_each_task_once(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit_run(json!({ "tasks": vec![task("x"); 32], "maxConcurrency": 32 })).await;
        let runner = world.runner();
        let leases = runner.take(32).await;
        assert_eq!(leases.len(), 32);
        let reports = leases.iter().flat_map(|lease| [runner.finish(lease, "completed"), runner.finish(lease, "failed")]);
        let answers = futures_util::future::join_all(reports).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        for pair in answers.chunks(2) {
            assert_eq!(pair[0].json(), pair[1].json(), "both are told what became of the task");
        }
        let summary = world.ended(&run).await["summary"].clone();
        let count = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!(count("completed") + count("failed"), 32, "{summary}");
    }

    async fn each_sign_of_life_makes_a_task_running(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a"), task("b"), task("c")])).await;
        let runner = world.runner();
        let leases = runner.take(3).await;
        runner.beat(&leases[0]).await.expect(200);
        runner.output(&leases[1], 0, "x").await.expect(200);
        runner.finish(&leases[2], "completed").await.expect(200);
        let now = world.run(&run).await;
        for (at, status) in ["running", "running", "completed"].iter().enumerate() {
            assert_eq!(now["tasks"][at]["status"], *status);
            assert!(now["tasks"][at]["startedAt"].is_string());
        }
    }

    async fn a_heartbeat_prolongs_the_lease_and_changes_nothing_else(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        let first = runner.beat(&lease).await.expect(200);
        let version = world.run(&run).await["version"].clone();
        let second = runner.beat(&lease).await.expect(200);
        assert!(second["expiresAt"].as_str() >= first["expiresAt"].as_str());
        assert_eq!(world.run(&run).await["version"], version);
    }

    async fn what_a_report_means_is_told_in_the_error(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a"), task("b"), task("c"), task("d")])).await;
        let runner = world.runner();
        let leases = runner.take(4).await;
        for (lease, status) in leases.iter().zip(["timeout", "cancelled", "failed", "completed"]) {
            runner.finish(lease, status).await.expect(200);
        }
        let run = world.ended(&run).await;
        assert_eq!(run["status"], "failed");
        let codes: Vec<_> = (0..4).map(|at| run["tasks"][at]["error"]["code"].clone()).collect();
        assert_eq!(codes, [json!("TIMEOUT"), json!("RUNNER_STOPPED"), json!("FAILED"), json!(null)]);
    }
}
