//! Who waits for whom, and what a failure does to those who wait.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::world::{World, statuses};

on_both_databases! {
    async fn a_task_runs_when_the_last_of_its_dependencies_has_completed(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b" },
            { "prompt": "c", "provider": "claude", "dependsOn": ["b", "a"] },
        ])).await;
        let ids: Vec<_> = (0..3).map(|at| run["tasks"][at]["id"].clone()).collect();
        assert_eq!(run["tasks"][2]["dependsOn"], json!([ids[1], ids[0]]), "in the order they were named");
        let runner = world.runner();
        let leases = runner.take(8).await;
        assert_eq!(leases.len(), 2);
        runner.complete(&leases[0]).await;
        assert!(runner.take(8).await.is_empty());
        assert_eq!(world.run(&run).await["tasks"][2]["waitingFor"], "dependencies");
        runner.complete(&leases[1]).await;
        let last = runner.take(8).await;
        assert_eq!(last.len(), 1);
        runner.complete(&last[0]).await;
        assert_eq!(world.ended(&run).await["status"], "completed");
    }

    async fn a_failure_gives_up_all_that_wait_for_it_and_nothing_else(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b", "dependsOn": ["a"] },
            { "prompt": "c", "provider": "claude", "taskKey": "c", "dependsOn": ["b"] },
            { "prompt": "d", "provider": "claude", "taskKey": "d" },
            { "prompt": "e", "provider": "claude", "taskKey": "e", "dependsOn": ["d", "c"] },
            { "prompt": "f", "provider": "claude", "dependsOn": ["d"] },
        ])).await;
        let runner = world.runner();
        let leases = runner.take(8).await;
        let failed = runner.say(&leases[0], "finish", json!({ "status": "failed", "exitCode": 3, "error": { "code": "MODEL", "message": "It refused." } })).await;
        assert_eq!(failed.expect(200)["taskStatus"], "failed");
        let now = world.run(&run).await;
        assert_eq!(statuses(&now), ["failed", "dependency_failed", "dependency_failed", "dispatching", "dependency_failed", "queued"]);
        assert_eq!(now["summary"]["failed"], 4);
        assert_eq!(now["status"], "running", "the rest goes on");
        assert_eq!(now["tasks"][0]["error"], json!({ "code": "MODEL", "message": "It refused." }));
        assert_eq!(now["tasks"][4]["error"]["code"], "DEPENDENCY_FAILED");
        runner.complete(&leases[1]).await;
        runner.complete(&runner.one().await).await;
        let run = world.ended(&run).await;
        assert_eq!(run["status"], "failed");
        assert_eq!(run["tasks"][5]["status"], "completed");
    }

    async fn outputs_go_into_prompts_once(on: Backend) {
        let world = World::new(on).await;
        world.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": r"1 {{tasks.a.output}} 2 \{{tasks.a.output}} {{tasks.b.prompt}}", "provider": "claude", "dependsOn": ["0"] },
        ])).await;
        let runner = world.runner();
        let first = runner.one().await;
        runner.say(&first, "finish", json!({ "status": "completed", "outputSummary": "{{tasks.a.output}} 🦀" })).await.expect(200);
        let second = runner.one().await;
        assert_eq!(second["prompt"], "1 {{tasks.a.output}} 🦀 2 {{tasks.a.output}} {{tasks.b.prompt}}");
    }

    async fn a_prompt_that_grows_too_large_fails_its_task(on: Backend) {
        let world = World::new(on).await;
        let run = world.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "{{tasks.a.output}}".repeat(70), "provider": "claude", "dependsOn": ["a"] },
        ])).await;
        let runner = world.runner();
        let first = runner.one().await;
        runner.say(&first, "finish", json!({ "status": "completed", "outputSummary": "x".repeat(16_384) })).await.expect(200);
        assert!(runner.take(1).await.is_empty());
        let run = world.ended(&run).await;
        assert_eq!(run["tasks"][1]["error"]["code"], "PROMPT_TOO_LARGE");
    }
}
