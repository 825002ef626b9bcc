//! Machines that are deleted.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::world::{World, statuses, task};

on_both_databases! {
    async fn a_deleted_machine_leaves_nothing_behind(on: Backend) {
        let world = World::new(on).await;
        let (gone, other) = (world.runner(), world.runner());
        let run = world.submit_run(json!({ "tasks": [
            { "prompt": "free", "provider": "claude" },
            { "prompt": "held", "provider": "claude", "machineId": gone.id },
            { "prompt": "waits", "provider": "claude", "machineId": gone.id, "dependsOn": ["0"] },
            { "prompt": "pinned", "provider": "claude", "machineId": gone.id },
            { "prompt": "after", "provider": "claude", "dependsOn": ["3"] },
        ], "maxConcurrency": 2 })).await;
        let leases = gone.take(2).await;
        gone.beat(&leases[0]).await.expect(200);
        let elsewhere = world.submit(json!([task("x")])).await;
        let ended = world.end_machine(&gone, world.now().await).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (2, 3));
        let now = world.run(&run).await;
        assert_eq!(statuses(&now), ["queued", "failed", "failed", "failed", "dependency_failed"]);
        assert_eq!(now["tasks"][1]["error"]["code"], "MACHINE_DELETED");
        gone.beat(&leases[0]).await.problem(409, "LEASE_LOST");
        gone.finish(&leases[0], "completed").await.problem(409, "LEASE_LOST");
        let again = world.end_machine(&gone, world.now().await).await;
        assert_eq!((again.leases_ended, again.tasks_failed), (0, 0));
        let leases = other.take(2).await;
        assert_eq!(leases.len(), 2, "the run is free to go to another machine");
        for lease in &leases {
            other.complete(lease).await;
        }
        assert_eq!(world.ended(&run).await["status"], "failed");
        assert_eq!(world.ended(&elsewhere).await["status"], "completed");
    }

    async fn what_came_after_the_deletion_stays(on: Backend) {
        let world = World::new(on).await;
        let before = world.now().await;
        let runner = world.runner();
        let run = world.submit(json!([{ "prompt": "a", "provider": "claude", "machineId": runner.id }])).await;
        let lease = runner.one().await;
        let ended = world.end_machine(&runner, before - 1_000_000).await;
        assert_eq!((ended.leases_ended, ended.tasks_failed), (0, 0));
        runner.complete(&lease).await;
        assert_eq!(world.ended(&run).await["status"], "completed");
    }
}
