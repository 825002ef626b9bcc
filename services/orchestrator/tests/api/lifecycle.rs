//! One run from its submission to its end.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::fixture::{Fixture, RUNS, path, statuses};

on_both_databases! {
    async fn a_run_goes_from_its_first_task_to_its_last(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "Read it.", "provider": "claude", "taskKey": "read", "title": "Reading" },
            { "prompt": "Sum up: {{tasks.read.output}}", "provider": "codex", "dependsOn": ["read"], "model": "o3",
              "workingDirectory": "/tmp" },
        ])).await;
        assert_eq!((&run["status"], &run["version"]), (&json!("queued"), &json!(1)));
        assert_eq!(statuses(&run), ["queued", "queued"]);
        assert_eq!(run["tasks"][0]["dependsOn"], json!([]));
        assert_eq!(run["tasks"][1]["dependsOn"], json!([run["tasks"][0]["id"]]));
        assert_eq!(run["tasks"][0]["waitingFor"], "machine");
        assert_eq!(run["tasks"][1]["waitingFor"], "dependencies");

        let runner = fixture.runner();
        let leases = runner.lease(8).await;
        assert_eq!(leases.len(), 1);
        let first = &leases[0];
        assert_eq!(first["prompt"], "Read it.");
        assert_eq!((&first["attempt"], &first["taskId"]), (&json!(1), &run["tasks"][0]["id"]));
        assert_eq!(fixture.run(&run).await["tasks"][0]["status"], "dispatching");

        let beat = runner.heartbeat(first).await.expect(200);
        assert_eq!(beat["cancelRequested"], false);
        let now = fixture.run(&run).await;
        assert_eq!((&now["status"], &now["tasks"][0]["status"]), (&json!("running"), &json!("running")));
        assert_eq!(now["summary"], json!({ "total": 2, "queued": 1, "running": 1, "completed": 0, "failed": 0, "cancelled": 0 }));

        assert_eq!(runner.output(first, 0, "hällo ").await.expect(200)["nextOffset"], 7);
        assert_eq!(runner.output(first, 7, "world").await.expect(200)["nextOffset"], 12);
        let done = runner.report(first, "finish", json!({ "status": "completed", "exitCode": 0, "outputSummary": "It says so.",
            "providerSessionId": "s-1", "usage": { "inputTokens": 7, "outputTokens": 9, "costUsd": 0.25 } })).await;
        assert_eq!(done.expect(200), json!({ "taskStatus": "completed" }));

        let second = runner.lease_one().await;
        assert_eq!(second["prompt"], "Sum up: It says so.");
        assert_eq!((&second["provider"], &second["model"]), (&json!("codex"), &json!("o3")));
        runner.complete(&second).await;

        let run = fixture.wait_for_end(&run).await;
        assert_eq!(run["status"], "completed");
        assert_eq!(statuses(&run), ["completed", "completed"]);
        let first = &run["tasks"][0];
        assert_eq!((&first["outputSummary"], &first["exitCode"], &first["providerSessionId"]), (&json!("It says so."), &json!(0), &json!("s-1")));
        assert_eq!(first["usage"], json!({ "inputTokens": 7, "outputTokens": 9, "costUsd": 0.25 }));
        assert!(first["startedAt"].is_string() && first["finishedAt"].is_string() && run["finishedAt"].is_string());
        assert_eq!(first["machineId"], json!(runner.id));
        let output = fixture.api.get(&path(&run, &format!("/tasks/{}/output", first["id"].as_str().unwrap()))).await;
        assert_eq!((output.status, output.text.as_str()), (200, "hällo world"));
        let listed = fixture.api.get(RUNS).await.expect(200);
        assert_eq!(listed["runs"][0]["id"], run["id"]);
        assert!(listed["runs"][0].get("tasks").is_none());
    }
}
