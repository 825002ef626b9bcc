//! Dependencies between tasks, and what a failure does to dependent tasks.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::fixture::{Fixture, statuses};

on_both_databases! {
    async fn a_task_runs_when_the_last_of_its_dependencies_has_completed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b" },
            { "prompt": "c", "provider": "claude", "dependsOn": ["b", "a"] },
        ])).await;
        let ids: Vec<_> = (0..3).map(|at| run["tasks"][at]["id"].clone()).collect();
        assert_eq!(run["tasks"][2]["dependsOn"], json!([ids[1], ids[0]]), "in the order they were named");
        let runner = fixture.runner();
        let leases = runner.lease(8).await;
        assert_eq!(leases.len(), 2);
        runner.complete(&leases[0]).await;
        assert!(runner.lease(8).await.is_empty());
        assert_eq!(fixture.run(&run).await["tasks"][2]["waitingFor"], "dependencies");
        runner.complete(&leases[1]).await;
        let last = runner.lease(8).await;
        assert_eq!(last.len(), 1);
        runner.complete(&last[0]).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_failure_fails_its_dependents_and_nothing_else(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b", "dependsOn": ["a"] },
            { "prompt": "c", "provider": "claude", "taskKey": "c", "dependsOn": ["b"] },
            { "prompt": "d", "provider": "claude", "taskKey": "d" },
            { "prompt": "e", "provider": "claude", "taskKey": "e", "dependsOn": ["d", "c"] },
            { "prompt": "f", "provider": "claude", "dependsOn": ["d"] },
        ])).await;
        let runner = fixture.runner();
        let leases = runner.lease(8).await;
        let failed = runner.report(&leases[0], "finish", json!({ "status": "failed", "exitCode": 3, "error": { "code": "MODEL", "message": "It refused." } })).await;
        assert_eq!(failed.expect(200)["taskStatus"], "failed");
        let now = fixture.run(&run).await;
        assert_eq!(statuses(&now), ["failed", "dependency_failed", "dependency_failed", "dispatching", "dependency_failed", "queued"]);
        assert_eq!(now["summary"]["failed"], 4);
        assert_eq!(now["status"], "running", "the rest continues");
        assert_eq!(now["tasks"][0]["error"], json!({ "code": "MODEL", "message": "It refused." }));
        assert_eq!(now["tasks"][4]["error"]["code"], "DEPENDENCY_FAILED");
        runner.complete(&leases[1]).await;
        runner.complete(&runner.lease_one().await).await;
        let run = fixture.wait_for_end(&run).await;
        assert_eq!(run["status"], "failed");
        assert_eq!(run["tasks"][5]["status"], "completed");
    }

    async fn outputs_are_filled_into_prompts_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": r"1 {{tasks.a.output}} 2 \{{tasks.a.output}} {{tasks.b.prompt}}", "provider": "claude", "dependsOn": ["0"] },
        ])).await;
        let runner = fixture.runner();
        let first = runner.lease_one().await;
        runner.report(&first, "finish", json!({ "status": "completed", "outputSummary": "{{tasks.a.output}} 🦀" })).await.expect(200);
        let second = runner.lease_one().await;
        assert_eq!(second["prompt"], "1 {{tasks.a.output}} 🦀 2 {{tasks.a.output}} {{tasks.b.prompt}}");
    }

    async fn a_rendered_prompt_that_is_too_large_fails_its_task(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "{{tasks.a.output}}".repeat(70), "provider": "claude", "dependsOn": ["a"] },
        ])).await;
        let runner = fixture.runner();
        let first = runner.lease_one().await;
        runner.report(&first, "finish", json!({ "status": "completed", "outputSummary": "x".repeat(16_384) })).await.expect(200);
        assert!(runner.lease(1).await.is_empty());
        let run = fixture.wait_for_end(&run).await;
        assert_eq!(run["tasks"][1]["error"]["code"], "PROMPT_TOO_LARGE");
    }
}
