//! Deleting runs.

use ensemble_testkit::{Backend, Events, SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, execute, number, path, task};

const TABLES: [&str; 9] = [
    "runs",
    "tasks",
    "task_specs",
    "task_permissions",
    "task_refusals",
    "dependencies",
    "leases",
    "output_chunks",
    // Their ids are remembered for longer.
    "deleted_runs WHERE NOT purged",
];

async fn rows(fixture: &Fixture) -> Vec<i64> {
    let mut rows = Vec::new();
    for table in TABLES {
        rows.push(number(fixture, &format!("SELECT count(*) FROM {table}")).await);
    }
    rows
}

/// A run of two tasks, one after the other, that has completed with output. Another machine handed the first one back.
async fn completed_run(fixture: &Fixture) -> Value {
    let run = fixture.submit(json!([
        { "prompt": "a", "provider": "claude", "taskKey": "a" },
        { "prompt": "b", "provider": "claude", "dependsOn": ["a"] },
    ]));
    let (run, runner, cannot) = (run.await, fixture.runner(), fixture.runner());
    assert!(runner.lease(0).await.is_empty());
    let refused = json!({ "status": "refused", "error": { "code": "HOST_BUSY", "message": "" } });
    cannot.report(&cannot.lease_one().await, "finish", refused).await.expect(200);
    for _ in 0..2 {
        let lease = runner.lease_one().await;
        runner.output(&lease, 0, "some output").await.expect(200);
        runner.report(&lease, "finish", json!({ "status": "completed", "permission": "edit" })).await.expect(200);
    }
    fixture.wait_for_end(&run).await
}

on_both_databases! {
    async fn a_run_is_deleted_with_all_that_belongs_to_it(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (run, kept) = (completed_run(&fixture).await, completed_run(&fixture).await);
        let kept_rows = vec![1, 2, 2, 2, 1, 1, 3, 2, 0];
        assert_eq!(fixture.api.delete(&path(&run, "")).await.expect(200), json!({ "success": true }));
        let output = format!("/tasks/{}/output", run["tasks"][0]["id"].as_str().unwrap());
        for rest in ["", "/pend", "/events", &output, &format!("{output}?follow=true")] {
            fixture.api.get(&path(&run, rest)).await.problem(404, "NOT_FOUND");
        }
        for rest in ["/cancel", "/retry"] {
            fixture.api.post(&path(&run, rest), &json!({})).await.problem(404, "NOT_FOUND");
        }
        fixture.api.delete(&path(&run, "")).await.problem(404, "NOT_FOUND");
        let listed = fixture.api.get(RUNS).await.expect(200);
        assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
        eventually(SOON, async || rows(&fixture).await == kept_rows).await;
        assert_eq!(fixture.run(&kept).await, kept);
    }

    async fn a_run_in_flight_is_not_deleted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let refused = async || {
            let problem = fixture.api.delete(&path(&run, "")).await.problem(409, "CONFLICT");
            assert!(problem["detail"].as_str().unwrap().contains("Cancel it first"), "{problem}");
        };
        refused().await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        refused().await;
        assert_eq!(fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200)["status"], "canceling");
        refused().await;
        runner.finish(&lease, "cancelled").await.expect(200);
        fixture.api.delete(&path(&run, "")).await.expect(200);
        runner.finish(&lease, "cancelled").await.problem(404, "NOT_FOUND");
        runner.output(&lease, 0, "late").await.problem(404, "NOT_FOUND");
        assert!(runner.lease(1).await.is_empty());
    }

    async fn only_the_owner_deletes_a_run(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = path(&completed_run(&fixture).await, "");
        fixture.other_account().delete(&run).await.problem(404, "NOT_FOUND");
        fixture.runner().api.delete(&run).await.problem(403, "FORBIDDEN");
        fixture.api.with_token("").delete(&run).await.problem(401, "UNAUTHENTICATED");
        fixture.api.delete(&format!("{RUNS}/01932b5e-7b1a-7c3e-8f00-000000000001")).await.problem(404, "NOT_FOUND");
        fixture.api.delete(&run).await.expect(200);
    }

    async fn a_deletion_frees_the_quota(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", "2000")]).await;
        let large = json!({ "tasks": [task(&"x".repeat(1_400))] });
        for _ in 0..3 {
            let run = fixture.submit_run(large.clone()).await;
            fixture.api.post(RUNS, &large).await.problem(429, "QUOTA_EXCEEDED");
            fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
            fixture.api.delete(&path(&run, "")).await.expect(200);
        }
        fixture.submit_run(large).await;
    }

    async fn a_run_is_kept_after_its_end_for_as_long_as_the_operator_says(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let (old, new) = (completed_run(&fixture).await, completed_run(&fixture).await);
        let running = fixture.submit(json!([task("a")])).await;
        let longer = match on {
            Backend::Postgres => "finished_at - interval '8 days'",
            Backend::Sqlite => "finished_at - 691200000000",
        };
        let set = format!("UPDATE runs SET finished_at = {longer}, created_at = created_at");
        execute(&fixture.url, &format!("{set} WHERE finished_at = (SELECT min(finished_at) FROM runs)")).await;
        // By default everything is kept.
        fixture.stop().await;
        fixture.start(&[]).await;
        fixture.api.get(&path(&old, "")).await.expect(200);
        fixture.stop().await;
        fixture.start(&[("RUN_RETENTION_DAYS", "7")]).await;
        eventually(SOON, async || fixture.api.get(&path(&old, "")).await.status == 404).await;
        for kept in [&new, &running] {
            fixture.api.get(&path(kept, "")).await.expect(200);
        }
        // With all that belonged to it.
        eventually(SOON, async || rows(&fixture).await[..3] == [2, 3, 3]).await;
        fixture.stop().await;
        fixture.start(&[("RUN_RETENTION_DAYS", "1")]).await;
        assert_eq!(fixture.api.get(&path(&new, "")).await.status, 200, "it ended a moment ago");
    }

    async fn a_repeated_submission_does_not_bring_a_run_back(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, body) = ("0123456789abcdef", json!({ "tasks": [task("a")] }));
        let run = fixture.api.post_keyed(RUNS, key, &body).await.expect(201);
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        fixture.api.delete(&path(&run, "")).await.expect(200);
        fixture.api.post_keyed(RUNS, key, &body).await.problem(404, "NOT_FOUND");
    }

    async fn an_open_stream_of_a_deleted_run_ends(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let mut events = Events::open(fixture.api.request("GET", &path(&run, "/events"))).await;
        assert_eq!(events.expect().await.name, "change");
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        fixture.api.delete(&path(&run, "")).await.expect(200);
        // The stream may see the end of the run before its deletion.
        let last = loop {
            let event = events.expect().await;
            if event.name == "end" {
                break event.data;
            }
        };
        assert!([r#"{"reason":"terminal"}"#, r#"{"reason":"deleted"}"#].contains(&last.as_str()), "{last}");
        assert_eq!(events.next_within(SOON).await, Ok(None));
    }

    async fn a_large_run_is_purged_piece_by_piece_also_after_a_restart(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let run = fixture.submit(json!(vec![task("x"); 120])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for offset in 0..230 {
            runner.output(&lease, offset, "x").await.expect(200);
        }
        runner.complete(&lease).await;
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        fixture.stop().await;
        // As a replica leaves it that dies after the deletion.
        let deleted = "INSERT INTO deleted_runs (run_id, owner_id, ref, deleted_at) SELECT id, owner_id, ref, created_at FROM runs";
        execute(&fixture.url, &format!("{deleted}; DELETE FROM runs;")).await;
        assert_eq!(rows(&fixture).await, [0, 120, 120, 0, 0, 0, 1, 230, 1]);
        fixture.start(&[]).await;
        eventually(SOON, async || rows(&fixture).await == [0; 9]).await;
    }
}
