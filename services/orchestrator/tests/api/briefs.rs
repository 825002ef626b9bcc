//! The internal listener: an owner's runs in brief.

use ensemble_rpc::RpcError;
use ensemble_rpc::orchestrator::{ListRunsRequest, RunReader, RunReaderClient, ShowRunRequest};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use serde_json::json;

use crate::fixture::{Fixture, RUNS, path, task};

on_both_databases! {
    async fn the_voice_of_an_owner_reads_runs_in_brief(on: Backend) {
        let fixture = Fixture::new(on).await;
        let reader = RunReaderClient::new(channel_to(&fixture.service().internal_url()));
        let list = |limit: u32, active_only: bool| {
            reader.list(ListRunsRequest { user_id: fixture.user.to_string(), limit, active_only })
        };
        let show = |user_id: String, run: String| reader.show(ShowRunRequest { user_id, run });
        let asks = fixture.api.post(RUNS, &json!({ "title": "Fix it", "tasks": [
            { "prompt": "first", "provider": "claude", "taskKey": "a", "title": "One" },
            { "prompt": "then", "provider": "claude", "taskKey": "b", "dependsOn": ["a"] },
        ] })).await.expect(201);
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let long = "é".repeat(1_500);
        let body = json!({ "status": "failed", "error": { "code": "BROKEN", "message": long }, "outputSummary": long });
        runner.report(&lease, "finish", body).await.expect(200);
        let other = fixture.submit(json!([task("x")])).await;

        let runs = list(20, false).await.unwrap();
        assert_eq!((runs.runs.len(), runs.more), (2, false));
        assert_eq!([&runs.runs[0].id, &runs.runs[1].id], [other["id"].as_str().unwrap(), asks["id"].as_str().unwrap()]);
        assert_eq!(list(20, true).await.unwrap().runs[0].id, other["id"].as_str().unwrap());
        let one = list(1, false).await.unwrap();
        assert_eq!((one.runs.len(), one.more), (1, true));
        for limit in [0, 21] {
            assert!(matches!(list(limit, false).await, Err(RpcError::Invalid(_))));
        }

        let of_user = fixture.user.to_string();
        for name in [&asks["id"], &asks["ref"]] {
            let shown = show(of_user.clone(), name.as_str().unwrap().to_owned()).await.unwrap();
            let run = shown.run.unwrap();
            assert_eq!((run.title.as_str(), run.status.as_str(), run.total, run.failed), ("Fix it", "failed", 2, 2));
            assert_ne!(run.finished_at, 0);
            let [first, second] = &shown.tasks[..] else { panic!("{:?}", shown.tasks) };
            assert_eq!((first.key.as_str(), first.title.as_str(), first.status.as_str()), ("a", "One", "failed"));
            assert_eq!((first.error_code.as_str(), first.sealed), ("BROKEN", false));
            assert!(first.error_message.chars().count() <= 301 && first.error_message.ends_with("é…"));
            assert!(first.output_summary.chars().count() <= 1_001);
            assert_eq!(second.status, "dependency_failed");
        }
        let mut tasks = vec![task("x"); 30];
        tasks[1]["dependsOn"] = json!(["0"]);
        let many = fixture.submit(json!(tasks)).await;
        let shown = show(of_user.clone(), many["id"].as_str().unwrap().to_owned()).await.unwrap();
        assert_eq!((shown.tasks.len(), shown.more), (20, true));
        assert_eq!(shown.tasks[1].waiting_for, "dependencies");
        // A run of another account, and none at all.
        let stranger = fixture.peers.new_user().to_string();
        for (user, run) in [(stranger, many["id"].as_str().unwrap()), (of_user.clone(), "00000000"), (of_user, "x")] {
            assert!(matches!(show(user, run.to_owned()).await, Err(RpcError::NotFound(_))));
        }
        fixture.api.delete(&path(&asks, "")).await.expect(200);
        assert!(list(20, false).await.unwrap().runs.iter().all(|run| run.title != "Fix it"));
    }
}
