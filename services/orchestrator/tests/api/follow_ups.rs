//! What owners say to the agents of tasks that have ended.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, path, statuses, task};

fn messages(run: &Value, task: usize) -> String {
    path(run, &format!("/tasks/{}/messages", run["tasks"][task]["id"].as_str().expect("an id")))
}

fn said(text: &str, id: &str) -> Value {
    json!({ "text": text, "messageId": id })
}

fn done(summary: &str) -> Value {
    json!({ "status": "completed", "outputSummary": summary, "providerSessionId": "s-1" })
}

on_both_databases! {
    async fn a_task_continues_on_its_machine_with_the_text_alone(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("the first prompt")])).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        let first = runner.lease_one().await;
        assert_eq!((&first["followUp"], &first["resume"]), (&json!(false), &json!(null)));
        runner.report(&first, "finish", done("one")).await.expect(200);
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");

        let task = fixture.api.post(&messages(&run, 0), &said("{{tasks.a.output}} and now this", "m-1")).await.expect(200);
        assert_eq!((&task["status"], &task["error"], &task["attempt"]), (&json!("queued"), &json!(null), &json!(1)));
        assert_eq!(task["prompt"], "the first prompt");
        let open = fixture.run(&run).await;
        assert_eq!((&open["status"], &open["finishedAt"], &open["summary"]["queued"]), (&json!("running"), &json!(null), &json!(1)));
        // The same message again does nothing.
        fixture.api.post(&messages(&run, 0), &said("something else", "m-1")).await.expect(200);
        assert!(other.lease(1).await.is_empty(), "only its machine has the conversation");
        let second = runner.lease_one().await;
        assert_eq!(
            (&second["prompt"], &second["resume"], &second["followUp"], &second["attempt"]),
            (&json!("{{tasks.a.output}} and now this"), &json!("s-1"), &json!(true), &json!(2))
        );
        fixture.api.post(&messages(&run, 0), &said("too early", "m-2")).await.problem(409, "CONFLICT");
        fixture.api.post(&messages(&run, 0), &said("the same", "m-1")).await.expect(200);
        runner.report(&second, "finish", done("two")).await.expect(200);
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["tasks"][0]["outputSummary"]), (&json!("completed"), &json!("two")));
        assert_eq!(ended["summary"], json!({ "total": 1, "queued": 0, "running": 0, "completed": 1, "failed": 0, "cancelled": 0 }));
        // What was refused was not recorded, so it can be said now.
        fixture.api.post(&messages(&run, 0), &said("too early", "m-2")).await.expect(200);
        assert_eq!(runner.lease_one().await["prompt"], "too early");
    }

    async fn the_agent_of_a_lost_attempt_gets_the_message_only_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        runner.report(&runner.lease_one().await, "finish", done("one")).await.expect(200);
        fixture.api.post(&messages(&run, 0), &said("and this", "m-1")).await.expect(200);
        let second = runner.lease_one().await;
        runner.heartbeat(&second).await.expect(200);
        let lost = json!({ "status": "cancelled", "error": { "code": "RUNNER_STOPPED", "message": "" } });
        runner.report(&second, "finish", lost).await.expect(200);
        let third = runner.lease_one().await;
        assert!(third["prompt"].as_str().unwrap().starts_with("You were interrupted"), "{third}");
        assert_eq!((&third["resume"], &third["followUp"]), (&json!("s-1"), &json!(true)));
    }

    async fn dependents_wait_again_or_are_marked(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([
            { "prompt": "a", "provider": "claude", "taskKey": "a" },
            { "prompt": "b", "provider": "claude", "taskKey": "b", "dependsOn": ["a"] },
            { "prompt": "c", "provider": "claude", "taskKey": "c", "dependsOn": ["b"] },
            { "prompt": "d", "provider": "claude", "taskKey": "d", "dependsOn": ["a"] },
        ])).await;
        let runner = fixture.runner();
        runner.report(&runner.lease_one().await, "finish", done("a")).await.expect(200);
        let b = runner.lease_one().await;
        let running = fixture.api.post(&messages(&run, 0), &said("more", "m-1")).await;
        assert!(running.problem(409, "CONFLICT")["detail"].as_str().unwrap().contains("depends on this one is running"));
        runner.report(&b, "finish", done("b")).await.expect(200);
        // c and d are ready. d waits for a again, and c does not.
        fixture.api.post(&messages(&run, 0), &said("more", "m-1")).await.expect(200);
        let now = fixture.run(&run).await;
        let stale: Vec<&Value> = now["tasks"].as_array().unwrap().iter().map(|task| &task["stale"]).collect();
        assert_eq!(stale, [false, true, false, false]);
        let leases = runner.lease(8).await;
        let mut prompts: Vec<&str> = leases.iter().map(|lease| lease["prompt"].as_str().unwrap()).collect();
        prompts.sort_unstable();
        assert_eq!(prompts, ["c", "more"]);
        for lease in &leases {
            runner.report(lease, "finish", done("again")).await.expect(200);
        }
        let last = runner.lease_one().await;
        assert_eq!(last["prompt"], "d");
        runner.report(&last, "finish", done("d")).await.expect(200);
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!(statuses(&ended), ["completed"; 4]);
        // What is said to a task that was marked is said with the new results in place.
        assert_eq!(fixture.api.post(&messages(&run, 1), &said("look again", "m-1")).await.expect(200)["stale"], false);
        assert_eq!(fixture.run(&run).await["tasks"][2]["stale"], true);
        let early = fixture.api.post(&messages(&run, 2), &said("you too", "m-1")).await;
        assert!(early.problem(409, "CONFLICT")["detail"].as_str().unwrap().contains("has not completed"));
    }

    async fn nothing_is_said_to_tasks_that_cannot_go_on(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let say = async |task: usize| fixture.api.post(&messages(&run, task), &said("x", "m")).await;
        say(0).await.problem(409, "CONFLICT");
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        say(0).await.problem(409, "CONFLICT");
        runner.complete(&lease).await;
        let none = say(0).await.problem(409, "CONFLICT");
        assert!(none["detail"].as_str().unwrap().contains("left no conversation"), "{none}");
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        say(1).await.problem(409, "CONFLICT");
        let stranger = fixture.other_account();
        stranger.post(&messages(&run, 0), &said("x", "m")).await.problem(404, "NOT_FOUND");
        let own = stranger.post("/v1/orchestrator/runs", &json!({ "tasks": [task("z")] })).await.expect(201);
        let theirs = format!("{}/tasks/{}/messages", path(&own, ""), run["tasks"][0]["id"].as_str().unwrap());
        stranger.post(&theirs, &said("x", "m")).await.problem(404, "NOT_FOUND");
        for bad in [json!({}), json!({ "text": "", "messageId": "m" }), json!({ "text": "x", "messageId": "" }),
            json!({ "text": "x".repeat(65_537), "messageId": "m" }), json!({ "text": "x", "messageId": "m".repeat(129) })] {
            fixture.api.post(&messages(&run, 0), &bad).await.problem(400, "INVALID_ARGUMENT");
        }
    }

    async fn a_failed_task_continues_and_its_machine_may_be_gone(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let failed = json!({ "status": "failed", "providerSessionId": "s-1", "error": { "code": "X", "message": "y" } });
        runner.report(&runner.lease_one().await, "finish", failed).await.expect(200);
        assert_eq!(fixture.wait_for_end(&run).await["status"], "failed");
        fixture.api.post(&messages(&run, 0), &said("try it this way", "m-1")).await.expect(200);
        runner.report(&runner.lease_one().await, "finish", done("well")).await.expect(200);
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
        fixture.peers.remove_machine(fixture.user, &runner.id);
        fixture.delete_machine(&runner, fixture.now().await).await;
        let gone = fixture.api.post(&messages(&run, 0), &said("and more", "m-2")).await.problem(409, "CONFLICT");
        assert!(gone["detail"].as_str().unwrap().contains("was deleted"), "{gone}");
    }
}
