//! Leases: heartbeats, fences and reports.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::fixture::{Fixture, task};

on_both_databases! {
    async fn a_report_can_be_repeated_and_the_first_one_counts(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let reports = (0..8).map(|_| runner.finish(&lease, "completed"));
        for answer in futures_util::future::join_all(reports).await {
            assert_eq!(answer.expect(200), json!({ "taskStatus": "completed" }));
        }
        assert_eq!(runner.finish(&lease, "failed").await.expect(200)["taskStatus"], "completed");
        runner.heartbeat(&lease).await.problem(409, "LEASE_LOST");
        runner.output(&lease, 0, "late").await.problem(409, "LEASE_LOST");
        let now = fixture.run(&run).await;
        assert_eq!((&now["status"], &now["summary"]["completed"], &now["version"]), (&json!("completed"), &json!(1), &json!(3)));
    }

    async fn many_reports_at_once_complete_each_task_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit_run(json!({ "tasks": vec![task("x"); 32], "maxConcurrency": 32 })).await;
        let runner = fixture.runner();
        let leases = runner.lease(32).await;
        assert_eq!(leases.len(), 32);
        let reports = leases.iter().flat_map(|lease| [runner.finish(lease, "completed"), runner.finish(lease, "failed")]);
        let answers = futures_util::future::join_all(reports).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        for pair in answers.chunks(2) {
            assert_eq!(pair[0].json(), pair[1].json(), "both get the same task status");
        }
        let summary = fixture.wait_for_end(&run).await["summary"].clone();
        let count = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!(count("completed") + count("failed"), 32, "{summary}");
    }

    async fn a_heartbeat_and_output_start_an_attempt(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b"), task("c")])).await;
        let runner = fixture.runner();
        let leases = runner.lease(3).await;
        runner.heartbeat(&leases[0]).await.expect(200);
        runner.output(&leases[1], 0, "x").await.expect(200);
        runner.finish(&leases[2], "completed").await.expect(200);
        let now = fixture.run(&run).await;
        for (at, status) in ["running", "running", "completed"].iter().enumerate() {
            assert_eq!(now["tasks"][at]["status"], *status);
            assert!(now["tasks"][at]["startedAt"].is_string());
        }
    }

    async fn a_heartbeat_extends_the_lease_and_changes_nothing_else(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let first = runner.heartbeat(&lease).await.expect(200);
        let version = fixture.run(&run).await["version"].clone();
        let second = runner.heartbeat(&lease).await.expect(200);
        assert!(second["expiresAt"].as_str() >= first["expiresAt"].as_str());
        assert_eq!(fixture.run(&run).await["version"], version);
    }

    async fn each_reported_end_has_its_error_code(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b"), task("c"), task("d")])).await;
        let runner = fixture.runner();
        let leases = runner.lease(4).await;
        for (lease, status) in leases.iter().zip(["timeout", "cancelled", "failed", "completed"]) {
            runner.finish(lease, status).await.expect(200);
        }
        // The runner stopped without being asked to. That is no failure of the agent, so there is another attempt.
        let again = runner.lease_one().await;
        assert_eq!((&again["taskId"], &again["attempt"]), (&leases[1]["taskId"], &json!(2)));
        runner.complete(&again).await;
        let run = fixture.wait_for_end(&run).await;
        assert_eq!(run["status"], "failed");
        let codes: Vec<_> = (0..4).map(|at| run["tasks"][at]["error"]["code"].clone()).collect();
        assert_eq!(codes, [json!("TIMEOUT"), json!(null), json!("FAILED"), json!(null)]);
    }
}
