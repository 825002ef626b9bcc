//! Machines that are deleted.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::fixture::{Fixture, statuses, task};

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
}
