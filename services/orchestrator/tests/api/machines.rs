//! Machines that are deleted.

use ensemble_testkit::{SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, path, statuses, task};

on_both_databases! {
    async fn the_leases_and_pinned_tasks_of_a_deleted_machine_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let run = fixture.submit_run(json!({ "tasks": [
            { "prompt": "free", "provider": "claude" },
            { "prompt": "held", "provider": "claude", "machineId": gone.id },
            { "prompt": "waits", "provider": "claude", "machineId": gone.id, "dependsOn": ["0"] },
            { "prompt": "pinned", "provider": "claude", "machineId": gone.id },
            { "prompt": "after", "provider": "claude", "dependsOn": ["3"] },
        ], "maxConcurrency": 2 })).await;
        let leases = gone.lease(2).await;
        gone.heartbeat(&leases[0]).await.expect(200);
        let elsewhere = fixture.submit(json!([task("x")])).await;
        let ended = fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (2, 3));
        let now = fixture.run(&run).await;
        assert_eq!(statuses(&now), ["queued", "failed", "failed", "failed", "dependency_failed"]);
        assert_eq!(now["tasks"][1]["error"]["code"], "MACHINE_DELETED");
        gone.heartbeat(&leases[0]).await.problem(409, "LEASE_LOST");
        gone.finish(&leases[0], "completed").await.problem(409, "LEASE_LOST");
        let again = fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!((again.leases_ended, again.tasks_failed), (0, 0));
        let leases = other.lease(2).await;
        assert_eq!(leases.len(), 2, "the run is free to go to another machine");
        for lease in &leases {
            other.complete(lease).await;
        }
        assert_eq!(fixture.wait_for_end(&run).await["status"], "failed");
        assert_eq!(fixture.wait_for_end(&elsewhere).await["status"], "completed");
    }

    async fn leases_after_the_deletion_belong_to_a_new_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let before = fixture.now().await;
        let runner = fixture.runner();
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "machineId": runner.id }])).await;
        let lease = runner.lease_one().await;
        let ended = fixture.delete_machine(&runner, before - 1_000_000).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (0, 0));
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_deleted_machine_gets_nothing_until_it_is_registered_again(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let pinned = json!({ "prompt": "a", "provider": "claude", "machineId": gone.id });
        // Now the service has the machine in its cache.
        let first = fixture.submit(json!([pinned])).await;
        let deleted_at = fixture.now().await;
        fixture.delete_machine(&gone, deleted_at).await;
        assert_eq!(fixture.wait_for_end(&first).await["status"], "failed");
        fixture.submit(json!([task("for anyone")])).await;
        assert!(gone.lease(1).await.is_empty(), "the first task of a new run goes to a machine that exists");
        let refused = fixture.api.post(RUNS, &json!({ "tasks": [pinned] })).await;
        refused.problem(404, "MACHINE_NOT_FOUND");
        other.complete(&other.lease_one().await).await;
        fixture.peers.register_machine(fixture.user, &gone.id);
        let second = fixture.submit(json!([pinned])).await;
        let lease = gone.lease_one().await;
        let again = fixture.delete_machine(&gone, deleted_at).await;
        assert_eq!((again.leases_ended, again.tasks_failed), (0, 0), "the report of the earlier deletion is repeated");
        gone.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&second).await["status"], "completed");
        fixture.delete_machine(&gone, fixture.now().await).await;
        fixture.submit(json!([task("for anyone")])).await;
        assert!(gone.lease(1).await.is_empty(), "the second machine was deleted as well");
    }

    async fn a_deletion_ends_what_is_newer_by_the_clock_of_another_database(on: Backend) {
        let fixture = Fixture::new(on).await;
        let gone = fixture.runner();
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "machineId": gone.id }])).await;
        let before = fixture.now().await;
        gone.lease_one().await;
        let ended = fixture.delete_machine(&gone, before).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (1, 1));
        assert_eq!(fixture.wait_for_end(&run).await["tasks"][0]["error"]["code"], "MACHINE_DELETED");
    }

    async fn a_late_report_of_a_deleted_machine_is_refused(on: Backend) {
        let vars = [("ORCHESTRATOR_LEASE_MS", "300"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        let fixture = Fixture::with(on, &vars).await;
        let run = fixture.submit(json!([task("a")])).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let lease = gone.lease_one().await;
        gone.heartbeat(&lease).await.expect(200);
        eventually(SOON, async || statuses(&fixture.run(&run).await) == ["queued"]).await;
        fixture.delete_machine(&gone, fixture.now().await).await;
        gone.heartbeat(&lease).await.problem(409, "LEASE_LOST");
        gone.finish(&lease, "completed").await.problem(409, "LEASE_LOST");
        other.complete(&other.lease_one().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn tasks_that_followed_their_run_go_to_others_unless_their_files_are_gone(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let run = fixture.submit_run(following(false)).await;
        gone.complete(&gone.lease_one().await).await;
        assert_eq!(gone.lease(2).await.len(), 2);
        let ended = fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (2, 2));
        let now = fixture.run(&run).await;
        assert_eq!(statuses(&now), ["completed", "failed", "queued", "failed", "queued", "dependency_failed"]);
        for failed in [1, 3] {
            assert_eq!(now["tasks"][failed]["error"]["code"], "MACHINE_DELETED");
        }
        for lease in other.lease(2).await {
            other.complete(&lease).await;
        }
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!(
            statuses(&ended),
            ["completed", "failed", "completed", "failed", "completed", "dependency_failed"]
        );
        let retried = fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!(retried["status"], "failed", "the files are still gone");
        assert_eq!(retried["tasks"][1]["error"]["code"], "MACHINE_DELETED");
    }

    async fn tasks_of_a_spread_run_expect_no_files(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let run = fixture.submit_run(following(true)).await;
        gone.complete(&gone.lease_one().await).await;
        assert_eq!(gone.lease(2).await.len(), 2);
        let ended = fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (2, 0));
        for _ in 0..5 {
            other.complete(&other.lease_one().await).await;
        }
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_retry_fails_what_needs_a_deleted_machine_until_it_is_registered_again(on: Backend) {
        let fixture = Fixture::new(on).await;
        let gone = fixture.runner();
        let run = fixture.submit(json!([
            { "prompt": "pinned", "provider": "claude", "machineId": gone.id },
            { "prompt": "after", "provider": "claude", "dependsOn": ["0"] },
        ])).await;
        fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "failed");
        let retry = async || fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let retried = retry().await;
        assert_eq!(retried["status"], "failed");
        assert_eq!(statuses(&retried), ["failed", "dependency_failed"]);
        assert_eq!(retried["tasks"][0]["error"]["code"], "MACHINE_DELETED");
        fixture.peers.register_machine(fixture.user, &gone.id);
        assert_eq!(statuses(&retry().await), ["queued", "queued"]);
        for _ in 0..2 {
            gone.complete(&gone.lease_one().await).await;
        }
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }
}

/// A run whose first task has two dependents, and two tasks without dependencies. Two tasks run at once: after the first
/// task, a runner gets the next two.
fn following(spread: bool) -> Value {
    json!({ "tasks": [
        { "prompt": "files", "provider": "claude" },
        { "prompt": "held with files", "provider": "claude", "dependsOn": ["0"] },
        { "prompt": "held", "provider": "claude" },
        { "prompt": "waits with files", "provider": "claude", "dependsOn": ["0"] },
        { "prompt": "waits", "provider": "claude" },
        { "prompt": "after", "provider": "claude", "dependsOn": ["1"] },
    ], "maxConcurrency": 2, "spread": spread })
}
