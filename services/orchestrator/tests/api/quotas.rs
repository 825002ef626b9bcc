//! What the runs of an account may take, and what happens when that is used up: no new run, and no output beyond it.

use ensemble_testkit::{Answer, Backend, SOON, eventually, on_both_databases};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, execute, number, path, task};

/// What a task, a dependency, an attempt and a piece of output count in addition to their texts.
const TASK: i64 = 512;
const DEPENDENCY: i64 = 128;
const ATTEMPT: i64 = 512;
const PIECE: i64 = 128;

/// The members of a refusal.
fn members(answer: &Answer) -> (Value, Value, Value) {
    let problem = answer.problem(429, "QUOTA_EXCEEDED");
    assert!(answer.header("retry-after").is_none(), "waiting does not help");
    (problem["quota"].clone(), problem["limit"].clone(), problem["used"].clone())
}

fn run_with(prompt: usize) -> Value {
    json!({ "tasks": [task(&"x".repeat(prompt))] })
}

async fn output_of(fixture: &Fixture, run: &Value) -> String {
    let task = run["tasks"][0]["id"].as_str().unwrap();
    fixture.api.get(&path(run, &format!("/tasks/{task}/output"))).await.text
}

/// What the rows of all runs say, with the output of open attempts.
async fn counted(fixture: &Fixture) -> i64 {
    let runs = number(fixture, "SELECT sum(stored_bytes) FROM runs").await;
    runs + number(fixture, "SELECT COALESCE(sum(output_bytes - output_counted), 0) FROM leases WHERE ended_at IS NULL")
        .await
}

on_both_databases! {
    async fn the_runs_of_an_account_have_a_limit_of_bytes(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", "2000")]).await;
        let first = fixture.api.post_keyed(RUNS, "0123456789abcdef", &run_with(500)).await.expect(201);
        let refused = fixture.api.post(RUNS, &run_with(500)).await;
        assert_eq!(members(&refused), (json!("runBytes"), json!(2000), json!(TASK + 500)));
        let repeated = fixture.api.post_keyed(RUNS, "0123456789abcdef", &run_with(500)).await.expect(200);
        assert_eq!(repeated["id"], first["id"], "an earlier request is answered");
        fixture.api.post(RUNS, &run_with(400)).await.expect(201);
        members(&fixture.api.post(RUNS, &run_with(1)).await);
        fixture.other_account().post(RUNS, &run_with(1_000)).await.expect(201);
    }

    async fn runs_that_are_submitted_together_stay_within_the_quota(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", &(3 * (TASK + 500)).to_string())]).await;
        let run = run_with(500);
        let answers = join_all((0..20).map(|_| fixture.api.post(RUNS, &run))).await;
        let count = |wanted| answers.iter().filter(|answer| answer.status == wanted).count();
        assert_eq!((count(201), count(429)), (3, 17), "stored and refused");
        assert_eq!(number(&fixture, "SELECT count(*) FROM runs").await, 3);
    }

    async fn attempts_and_summaries_count_at_once(on: Backend) {
        let limit = 2 * TASK + 1 + ATTEMPT + 500;
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", &limit.to_string())]).await;
        fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let end = json!({ "status": "completed", "outputSummary": "s".repeat(500) });
        runner.report(&lease, "finish", end).await.expect(200);
        members(&fixture.api.post(RUNS, &run_with(1)).await);
    }

    async fn texts_rows_outputs_and_summaries_count(on: Backend) {
        let fixture = Fixture::new(on).await;
        let tasks = json!([
            { "prompt": "ä", "provider": "claude", "taskKey": "key", "title": "title", "model": "model", "workingDirectory": "/dir" },
            { "prompt": "b", "provider": "claude", "dependsOn": ["key"], "retry": { "maxAttempts": 2, "backoffMs": 0 } },
        ]);
        let run = fixture.submit_run(json!({ "title": "run", "tasks": tasks })).await;
        let mut expected = 2 * TASK + DEPENDENCY + 3 + (2 + 3 + 5 + 5 + 4) + 1;
        assert_eq!(counted(&fixture).await, expected);
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.output(&lease, 0, "12345").await.expect(200);
        expected += ATTEMPT + 5 + PIECE;
        assert_eq!(counted(&fixture).await, expected, "the output of an open attempt");
        let end = json!({ "status": "completed", "outputSummary": "summary" });
        runner.report(&lease, "finish", end.clone()).await.expect(200);
        runner.report(&lease, "finish", end).await.expect(200);
        expected += 7;
        assert_eq!(counted(&fixture).await, expected, "a repeated report counts nothing");
        for status in ["failed", "completed"] {
            let lease = runner.lease_one().await;
            runner.output(&lease, 0, "123").await.expect(200);
            runner.finish(&lease, status).await.expect(200);
            expected += ATTEMPT + 3 + PIECE;
        }
        assert_eq!(counted(&fixture).await, expected);
        fixture.wait_for_end(&run).await;
    }

    async fn an_attempt_that_is_resumed_counts_its_output_once(on: Backend) {
        let short = [("ORCHESTRATOR_LEASE_MS", "300"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        let fixture = Fixture::with(on, &short).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for (offset, piece) in [(0, "12345"), (5, "678")] {
            runner.output(&lease, offset, piece).await.expect(200);
            eventually(SOON, async || fixture.run(&run).await["tasks"][0]["status"] == "queued").await;
        }
        runner.complete(&lease).await;
        fixture.wait_for_end(&run).await;
        assert_eq!(counted(&fixture).await, TASK + 1 + ATTEMPT + 8 + 2 * PIECE);
    }

    async fn output_beyond_the_quota_is_dropped_and_the_task_completes(on: Backend) {
        let limit = TASK + 1 + ATTEMPT + 10 + 2 * PIECE;
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", &limit.to_string())]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!(runner.output(&lease, 0, "12345678").await.expect(200)["truncated"], false);
        assert_eq!(runner.output(&lease, 8, "9🦀").await.expect(200), json!({ "nextOffset": 13, "truncated": true }));
        assert_eq!(runner.output(&lease, 13, "more").await.expect(200), json!({ "nextOffset": 17, "truncated": true }));
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["tasks"][0]["status"], "completed");
        let note = format!("\n[output truncated: the runs of this account take all of their quota of {limit} bytes]\n");
        assert_eq!(output_of(&fixture, &run).await, format!("123456789{note}"));
        let used = counted(&fixture).await;
        assert_eq!(used, limit - 1 + i64::try_from(note.len()).unwrap());
        assert_eq!(members(&fixture.api.post(RUNS, &run_with(1)).await).2, json!(used));
    }

    async fn an_attempt_of_a_full_account_stores_only_the_note(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        fixture.stop().await;
        fixture.start(&[("QUOTA_RUN_BYTES", "100")]).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for offset in [0, 5] {
            assert_eq!(runner.output(&lease, offset, "12345").await.expect(200)["truncated"], true);
        }
        runner.complete(&lease).await;
        fixture.wait_for_end(&run).await;
        assert!(output_of(&fixture, &run).await.starts_with("\n[output truncated: "));
    }

    async fn a_retry_needs_room_for_its_attempts(on: Backend) {
        let limit = TASK + 1 + 2 * ATTEMPT;
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", &limit.to_string())]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        runner.finish(&runner.lease_one().await, "failed").await.expect(200);
        let retry = path(&run, "/retry");
        fixture.api.post(&retry, &json!({})).await.expect(200);
        runner.finish(&runner.lease_one().await, "failed").await.expect(200);
        assert_eq!(members(&fixture.api.post(&retry, &json!({})).await), (json!("runBytes"), json!(limit), json!(limit)));
        assert_eq!(fixture.run(&run).await["status"], "failed");
    }

    async fn runs_from_before_the_quota_count(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let tasks = json!([
            { "prompt": "a", "provider": "claude", "taskKey": "key", "title": "title", "model": "model", "workingDirectory": "/dir" },
            { "prompt": "b", "provider": "claude", "dependsOn": ["key"] },
        ]);
        fixture.submit_run(json!({ "title": "run", "tasks": tasks })).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.output(&lease, 0, "12345").await.expect(200);
        runner.report(&lease, "finish", json!({ "status": "completed", "outputSummary": "summary" })).await.expect(200);
        let open = runner.lease_one().await;
        runner.output(&open, 0, "123").await.expect(200);
        let before = counted(&fixture).await;
        fixture.stop().await;
        // Back to the schema without the columns, and forward again.
        let undo = match on {
            Backend::Postgres => concat!(
                include_str!("../../migrations/postgres/2026-12-14-000000_hot_updates/down.sql"),
                include_str!("../../migrations/postgres/2026-11-24-000000_stored_bytes/down.sql"),
            ),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-11-24-000000_stored_bytes/down.sql"),
        };
        let versions = "'20261124000000', '20261214000000'";
        let undo = format!("{undo} DELETE FROM __diesel_schema_migrations WHERE version IN ({versions});");
        execute(&fixture.url, &undo).await;
        fixture.start(&[]).await;
        assert_eq!(counted(&fixture).await, before);
        let runner = fixture.reconnect(&runner);
        runner.complete(&open).await;
        assert_eq!(counted(&fixture).await, before);
    }

    async fn the_newest_ten_thousand_deleted_machines_are_remembered(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let (runner, user) = (fixture.runner(), fixture.user.to_string());
        fixture.stop().await;
        let fill = match on {
            Backend::Postgres => format!(
                "INSERT INTO deleted_machines SELECT '{user}'::uuid, 'm' || n, now() - n * interval '1 s' FROM generate_series(1, 10005) n"
            ),
            Backend::Sqlite => format!(
                "INSERT INTO deleted_machines (owner_id, machine_id, deleted_at) WITH RECURSIVE s(n) AS \
                 (VALUES (1) UNION ALL SELECT n + 1 FROM s WHERE n < 10005) \
                 SELECT x'{}', 'm' || n, (unixepoch() - n) * 1000000 FROM s",
                user.replace('-', "")
            ),
        };
        execute(&fixture.url, &fill).await;
        fixture.start(&[]).await;
        fixture.delete_machine(&runner, fixture.now().await).await;
        assert_eq!(number(&fixture, "SELECT count(*) FROM deleted_machines").await, 10_000);
        assert_eq!(number(&fixture, "SELECT count(*) FROM deleted_machines WHERE machine_id IN ('m9999', 'm10000')").await, 1);
    }
}
