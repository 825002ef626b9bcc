//! Further attempts: by the task's retry policy, and when the owner retries the run.

use ensemble_testkit::{SOON, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, path, statuses, task};

on_both_databases! {
    async fn a_task_is_retried_after_its_pause(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude",
            "retry": { "maxAttempts": 3, "backoffMs": 300, "backoffFactor": 1 } }])).await;
        let runner = fixture.runner();
        for attempt in 1..=3 {
            let lease = runner.lease_one().await;
            assert_eq!(lease["attempt"], attempt);
            assert_eq!(lease["resume"], if attempt == 1 { json!(null) } else { json!("s") });
            let report = json!({ "status": "failed", "providerSessionId": "s", "error": { "code": "X", "message": "y" } });
            let response = runner.report(&lease, "finish", report).await.expect(200);
            assert_eq!(response["taskStatus"], if attempt < 3 { "queued" } else { "failed" });
            if attempt < 3 {
                let now = fixture.run(&run).await;
                assert_eq!(now["tasks"][0]["waitingFor"], "backoff");
                assert_eq!(now["tasks"][0]["error"]["code"], "X", "the error of the last attempt");
                assert!(runner.lease(1).await.is_empty());
                runner.finish(&lease, "failed").await.expect(200);
            }
        }
        let run = fixture.wait_for_end(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["attempt"]), (&json!("failed"), &json!(3)));
    }

    async fn a_retry_queues_the_tasks_that_did_not_complete(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b" },
            { "prompt": "c", "provider": "claude", "dependsOn": ["a", "b"] },
        ])).await;
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
        let runner = fixture.runner();
        let leases = runner.lease(2).await;
        runner.report(&leases[0], "finish", json!({ "status": "completed", "outputSummary": "kept" })).await.expect(200);
        runner.finish(&leases[1], "failed").await.expect(200);
        let failed = fixture.wait_for_end(&run).await;
        assert_eq!(statuses(&failed), ["completed", "failed", "dependency_failed"]);
        let again = fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!((&again["status"], statuses(&again)), (&json!("running"), vec!["completed", "queued", "queued"]));
        assert_eq!((&again["finishedAt"], &again["tasks"][1]["error"]), (&json!(null), &json!(null)));
        assert_eq!(again["tasks"][0]["outputSummary"], "kept");
        let leases = runner.lease(8).await;
        assert_eq!((leases.len(), &leases[0]["attempt"]), (1, &json!(2)));
        runner.complete(&leases[0]).await;
        runner.complete(&runner.lease_one().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
    }

    async fn a_cancelled_run_can_be_retried_after_it_has_ended(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        fixture.api.post(&path(&run, "/cancel"), &json!({ "reason": "no" })).await.expect(200);
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");
        runner.finish(&lease, "cancelled").await.expect(200);
        let again = fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!((&again["status"], &again["cancelReason"]), (&json!("running"), &json!(null)));
        for _ in 0..2 {
            runner.complete(&runner.wait(1, SOON).await[0]).await;
        }
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }
}
