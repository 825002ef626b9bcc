//! Other attempts: by the task's own policy, and because the owner wants them.

use std::time::Duration;

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::world::{World, path, statuses, task};

on_both_databases! {
    async fn a_task_is_tried_again_after_its_pause(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([{ "prompt": "a", "provider": "claude",
            "retry": { "maxAttempts": 3, "backoffMs": 300, "backoffFactor": 1 } }])).await;
        let runner = world.runner();
        for attempt in 1..=3 {
            let lease = runner.one().await;
            assert_eq!(lease["attempt"], attempt);
            assert_eq!(lease["resume"], if attempt == 1 { json!(null) } else { json!("s") });
            let report = json!({ "status": "failed", "providerSessionId": "s", "error": { "code": "X", "message": "y" } });
            let told = runner.say(&lease, "finish", report).await.expect(200);
            assert_eq!(told["taskStatus"], if attempt < 3 { "queued" } else { "failed" });
            if attempt < 3 {
                let now = world.run(&run).await;
                assert_eq!(now["tasks"][0]["waitingFor"], "backoff");
                assert_eq!(now["tasks"][0]["error"]["code"], "X", "why there is another attempt");
                assert!(runner.take(1).await.is_empty());
                runner.finish(&lease, "failed").await.expect(200);
            }
        }
        let run = world.ended(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["attempt"]), (&json!("failed"), &json!(3)));
    }

    async fn a_retry_takes_up_what_did_not_complete_and_nothing_else(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b" },
            { "prompt": "c", "provider": "claude", "dependsOn": ["a", "b"] },
        ])).await;
        world.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
        let runner = world.runner();
        let leases = runner.take(2).await;
        runner.say(&leases[0], "finish", json!({ "status": "completed", "outputSummary": "kept" })).await.expect(200);
        runner.finish(&leases[1], "failed").await.expect(200);
        let failed = world.ended(&run).await;
        assert_eq!(statuses(&failed), ["completed", "failed", "dependency_failed"]);
        let again = world.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!((&again["status"], statuses(&again)), (&json!("running"), vec!["completed", "queued", "queued"]));
        assert_eq!((&again["finishedAt"], &again["tasks"][1]["error"]), (&json!(null), &json!(null)));
        assert_eq!(again["tasks"][0]["outputSummary"], "kept");
        let leases = runner.take(8).await;
        assert_eq!((leases.len(), &leases[0]["attempt"]), (1, &json!(2)));
        runner.complete(&leases[0]).await;
        runner.complete(&runner.one().await).await;
        assert_eq!(world.ended(&run).await["status"], "completed");
        world.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
    }

    async fn a_cancelled_run_can_be_tried_again_when_it_has_ended(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([task("a"), task("b")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        world.api.post(&path(&run, "/cancel"), &json!({ "reason": "no" })).await.expect(200);
        world.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
        runner.finish(&lease, "cancelled").await.expect(200);
        let again = world.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!((&again["status"], &again["cancelReason"]), (&json!("running"), &json!(null)));
        for _ in 0..2 {
            runner.complete(&runner.wait(1, Duration::from_secs(10)).await[0]).await;
        }
        assert_eq!(world.ended(&run).await["status"], "completed");
    }
}
