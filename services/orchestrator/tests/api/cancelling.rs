//! Cancelling a run.

use std::time::Duration;

use ensemble_testkit::{Api, eventually, on_both_databases};
use serde_json::json;

use crate::world::{World, path, statuses, task};

on_both_databases! {
    async fn what_is_queued_ends_at_once_and_runners_are_told(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a"), { "prompt": "b", "provider": "claude", "dependsOn": ["0"] }])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        assert_eq!(runner.beat(&lease).await.expect(200)["cancelRequested"], false);
        let now = world.api.post(&path(&run, "/cancel"), &json!({ "reason": "Enough." })).await.expect(200);
        assert_eq!((&now["status"], &now["cancelReason"]), (&json!("canceling"), &json!("Enough.")));
        assert_eq!(statuses(&now), ["running", "cancelled"]);
        let again = world.api.post(&path(&run, "/cancel"), &json!({ "reason": "Again." })).await.expect(200);
        assert_eq!((&again["version"], &again["cancelReason"]), (&now["version"], &json!("Enough.")));
        assert_eq!(runner.beat(&lease).await.expect(200)["cancelRequested"], true);
        assert_eq!(runner.finish(&lease, "cancelled").await.expect(200)["taskStatus"], "cancelled");
        let run = world.ended(&run).await;
        assert_eq!((&run["status"], &run["summary"]["cancelled"]), (&json!("cancelled"), &json!(2)));
        let unchanged = Api::send(world.api.request("POST", &path(&run, "/cancel"))).await.expect(200);
        assert_eq!(unchanged["version"], run["version"]);
        assert!(runner.take(8).await.is_empty());
    }

    async fn a_run_that_nobody_took_ends_in_the_same_moment(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a"), task("b")])).await;
        let now = Api::send(world.api.request("POST", &path(&run, "/cancel"))).await.expect(200);
        assert_eq!((&now["status"], statuses(&now)), (&json!("cancelled"), vec!["cancelled", "cancelled"]));
        let bad = world.api.post(&path(&run, "/cancel"), &json!({ "reason": "x".repeat(513) })).await;
        assert_eq!(bad.bad_fields(), ["/reason"]);
    }

    async fn a_run_whose_cancel_was_accepted_ends_cancelled_whatever_its_tasks_came_to(on: Backend) {
        let world = World::new(on).await;
        for (status, task_status) in [("completed", "completed"), ("failed", "failed"), ("timeout", "failed")] {
            let run = world.submit(json!([{ "prompt": "a", "provider": "claude", "retry": { "maxAttempts": 3 } }])).await;
            let runner = world.runner();
            let lease = runner.one().await;
            world.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
            assert_eq!(runner.finish(&lease, status).await.expect(200)["taskStatus"], task_status);
            assert_eq!(world.ended(&run).await["status"], "cancelled");
        }
    }

    async fn a_machine_that_is_off_does_not_keep_a_run_from_ending(on: Backend) {
        let vars = [("ORCHESTRATOR_LEASE_MS", "1000"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        let world = World::with(on, &vars).await;
        let run = world.submit(json!([task("a"), task("b")])).await;
        let runner = world.runner();
        let leases = runner.take(2).await;
        runner.beat(&leases[0]).await.expect(200);
        world.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        // One is off, the other goes on beating without ending: neither holds the run up.
        eventually(Duration::from_secs(15), async || {
            runner.beat(&leases[0]).await;
            world.run(&run).await["tasks"][0]["status"] == "cancelled"
        }).await;
        let done = world.api.post(&path(&run, "/pend"), &json!({ "waitFor": "terminal", "timeoutMs": 20_000 })).await.expect(200);
        assert_eq!(done["status"], "cancelled");
        runner.finish(&leases[0], "completed").await.problem(409, "LEASE_LOST");
    }
}
