//! Invalid requests and their problems.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, RUNS, task};

/// A run whose task has one invalid field.
fn invalid(field: &str, value: Value) -> Value {
    let mut task = task("a");
    task[field] = value;
    json!({ "tasks": [task] })
}

on_both_databases! {
    async fn every_invalid_field_of_a_run_is_reported(on: Backend) {
        let fixture = Fixture::new(on).await;
        let long = |length| "x".repeat(length);
        for (body, pointer) in [
            (json!({ "tasks": [] }), "/tasks"),
            (json!({ "tasks": vec![task("a"); 10_001] }), "/tasks"),
            (json!({ "tasks": [task("a")], "maxConcurrency": 0 }), "/maxConcurrency"),
            (json!({ "tasks": [task("a")], "maxConcurrency": 65 }), "/maxConcurrency"),
            (json!({ "tasks": [task("a")], "title": long(257) }), "/title"),
            (invalid("prompt", json!("")), "/tasks/0/prompt"),
            (invalid("prompt", json!(long(65_537))), "/tasks/0/prompt"),
            (invalid("prompt", json!("{{tasks.a.output}}")), "/tasks/0/prompt"),
            (invalid("provider", json!("chatbot")), "/tasks/0/provider"),
            (invalid("provider", json!("Claude")), "/tasks/0/provider"),
            (invalid("model", json!("-x")), "/tasks/0/model"),
            (invalid("model", json!("a b")), "/tasks/0/model"),
            (invalid("model", json!("$(id)")), "/tasks/0/model"),
            (invalid("model", json!("a\n")), "/tasks/0/model"),
            (invalid("workingDirectory", json!("tmp")), "/tasks/0/workingDirectory"),
            (invalid("workingDirectory", json!("/a/../b")), "/tasks/0/workingDirectory"),
            (invalid("workingDirectory", json!(format!("/{}", long(4_096)))), "/tasks/0/workingDirectory"),
            (invalid("taskKey", json!("1a")), "/tasks/0/taskKey"),
            (invalid("taskKey", json!("a.b")), "/tasks/0/taskKey"),
            (invalid("taskKey", json!(long(65))), "/tasks/0/taskKey"),
            (invalid("machineId", json!("a/b")), "/tasks/0/machineId"),
            (invalid("timeoutMs", json!(999)), "/tasks/0/timeoutMs"),
            (invalid("timeoutMs", json!(86_400_001)), "/tasks/0/timeoutMs"),
            (invalid("retry", json!({ "maxAttempts": 0 })), "/tasks/0/retry/maxAttempts"),
            (invalid("retry", json!({ "maxAttempts": 11 })), "/tasks/0/retry/maxAttempts"),
            (invalid("retry", json!({ "maxAttempts": 2, "backoffMs": 3_600_001 })), "/tasks/0/retry/backoffMs"),
            (invalid("retry", json!({ "maxAttempts": 2, "backoffFactor": 0.5 })), "/tasks/0/retry/backoffFactor"),
            (invalid("retry", json!({ "maxAttempts": 2, "backoffFactor": 11 })), "/tasks/0/retry/backoffFactor"),
            (invalid("dependsOn", json!(vec!["0"; 257])), "/tasks/0/dependsOn"),
            (json!({ "tasks": [
                { "prompt": "a", "provider": "claude", "taskKey": "x" }, { "prompt": "b", "provider": "claude", "taskKey": "x" }
            ] }), "/tasks/1/taskKey"),
        ] {
            let answer = fixture.api.post(RUNS, &body).await;
            assert!(answer.bad_fields().iter().any(|found| found == pointer), "{pointer}: {}", answer.text);
        }
        let edges = vec![json!({ "prompt": "a", "provider": "claude", "dependsOn": vec!["0"; 256] }); 391];
        assert_eq!(fixture.api.post(RUNS, &json!({ "tasks": edges })).await.bad_fields(), ["/tasks"]);
        fixture.api.post_text(RUNS, "{").await.problem(400, "INVALID_JSON");
        fixture.api.post_text(RUNS, r#"{"tasks":[{"prompt":"a\u0000b","provider":"claude"}]}"#).await.problem(400, "INVALID_JSON");
        fixture.api.post_text(RUNS, r#"{"tasks":[{"prompt":"a","prompt":"b","provider":"claude"}]}"#).await.problem(400, "INVALID_JSON");
        assert_eq!(fixture.api.get(RUNS).await.expect(200)["runs"], json!([]));
    }

    async fn dependencies_must_name_other_tasks_without_a_cycle(on: Backend) {
        let fixture = Fixture::new(on).await;
        let plan = |first: &[&str], second: &[&str]| json!({ "tasks": [
            { "prompt": "a", "provider": "claude", "taskKey": "a", "dependsOn": first },
            { "prompt": "b", "provider": "claude", "taskKey": "b", "dependsOn": second },
        ] });
        for (body, pointer) in [
            (plan(&[], &["c"]), "/tasks/1/dependsOn/0"),
            (plan(&[], &["2"]), "/tasks/1/dependsOn/0"),
            (plan(&[], &["b"]), "/tasks/1/dependsOn/0"),
            (plan(&[], &["1"]), "/tasks/1/dependsOn/0"),
            (plan(&[], &["a", "a"]), "/tasks/1/dependsOn/1"),
            (plan(&[], &["a", "0"]), "/tasks/1/dependsOn/1"),
        ] {
            let problem = fixture.api.post(RUNS, &body).await.problem(400, "INVALID_DEPENDENCY");
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
        let cycle = fixture.api.post(RUNS, &plan(&["b"], &["a"])).await.problem(400, "DEPENDENCY_CYCLE");
        assert!(cycle["detail"].as_str().unwrap().contains("a → b → a"), "{cycle}");
    }

    async fn pinned_machines_must_exist(on: Backend) {
        let fixture = Fixture::with(on, &[("ORCHESTRATOR_MACHINE_CACHE_MS", "60000")]).await;
        let mine = fixture.peers.new_machine(fixture.user);
        let theirs = fixture.peers.new_machine(fixture.peers.new_user());
        let refused = fixture.api.post(RUNS, &invalid("machineId", json!(theirs))).await.problem(404, "MACHINE_NOT_FOUND");
        assert_eq!(refused["errors"][0]["pointer"], "/tasks/0/machineId");
        fixture.api.post(RUNS, &invalid("machineId", json!(mine))).await.expect(201);
        fixture.peers.machine_registry_away(true);
        fixture.api.post(RUNS, &invalid("machineId", json!(mine))).await.expect(201);
        let unknown = fixture.peers.new_machine(fixture.user);
        let away = fixture.api.post(RUNS, &invalid("machineId", json!(unknown))).await;
        away.problem(503, "UNAVAILABLE");
        assert!(away.header("retry-after").is_some());
        fixture.submit(json!([task("needs no machine")])).await;
    }

    async fn invalid_runner_requests_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let good = json!({ "machineId": runner.id, "providers": ["claude"], "capacity": 1, "waitMs": 0 });
        for (field, value) in [
            ("capacity", json!(65)),
            ("slots", json!(0)),
            ("waitMs", json!(60_001)),
            ("providers", json!(["a chatbot"])),
            ("machineId", json!("")),
        ] {
            let mut body = good.clone();
            body[field] = value;
            let fields = runner.api.post(LEASES, &body).await.bad_fields();
            assert!(fields.iter().any(|found| found.starts_with(&format!("/{field}"))), "{field}: {fields:?}");
        }
        let mut other = good.clone();
        other["machineId"] = json!(fixture.peers.new_machine(fixture.user));
        runner.api.post(LEASES, &other).await.problem(403, "FORBIDDEN");
        fixture.api.post(LEASES, &good).await.problem(403, "FORBIDDEN");
        assert_eq!(runner.api.post(LEASES, &good).await.expect(200), json!({ "leases": [], "orders": [] }));

        let run = fixture.submit(json!([task("a")])).await;
        let lease = runner.lease_one().await;
        let other = fixture.runner();
        for what in ["heartbeat", "output", "finish"] {
            let body = json!({ "offset": 0, "data": "x", "status": "completed" });
            other.report(&lease, what, body.clone()).await.problem(404, "NOT_FOUND");
            fixture.runner_of(fixture.peers.new_user()).report(&lease, what, body.clone()).await.problem(404, "NOT_FOUND");
            let mut wrong = lease.clone();
            wrong["fence"] = json!(0);
            runner.report(&wrong, what, body.clone()).await.problem(409, "LEASE_LOST");
            wrong["fence"] = json!(2);
            runner.report(&wrong, what, body).await.problem(409, "LEASE_LOST");
        }
        assert_eq!(runner.report(&lease, "finish", json!({ "status": "done" })).await.bad_fields(), ["/status"]);
        let summary = "x".repeat(16_385);
        let fields = runner.report(&lease, "finish", json!({ "status": "completed", "outputSummary": summary })).await.bad_fields();
        assert_eq!(fields, ["/outputSummary"]);
        assert_eq!(runner.output(&lease, 0, &"x".repeat((1 << 20) + 1)).await.bad_fields(), ["/data"]);
        assert_eq!(fixture.run(&run).await["tasks"][0]["status"], "dispatching", "no refused request changed anything");
        runner.complete(&lease).await;
    }
}
