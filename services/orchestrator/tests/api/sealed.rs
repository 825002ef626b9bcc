//! Sealed tasks: what the machine does is passed on, and never read.

use std::time::Duration;

use ensemble_testkit::{SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, number, path, task};

const SEALED: &str = "{{tasks.a.output}} is no template here";

fn sealed(machine: &Value) -> Value {
    json!({ "sealed": SEALED, "session": "start", "provider": "claude", "machineId": machine })
}

on_both_databases! {
    async fn a_sealed_task_is_passed_on_as_it_is_and_shows_its_session(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        let run = json!({ "tasks": [sealed(&json!(runner.id))], "permission": "bypass", "allowedTools": ["*"], "maxCostUsd": 1 });
        let run = fixture.submit_run(run).await;
        let shown = &run["tasks"][0];
        assert_eq!((&shown["prompt"], &shown["session"]), (&Value::Null, &json!("start")), "{shown}");
        assert_eq!((shown.get("sessionId"), shown.get("sealed")), (None, None), "{shown}");
        // What the run says for its tasks is not for this one.
        let defaults = (&shown["permission"], &shown["allowedTools"], &shown["maxCostUsd"]);
        assert_eq!(defaults, (&Value::Null, &json!([]), &Value::Null));

        assert!(other.lease(8).await.is_empty());
        let lease = runner.lease_one().await;
        assert_eq!((&lease["sealed"], &lease["session"], &lease["prompt"]), (&json!(SEALED), &json!("start"), &json!("")));
        assert_eq!((&lease["permission"], &lease["workingDirectory"]), (&Value::Null, &Value::Null));
        // A machine that ended meanwhile gets it again.
        let ended = json!({ "status": "cancelled", "error": { "code": "HANDED_BACK", "message": "" } });
        runner.report(&lease, "finish", ended).await.expect(200);
        let lease = runner.lease_one().await;
        assert_eq!(lease["sealed"], SEALED);
        let session = "0193a1b2-0000-7000-8000-000000000001";
        runner.report(&lease, "finish", json!({ "status": "completed", "sessionId": session })).await.expect(200);
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["tasks"][0]["sessionId"]), (&json!("completed"), &json!(session)));

        let more = format!("/tasks/{}/messages", shown["id"].as_str().unwrap());
        let said = json!({ "text": "and more", "messageId": "m-1" });
        let live = fixture.api.post(&path(&run, &more), &said).await.problem(409, "CONFLICT");
        assert!(live["detail"].as_str().unwrap().contains("live session"), "{live}");
        fixture.api.delete(&path(&run, "")).await.expect(200);
        eventually(SOON, async || number(&fixture, "SELECT count(*) FROM task_sessions").await == 0).await;
    }

    async fn a_sealed_task_that_its_machine_refuses_fails_at_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (runner, _other) = (fixture.runner(), fixture.runner());
        let mut task = sealed(&json!(runner.id));
        task["retry"] = json!({ "maxAttempts": 5 });
        let run = fixture.submit(json!([task])).await;
        let refused = json!({ "status": "refused", "error": { "code": "TASK_NOT_SIGNED", "message": "It is not signed." } });
        runner.report(&runner.lease_one().await, "finish", refused).await.expect(200);
        let ended = fixture.wait_for_end(&run).await;
        let task = &ended["tasks"][0];
        assert_eq!((&task["status"], &task["error"]["code"]), (&json!("failed"), &json!("TASK_NOT_SIGNED")));
        assert_eq!((&task["attempt"], task.get("sessionId")), (&json!(0), None));
    }

    async fn what_is_sealed_is_not_said_in_the_clear(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let machine = json!(runner.id);
        let with = |field: &str, value: Value| {
            let mut task = sealed(&machine);
            match value {
                Value::Null => drop(task.as_object_mut().unwrap().remove(field)),
                value => task[field] = value,
            }
            json!({ "tasks": [task] })
        };
        for (field, value) in [
            ("prompt", json!("p")),
            ("model", json!("m")),
            ("workingDirectory", json!("/a")),
            ("permission", json!("edit")),
            ("allowedTools", json!([])),
            ("isolation", json!("worktree")),
            ("base", json!("main")),
            ("maxCostUsd", json!(1)),
            ("failOnDenial", json!(true)),
            ("machineId", Value::Null),
            ("session", Value::Null),
            ("session", json!(false)),
            ("session", json!("stop")),
            ("sealed", json!("")),
            ("sealed", json!("x".repeat(65_537))),
        ] {
            let problem = fixture.api.post(RUNS, &with(field, value.clone())).await.problem(400, "INVALID_ARGUMENT");
            let fields: Vec<&str> = problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
            assert!(fields.contains(&format!("/tasks/0/{field}").as_str()), "{field} {value}: {problem}");
        }
        // Without a prompt, and a session in the clear.
        for (task, field) in [
            (json!({ "provider": "claude" }), "prompt"),
            (json!({ "provider": "claude", "prompt": "p", "session": "start" }), "session"),
            (json!({ "provider": "claude", "prompt": "p", "session": true }), "session"),
        ] {
            let problem = fixture.api.post(RUNS, &json!({ "tasks": [task] })).await.problem(400, "INVALID_ARGUMENT");
            assert_eq!(problem["errors"][0]["pointer"], format!("/tasks/0/{field}"), "{problem}");
        }
        // The run may name the machine, and the longest is taken.
        let mut longest = with("machineId", Value::Null);
        longest["machineId"] = machine.clone();
        longest["tasks"][0]["sealed"] = json!("x".repeat(65_536));
        fixture.api.post(RUNS, &longest).await.expect(201);
        assert_eq!(runner.lease_one().await["sealed"].as_str().unwrap().len(), 65_536);
    }

    async fn a_task_that_is_a_session_waits_for_a_person(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let mut asking = sealed(&json!(runner.id));
        asking["session"] = json!(true);
        asking["timeoutMs"] = json!(1_000);
        asking["failOnDenial"] = json!(true);
        let run = json!({ "tasks": [asking, task("b"), task("c")], "maxConcurrency": 1 });
        let run = fixture.submit_run(run).await;
        let lease = runner.lease_one().await;
        assert_eq!((&lease["session"], &lease["sealed"]), (&json!(true), &json!(SEALED)));
        let session = "0193a1b2-0000-7000-8000-000000000002";
        let beat = |waits: Value| json!({ "sessionId": session, "waitingFor": waits });
        runner.report(&lease, "heartbeat", beat(Value::Null)).await.expect(200);
        let shown = fixture.run(&run).await["tasks"][0].clone();
        assert_eq!((&shown["sessionId"], &shown["status"]), (&json!(session), &json!("running")), "as soon as it is there");
        // It stays the one that it was.
        let other = json!({ "sessionId": "0193a1b2-0000-7000-8000-00000000000f" });
        runner.report(&lease, "heartbeat", other).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][0]["sessionId"], session);
        // The run is full, and says so.
        assert!(runner.lease(8).await.is_empty());
        assert_eq!(fixture.run(&run).await["tasks"][1]["waitingFor"], "concurrency");

        // A runner that waits for work gets the next task as soon as the first one waits for a person.
        let waiting = runner.wait(8, SOON);
        let reported = runner.report(&lease, "heartbeat", beat(json!("input")));
        let (leases, reported) = tokio::join!(waiting, reported);
        reported.expect(200);
        assert_eq!(leases.iter().map(|lease| lease["prompt"].as_str().unwrap()).collect::<Vec<_>>(), ["b"]);
        let shown = fixture.run(&run).await["tasks"].clone();
        assert_eq!((&shown[0]["waitingFor"], &shown[0]["status"]), (&json!("input"), &json!("running")));
        assert!(shown[0]["waitingReason"].as_str().unwrap().contains("session"), "{shown}");
        assert_eq!(shown[2]["waitingFor"], "concurrency");
        // The one after it, too, although the run is as full as before.
        let waiting = runner.wait(8, SOON);
        let (leases_after, ()) = tokio::join!(waiting, runner.complete(&leases[0]));
        assert_eq!(leases_after[0]["prompt"], "c");

        // Its timeout stands still for as long as the person takes.
        let shorter = Duration::from_millis(1_500);
        let began = std::time::Instant::now();
        eventually(SOON, async || {
            runner.report(&lease, "heartbeat", beat(json!("input"))).await.expect(200);
            began.elapsed() > shorter
        }).await;
        assert_eq!(runner.report(&lease, "heartbeat", beat(Value::Null)).await.expect(200)["cancelRequested"], false);
        assert_eq!(fixture.run(&run).await["tasks"][0]["waitingFor"], Value::Null);
        let denied = json!({ "status": "completed", "sessionId": session, "permissionDenials": { "count": 1, "denials": [] } });
        runner.report(&lease, "finish", denied).await.expect(200);
        runner.complete(&leases_after[0]).await;
        let ended = fixture.wait_for_end(&run).await["tasks"][0].clone();
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("PERMISSION_DENIED")));
        assert_eq!((&ended["permissionDenials"]["count"], &ended["sessionId"]), (&json!(1), &json!(session)));
    }

    async fn a_task_that_is_no_session_has_none(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let run = fixture.submit(json!([task("a")])).await;
        let lease = runner.lease_one().await;
        let session = "0193a1b2-0000-7000-8000-000000000003";
        for _ in 0..2 {
            runner.report(&lease, "heartbeat", json!({ "sessionId": session })).await.expect(200);
        }
        // No person can be asked, so its time continues.
        let asking = json!({ "waitingFor": "input" });
        runner.report(&lease, "heartbeat", asking).await.problem(400, "INVALID_ARGUMENT");
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["tasks"][0].get("sessionId"), None);
    }

    async fn no_prompt_uses_what_a_session_says(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let mut first = sealed(&json!(runner.id));
        first["taskKey"] = json!("a");
        let user = json!({ "prompt": "{{tasks.a.output}}", "provider": "claude", "dependsOn": ["a"] });
        let refused = fixture.api.post(RUNS, &json!({ "tasks": [first, user] })).await.problem(400, "INVALID_DEPENDENCY");
        assert_eq!(refused["errors"][0]["pointer"], "/tasks/1/prompt");
        // To wait for it is good.
        let mut after = task("b");
        after["dependsOn"] = json!(["a"]);
        let run = fixture.submit(json!([first, after])).await;
        runner.complete(&runner.lease_one().await).await;
        assert_eq!(runner.lease_one().await["prompt"], "b");
        assert_eq!(fixture.run(&run).await["tasks"][0]["status"], "completed");
    }
}
