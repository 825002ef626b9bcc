//! Cancelling a run.

use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, LEASES, NO_SWEEP, path, statuses, task};

on_both_databases! {
    async fn queued_tasks_end_at_once_and_runners_get_the_request(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), { "prompt": "b", "provider": "claude", "dependsOn": ["0"] }])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!(runner.heartbeat(&lease).await.expect(200)["cancelRequested"], false);
        let now = fixture.api.post(&path(&run, "/cancel"), &json!({ "reason": "Enough." })).await.expect(200);
        assert_eq!((&now["status"], &now["cancelReason"]), (&json!("canceling"), &json!("Enough.")));
        assert_eq!(statuses(&now), ["running", "cancelled"]);
        let again = fixture.api.post(&path(&run, "/cancel"), &json!({ "reason": "Again." })).await.expect(200);
        assert_eq!((&again["version"], &again["cancelReason"]), (&now["version"], &json!("Enough.")));
        assert_eq!(runner.heartbeat(&lease).await.expect(200)["cancelRequested"], true);
        assert_eq!(runner.finish(&lease, "cancelled").await.expect(200)["taskStatus"], "cancelled");
        let run = fixture.wait_for_end(&run).await;
        assert_eq!((&run["status"], &run["summary"]["cancelled"]), (&json!("cancelled"), &json!(2)));
        let unchanged = Api::send(fixture.api.request("POST", &path(&run, "/cancel"))).await.expect(200);
        assert_eq!(unchanged["version"], run["version"]);
        assert!(runner.lease(8).await.is_empty());
    }

    async fn an_open_request_gets_the_order_to_cancel_without_a_sweep(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        let orders = json!({ "machineId": runner.id, "providers": [], "capacity": 0, "waitMs": 60_000 });
        let (api, body) = (runner.api.clone(), orders.clone());
        let waiting = tokio::spawn(async move { api.post(LEASES, &body).await.expect(200) });
        fixture.wait_for_requests(1).await;
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        let answer = waiting.await.unwrap();
        let order = json!({ "id": lease["id"], "kind": "cancel", "runId": run["id"], "taskId": lease["taskId"],
            "leaseId": lease["id"], "fence": 1 });
        assert_eq!(answer, json!({ "leases": [], "orders": [order] }));
        assert_eq!(runner.api.post(LEASES, &orders).await.expect(200)["orders"][0], order, "until a heartbeat receives it");
        assert!(fixture.runner().api.post(LEASES, &json!({ "machineId": "x" })).await.status >= 400);
        assert_eq!(runner.heartbeat(&lease).await.expect(200)["cancelRequested"], true);
        let mut now = orders;
        now["waitMs"] = json!(0);
        assert_eq!(runner.api.post(LEASES, &now).await.expect(200)["orders"], json!([]));
    }

    async fn a_run_without_running_tasks_ends_at_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let now = Api::send(fixture.api.request("POST", &path(&run, "/cancel"))).await.expect(200);
        assert_eq!((&now["status"], statuses(&now)), (&json!("cancelled"), vec!["cancelled", "cancelled"]));
        let bad = fixture.api.post(&path(&run, "/cancel"), &json!({ "reason": "x".repeat(513) })).await;
        assert_eq!(bad.bad_fields(), ["/reason"]);
    }

    async fn a_cancelled_run_ends_cancelled_however_its_tasks_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        for (status, task_status) in [("completed", "completed"), ("failed", "failed"), ("timeout", "failed")] {
            let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "retry": { "maxAttempts": 3 } }])).await;
            let runner = fixture.runner();
            let lease = runner.lease_one().await;
            fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
            assert_eq!(runner.finish(&lease, status).await.expect(200)["taskStatus"], task_status);
            assert_eq!(fixture.wait_for_end(&run).await["status"], "cancelled");
        }
    }

    async fn a_cancelled_run_ends_without_its_machines(on: Backend) {
        let vars = [
            ("ORCHESTRATOR_LEASE_MS", "1000"),
            ("ORCHESTRATOR_FIRST_BEAT_MS", "1000"),
            ("ORCHESTRATOR_SWEEP_MS", "100"),
        ];
        let fixture = Fixture::with(on, &vars).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let runner = fixture.runner();
        let leases = runner.lease(2).await;
        runner.heartbeat(&leases[0]).await.expect(200);
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        // One runner is off, and the other one sends heartbeats without ending its attempt. The run ends anyway.
        eventually(SOON, async || {
            runner.heartbeat(&leases[0]).await;
            fixture.run(&run).await["tasks"][0]["status"] == "cancelled"
        }).await;
        let done = fixture.api.post(&path(&run, "/pend"), &json!({ "waitFor": "terminal", "timeoutMs": 100_000 })).await.expect(200);
        assert_eq!(done["status"], "cancelled");
        runner.finish(&leases[0], "completed").await.problem(409, "LEASE_LOST");
    }
}
