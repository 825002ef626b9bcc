//! What tasks changed: diffs, and the orders to apply and to discard.

use std::time::Duration;

use ensemble_testkit::{Api, SOON, eventually, in_time, on_both_databases};
use ensemble_types::ids::OrderId;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, RUNS, Runner, execute, number, path, task};

fn of_task(run: &Value, rest: &str) -> String {
    path(run, &format!("/tasks/{}/{rest}", run["tasks"][0]["id"].as_str().expect("a task")))
}

fn changes() -> Value {
    json!({ "kept": true, "fileCount": 1, "added": 2, "removed": 1, "uncommitted": 3,
        "files": [{ "path": "src/a.rs", "kind": "modified", "added": 2, "removed": 1 }] })
}

async fn apply(fixture: &Fixture, run: &Value) -> Value {
    fixture.api.post(&of_task(run, "apply"), &json!({})).await.expect(200)
}

/// Submits a task with a worktree, sends a diff, and completes it with changes.
async fn changed(fixture: &Fixture) -> (Value, Runner) {
    let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "isolation": "worktree" }])).await;
    let runner = fixture.runner();
    // Without waiting: a runner that waits counts as active for as long as it does.
    let lease = runner.lease(1).await.remove(0);
    assert_eq!(lease["isolation"], "worktree");
    runner.report(&lease, "diff", json!({ "data": "diff --git a/src/a.rs\n" })).await.expect(200);
    runner.report(&lease, "finish", json!({ "status": "completed", "changes": changes() })).await.expect(200);
    (fixture.run(&run).await, runner)
}

/// The orders that the machine is given now, without those that it carries out.
async fn orders(runner: &Runner, taken: &[&str]) -> Vec<Value> {
    let body = json!({ "machineId": runner.id, "providers": [], "capacity": 0, "waitMs": 0, "takenOrders": taken });
    runner.api.post(LEASES, &body).await.expect(200)["orders"].as_array().expect("orders").clone()
}

async fn answer(runner: &Runner, order: &Value, outcome: Value) -> ensemble_testkit::Answer {
    runner.api.post(&format!("/v1/orchestrator/orders/{}/result", order["id"].as_str().expect("an id")), &outcome).await
}

on_both_databases! {
    async fn changes_are_applied_and_discarded_by_the_machine_that_has_them(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (run, runner) = changed(&fixture).await;
        let first = &run["tasks"][0]["changes"];
        assert_eq!((&first["state"], &first["fileCount"], &first["uncommitted"]), (&json!("kept"), &json!(1), &json!(3)));
        assert_eq!(first["wasApplied"], false);
        assert_eq!(first["files"][0], json!({ "path": "src/a.rs", "kind": "modified", "added": 2, "removed": 1 }));
        assert_eq!(fixture.api.get(&of_task(&run, "diff")).await.text, "diff --git a/src/a.rs\n");

        let by_refs = format!("{RUNS}/{}/tasks/{}", run["ref"].as_str().unwrap(), run["tasks"][0]["ref"].as_str().unwrap());
        assert_eq!(fixture.api.get(&format!("{by_refs}/diff")).await.text, "diff --git a/src/a.rs\n");

        let applying = apply(&fixture, &run).await;
        assert_eq!(applying["changes"]["state"], "applying");
        assert!(fixture.run(&run).await["version"].as_i64() > run["version"].as_i64());
        let again = fixture.api.post(&format!("{by_refs}/apply"), &json!({})).await.expect(200);
        assert_eq!(again["changes"]["state"], "applying", "the same again");
        let given = orders(&runner, &[]).await;
        assert_eq!(given.len(), 1);
        let order = given[0].clone();
        let task_id = &run["tasks"][0]["id"];
        assert_eq!(order, json!({ "id": order["id"], "kind": "apply", "runId": run["id"], "taskId": task_id }));
        assert_eq!(orders(&runner, &[]).await.len(), 1, "until its result is known");
        assert!(orders(&runner, &[order["id"].as_str().unwrap()]).await.is_empty(), "not while it is carried out");
        assert!(orders(&fixture.runner(), &[]).await.is_empty(), "another machine");
        answer(&fixture.runner(), &order, json!({ "outcome": "applied" })).await.problem(404, "NOT_FOUND");
        fixture.api.post(&format!("{by_refs}/discard"), &json!({})).await.problem(409, "CONFLICT");

        let conflicted = json!({ "outcome": "conflicted", "files": ["src/a.rs"] });
        let before = number(&fixture, "SELECT stored_bytes FROM runs").await;
        assert_eq!(answer(&runner, &order, conflicted.clone()).await.expect(200)["state"], "conflicted");
        assert_eq!(answer(&runner, &order, conflicted).await.expect(200)["state"], "conflicted", "the same again");
        assert_eq!(fixture.run(&run).await["tasks"][0]["changes"]["conflicted"], json!(["src/a.rs"]));
        assert_eq!(number(&fixture, "SELECT stored_bytes FROM runs").await - before, 10, "what the names take");
        apply(&fixture, &run).await;
        let again = orders(&runner, &[]).await.remove(0);
        assert_ne!(again["id"], order["id"]);
        answer(&runner, &order, json!({ "outcome": "applied" })).await.problem(404, "NOT_FOUND");
        assert_eq!(answer(&runner, &again, json!({ "outcome": "applied" })).await.expect(200)["state"], "applied");
        let applied = &apply(&fixture, &run).await["changes"];
        assert_eq!((&applied["state"], &applied["wasApplied"]), (&json!("applied"), &json!(true)));
        assert_eq!(fixture.run(&run).await["finishedAt"], run["finishedAt"], "the run keeps its end");

        let discarding = fixture.api.post(&of_task(&run, "discard"), &json!({})).await.expect(200);
        assert_eq!(discarding["changes"]["state"], "discarding");
        let order = orders(&runner, &[]).await.remove(0);
        assert_eq!(order["kind"], "discard");
        assert_eq!(answer(&runner, &order, json!({ "outcome": "discarded" })).await.expect(200)["state"], "discarded");
        assert_eq!(fixture.run(&run).await["tasks"][0]["changes"]["wasApplied"], true, "that is not forgotten");
        fixture.api.post(&of_task(&run, "apply"), &json!({})).await.problem(409, "CONFLICT");
        assert!(orders(&runner, &[]).await.is_empty());
    }

    async fn an_order_reaches_an_open_request_and_its_result_an_open_call(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (run, runner) = changed(&fixture).await;
        let body = json!({ "machineId": runner.id, "providers": [], "capacity": 0, "waitMs": 20_000 });
        let machine = runner.clone();
        let carries_out = tokio::spawn(async move {
            let given = machine.api.post(LEASES, &body).await.expect(200);
            answer(&machine, &given["orders"][0], json!({ "outcome": "applied" })).await.expect(200);
        });
        fixture.wait_for_requests(1).await;
        let applied = fixture.api.post(&of_task(&run, "apply?waitMs=20000"), &json!({})).await.expect(200);
        assert_eq!(applied["changes"]["state"], "applied");
        carries_out.await.unwrap();
        let bad = fixture.api.post(&of_task(&run, "apply?waitMs=60001"), &json!({})).await;
        assert_eq!(bad.bad_fields(), ["?waitMs"]);
    }

    async fn an_order_to_a_machine_that_does_not_answer_is_answered_as_waiting(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (run, runner) = changed(&fixture).await;
        // The runner has just asked for work, so it counts as active. It has gone since.
        let waiting = fixture.api.post(&of_task(&run, "apply?waitMs=60000"), &json!({})).await.expect(200);
        let state = |task: &Value| (task["changes"]["state"].clone(), task["changes"]["waitingFor"].clone());
        assert_eq!(state(&waiting), (json!("applying"), json!("machine")));
        fixture.api.post(&of_task(&run, "discard"), &json!({})).await.problem(409, "CONFLICT");

        // It is back, and takes the order.
        let order = orders(&runner, &[]).await.remove(0);
        assert!(orders(&runner, &[order["id"].as_str().unwrap()]).await.is_empty());
        assert_eq!(state(&fixture.run(&run).await["tasks"][0]), (json!("applying"), json!(null)));
        assert_eq!(answer(&runner, &order, json!({ "outcome": "applied" })).await.expect(200)["state"], "applied");

        let waiting = fixture.api.post(&of_task(&run, "discard?waitMs=60000"), &json!({})).await.expect(200);
        assert_eq!(state(&waiting), (json!("discarding"), json!("machine")), "what was taken before does not count");
    }

    async fn only_the_owner_of_an_ended_task_may(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        for what in ["apply", "discard"] {
            let path = of_task(&run, what);
            fixture.api.post(&path, &json!({})).await.problem(409, "CONFLICT");
            fixture.other_account().post(&path, &json!({})).await.problem(404, "NOT_FOUND");
            fixture.runner().api.post(&path, &json!({})).await.problem(403, "FORBIDDEN");
        }
        fixture.other_account().get(&of_task(&run, "diff")).await.problem(404, "NOT_FOUND");
        fixture.runner().api.get(&of_task(&run, "diff")).await.problem(403, "FORBIDDEN");
        let result = format!("/v1/orchestrator/orders/{}/result", OrderId::generate());
        fixture.api.post(&result, &json!({ "outcome": "applied" })).await.problem(403, "FORBIDDEN");
        fixture.runner().api.post(&result, &json!({ "outcome": "applied" })).await.problem(404, "NOT_FOUND");
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.complete(&lease).await;
        fixture.api.post(&of_task(&run, "apply"), &json!({})).await.problem(409, "CONFLICT");
    }

    async fn a_diff_belongs_to_the_last_attempt_and_is_bounded(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "retry": { "maxAttempts": 2, "backoffMs": 0 } }])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let before = number(&fixture, "SELECT stored_bytes FROM runs").await;
        // It is stored in several pieces.
        let long = "aä".repeat(20_000);
        for (path, data) in [("b", "second\n"), ("a", "first\n"), ("b", "other\n"), ("c", long.as_str()), ("d", "")] {
            let taken = runner.report(&lease, "diff", json!({ "path": path, "data": data })).await.expect(200);
            assert_eq!(taken["truncated"], false);
        }
        assert_eq!(fixture.api.get(&of_task(&run, "diff")).await.text, format!("first\nother\n{long}"));
        assert_eq!(number(&fixture, "SELECT stored_bytes FROM runs").await - before, 4 * 128 + 12 + 60_000);
        runner.finish(&lease, "failed").await.expect(200);
        runner.report(&lease, "diff", json!({ "data": "late" })).await.problem(409, "LEASE_LOST");
        let lease = runner.lease_one().await;
        let half = "x".repeat(2_000_000);
        for number in 0..5 {
            let part = json!({ "path": number.to_string(), "data": half });
            let truncated = runner.report(&lease, "diff", part).await.expect(200)["truncated"].clone();
            assert_eq!(truncated, json!(number == 4), "{number}");
        }
        assert_eq!(runner.report(&lease, "diff", json!({ "data": "x".repeat(2 << 20) })).await.status, 413);
        assert_eq!(runner.report(&lease, "diff", json!({ "data": "a\0b" })).await.status, 400);
        let too_many = json!({ "status": "completed", "changes": { "kept": false, "fileCount": 9, "added": 0, "removed": 0,
            "files": vec![json!({ "path": "p", "kind": "added" }); 257] } });
        assert_eq!(runner.report(&lease, "finish", too_many).await.bad_fields(), ["/changes/files"]);
        let none = json!({ "kept": true, "fileCount": 0, "added": 0, "removed": 0, "files": [] });
        runner.report(&lease, "finish", json!({ "status": "completed", "changes": none })).await.expect(200);
        let ended = fixture.run(&run).await["tasks"][0]["changes"].clone();
        assert_eq!((&ended["state"], &ended["diffTruncated"]), (&json!("kept"), &json!(true)));
        assert_eq!(fixture.api.get(&of_task(&run, "diff")).await.text.len(), 8_000_000);

        Api::send(fixture.api.request("DELETE", &path(&run, ""))).await.expect(200);
        fixture.api.get(&of_task(&run, "diff")).await.problem(404, "NOT_FOUND");
        eventually(SOON, async || {
            number(&fixture, "SELECT (SELECT count(*) FROM task_diffs) + (SELECT count(*) FROM task_diff_ends) + (SELECT count(*) FROM task_changes)").await == 0
        }).await;
    }

    async fn a_diff_that_did_not_arrive_is_not_that_of_an_earlier_attempt(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "isolation": "worktree",
            "retry": { "maxAttempts": 2, "backoffMs": 0 } }])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.report(&lease, "diff", json!({ "data": "first\n" })).await.expect(200);
        let failed = json!({ "status": "failed", "error": { "code": "X", "message": "x" }, "changes": changes() });
        runner.report(&lease, "finish", failed).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][0]["changes"]["diffTruncated"], false);
        let lease = runner.lease_one().await;
        let before = number(&fixture, "SELECT stored_bytes FROM runs").await;
        let mut partial = changes();
        partial["partial"] = json!(true);
        runner.report(&lease, "finish", json!({ "status": "completed", "changes": partial })).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][0]["changes"]["diffTruncated"], true);
        assert_eq!(fixture.api.get(&of_task(&run, "diff")).await.text, "");
        let list = serde_json::to_string(&changes()["files"]).unwrap().len();
        let more = number(&fixture, "SELECT stored_bytes FROM runs").await - before;
        assert_eq!(more, i64::try_from(list).unwrap() - 128 - 6, "the earlier diff does not count any more");
    }

    async fn a_discard_that_was_refused_leaves_the_changes_as_they_were(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (run, runner) = changed(&fixture).await;
        fixture.api.post(&of_task(&run, "discard"), &json!({})).await.expect(200);
        let order = orders(&runner, &[]).await.remove(0);
        let refused = json!({ "outcome": "conflicted", "reason": "It has changed since you looked." });
        assert_eq!(answer(&runner, &order, refused).await.expect(200)["state"], "kept");
        let changes = &fixture.run(&run).await["tasks"][0]["changes"];
        assert_eq!((&changes["state"], &changes["failure"]), (&json!("kept"), &json!("It has changed since you looked.")));
    }

    async fn a_diff_beyond_the_quota_is_dropped_and_no_task_fails(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_RUN_BYTES", "4000")]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let taken = runner.report(&lease, "diff", json!({ "data": "x".repeat(4_000) })).await.expect(200);
        assert_eq!(taken["truncated"], true);
        runner.report(&lease, "finish", json!({ "status": "completed", "changes": changes() })).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][0]["changes"]["diffTruncated"], true);
    }

    async fn what_a_deleted_machine_had_is_lost(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (kept, runner) = changed(&fixture).await;
        apply(&fixture, &kept).await;
        let deleted_at = fixture.now().await;
        fixture.delete_machine(&runner, deleted_at).await;
        assert_eq!(fixture.run(&kept).await["tasks"][0]["changes"]["state"], "lost");
        fixture.api.post(&of_task(&kept, "apply"), &json!({})).await.problem(409, "CONFLICT");
    }

    async fn an_order_waits_24_hours_for_its_machine(on: Backend) {
        let vars = [("ORCHESTRATOR_SWEEP_MS", "100"), ("ORCHESTRATOR_RUNNER_SEEN_MS", "1")];
        let mut fixture = Fixture::with(on, &vars).await;
        let (run, runner) = changed(&fixture).await;
        let applying = apply(&fixture, &run).await;
        eventually(SOON, async || {
            fixture.run(&run).await["tasks"][0]["changes"]["waitingFor"] == "machine"
        }).await;
        assert_eq!(applying["changes"]["state"], "applying");
        fixture.stop().await;
        let day = if fixture.url.starts_with("sqlite") { "86400000000" } else { "interval '24 hours'" };
        execute(&fixture.url, &format!("UPDATE task_changes SET order_until = order_until - {day}")).await;
        fixture.start(&vars).await;
        eventually(SOON, async || {
            fixture.run(&run).await["tasks"][0]["changes"]["state"] == "kept"
        }).await;
        assert!(orders(&fixture.reconnect(&runner), &[]).await.is_empty());
    }

    async fn a_lease_that_waits_for_its_directory_has_no_timeout(on: Backend) {
        let vars = [("ORCHESTRATOR_TIMEOUT_GRACE_MS", "0"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        in_time(Duration::from_secs(15), async || {
            let fixture = Fixture::with(on, &vars).await;
            let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "timeoutMs": 3000 }])).await;
            let runner = fixture.runner();
            let lease = runner.lease_one().await;
            let wait = json!({ "waitingFor": "directory" });
            let until = std::time::Instant::now() + Duration::from_secs(4);
            eventually(SOON, async || {
                runner.report(&lease, "heartbeat", wait.clone()).await.expect(200);
                std::time::Instant::now() > until
            }).await;
            let waiting = fixture.run(&run).await["tasks"][0].clone();
            assert_eq!((&waiting["status"], &waiting["waitingFor"]), (&json!("running"), &json!("directory")));
            assert!(waiting["waitingReason"].as_str().unwrap().contains(runner.id.as_str()));
            runner.heartbeat(&lease).await.expect(200);
            let begun = fixture.run(&run).await;
            assert_eq!(begun["tasks"][0]["waitingFor"], Value::Null);
            assert!(begun["version"].as_i64() > waiting["version"].as_i64());
            // Its whole timeout begins now.
            let ended = fixture.wait_for_end(&run).await;
            assert_eq!(ended["tasks"][0]["error"]["code"], "TIMEOUT");
        }).await;
    }

    async fn a_worktree_begins_with_a_ref_or_with_another_tasks_worktree(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a", "isolation": "worktree", "base": "main" },
            { "prompt": "b", "provider": "claude", "dependsOn": ["a"], "isolation": "worktree", "base": "a" },
        ])).await;
        assert_eq!((&run["tasks"][0]["base"], &run["tasks"][1]["base"]), (&json!("main"), &json!("a")));
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        assert_eq!((&lease["base"], &lease["baseTask"]), (&json!("main"), &Value::Null));
        runner.complete(&lease).await;
        let lease = runner.lease_one().await;
        assert_eq!((&lease["base"], &lease["baseTask"]), (&Value::Null, &run["tasks"][0]["id"]));
    }
}
