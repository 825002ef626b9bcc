//! Machines that wait for a provider whose usage limit is reached, and tasks that have cost as much as they may.

use std::time::Duration;

use ensemble_chassis::Clock;
use ensemble_testkit::{SOON, on_both_databases};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::fixture::{Fixture, NO_SWEEP, RUNS, Runner, execute, number, path, statuses, task};

const HOLDS: &str = "SELECT count(*) FROM provider_holds";

/// The time after `wait` from now, as a runner writes it.
fn ahead(wait: Duration) -> String {
    Clock::system().now().plus(wait).to_string()
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3_600)
}

async fn at_limit(runner: &Runner, lease: &Value, wait: Duration) -> Value {
    let body = json!({ "status": "quota", "resumeAt": ahead(wait), "providerSessionId": "s-1" });
    runner.report(lease, "finish", body).await.expect(200)
}

/// Makes all waits end now, as if their time had come. The service is stopped.
async fn let_waits_end(fixture: &Fixture) {
    execute(
        &fixture.url,
        "UPDATE provider_holds SET held_until = created.at FROM (SELECT min(created_at) AS at FROM runs) AS created",
    )
    .await;
}

fn waits(run: &Value, task: usize) -> (&str, &str) {
    let task = &run["tasks"][task];
    (task["waitingFor"].as_str().unwrap_or("-"), task["waitingReason"].as_str().unwrap_or("-"))
}

on_both_databases! {
    async fn a_machine_waits_for_its_provider_and_others_go_on(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (here, there) = (fixture.runner(), fixture.runner());
        let on = |machine: &Runner, provider: &str| json!({ "prompt": "x", "provider": provider, "machineId": machine.id });
        let run = fixture.submit(json!([on(&here, "claude"), on(&here, "claude"), on(&here, "codex"), on(&there, "claude")])).await;
        let lease = here.lease_one().await;
        here.heartbeat(&lease).await.expect(200);
        here.output(&lease, 0, "half of it").await.expect(200);
        assert_eq!(at_limit(&here, &lease, hours(2)).await["taskStatus"], "queued");
        assert_eq!(at_limit(&here, &lease, hours(2)).await["taskStatus"], "queued", "a repeated report");

        let now = fixture.run(&run).await;
        assert_eq!(now["tasks"][0]["attempt"], 0, "no attempt is spent");
        assert_eq!((&now["tasks"][0]["providerSessionId"], &now["tasks"][0]["error"]), (&json!("s-1"), &json!(null)));
        for task in [0, 1] {
            let (waiting_for, reason) = waits(&now, task);
            let expected = format!("claude's limit on {} is reached; continues at 20", here.id);
            assert!(waiting_for == "quota" && reason.starts_with(&expected), "{task}: {waiting_for} {reason}");
        }
        assert_ne!(waits(&now, 2).0, "quota");
        assert_ne!(waits(&now, 3).0, "quota");
        let output = path(&run, &format!("/tasks/{}/output", lease["taskId"].as_str().unwrap()));
        assert_eq!(fixture.api.get(&output).await.text, "half of it", "what was done is there while it waits");

        // Another provider here, and the same provider there.
        let codex = here.lease(4).await;
        assert_eq!(codex.iter().map(|lease| &lease["provider"]).collect::<Vec<_>>(), ["codex"]);
        let claude = there.lease(4).await;
        assert_eq!(claude.len(), 1);
        here.complete(&codex[0]).await;
        there.complete(&claude[0]).await;
        assert!(here.lease(4).await.is_empty());
        // Other runs of the account wait for it as well, and go to a machine without the limit.
        let other = fixture.submit(json!([on(&here, "claude")])).await;
        assert!(here.lease(4).await.is_empty());
        assert_eq!(waits(&fixture.run(&other).await, 0).0, "quota");
        fixture.submit(json!([task("anywhere")])).await;
        assert!(here.lease(4).await.is_empty());
        there.complete(&there.lease_one().await).await;
        let stranger = fixture.other_account();
        stranger.post(RUNS, &json!({ "tasks": [task("theirs")] })).await.expect(201);
    }

    async fn the_waiting_request_is_woken_when_the_time_has_come(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let mut runner = fixture.runner();
        let run = fixture.submit(json!([task("a")])).await;
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        at_limit(&runner, &lease, hours(48)).await;

        // The wait survives a restart.
        fixture.stop().await;
        fixture.start(&[]).await;
        runner = fixture.reconnect(&runner);
        assert!(runner.lease(1).await.is_empty());
        assert_eq!(waits(&fixture.run(&run).await, 0).0, "quota");

        // A wait of a second, which no runner can ask for.
        fixture.stop().await;
        let soon = match fixture.url.starts_with("sqlite:") {
            true => format!("UPDATE provider_holds SET held_until = {}", Clock::system().now().plus(Duration::from_secs(4)).micros()),
            false => "UPDATE provider_holds SET held_until = clock_timestamp() + interval '4 seconds'".to_owned(),
        };
        execute(&fixture.url, &soon).await;
        fixture.start(&NO_SWEEP).await;
        runner = fixture.reconnect(&runner);
        let mut leases = runner.wait(1, SOON).await;
        let next = leases.pop().expect("the request was woken");
        assert_eq!((&next["attempt"], &next["fence"], &next["resume"]), (&json!(1), &json!(2), &json!("s-1")));
        assert_eq!(number(&fixture, HOLDS).await, 0);
        runner.output(&next, 0, "all of it").await.expect(200);
        runner.complete(&next).await;
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["tasks"][0]["attempt"], statuses(&ended)), (&json!(1), vec!["completed"]));
        let output = path(&run, &format!("/tasks/{}/output?attempt=1", lease["taskId"].as_str().unwrap()));
        assert_eq!(fixture.api.get(&output).await.text, "all of it");
    }

    async fn the_time_of_a_wait_has_bounds(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for (bad, why) in [
            (json!({ "status": "quota", "resumeAt": ahead(hours(24 * 7 + 1)) }), "too far ahead"),
            (json!({ "status": "failed", "resumeAt": ahead(hours(1)) }), "another status"),
            (json!({ "status": "quota", "resumeAt": "tomorrow" }), "no time"),
            (json!({ "status": "quota", "resumeAt": 1_795_336_834 }), "a number"),
        ] {
            let fields = runner.report(&lease, "finish", bad).await.bad_fields();
            assert_eq!(fields, ["/resumeAt"], "{why}");
        }
        assert_eq!(statuses(&fixture.run(&run).await), ["dispatching"], "nothing happened");
        // Without a time it is five minutes.
        let begun = Clock::system().now();
        let nothing = json!({ "inputTokens": 0, "outputTokens": 0, "costUsd": 0 });
        runner.report(&lease, "finish", json!({ "status": "quota", "usage": nothing })).await.expect(200);
        assert_eq!(fixture.api.get("/v1/orchestrator/usage").await.expect(200)["total"]["attempts"], 0);
        let waits_for = async |seconds: u64, begun: Timestamp| {
            let reason = waits(&fixture.run(&run).await, 0).1.to_owned();
            let at: Timestamp = reason.split("continues at ").nth(1).unwrap().trim_end_matches('.').parse().unwrap();
            let after = |seconds: u64, time: Timestamp| time.plus(Duration::from_secs(seconds));
            (after(seconds - 20, begun)..=after(seconds, Clock::system().now())).contains(&at)
        };
        assert!(waits_for(300, begun).await);
        // A retry by a person starts at once. A time in the past is now, and the shortest wait a minute.
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let lease = runner.lease_one().await;
        let begun = Clock::system().now();
        let past = json!({ "status": "quota", "resumeAt": "2020-01-01T00:00:00Z" });
        runner.report(&lease, "finish", past).await.expect(200);
        assert!(waits_for(60, begun).await);
        assert!(runner.lease(1).await.is_empty());
    }

    async fn a_person_can_retry_at_once_or_give_up(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let runner = fixture.runner();
        let (first, second) = (runner.lease_one().await, runner.lease_one().await);
        at_limit(&runner, &first, hours(1)).await;
        // The end of the other attempt comes with an earlier time.
        at_limit(&runner, &second, Duration::from_secs(90)).await;
        assert_eq!(number(&fixture, HOLDS).await, 1);
        let reason = waits(&fixture.run(&run).await, 1).1.to_owned();
        let at: Timestamp = reason.split("continues at ").nth(1).unwrap().trim_end_matches('.').parse().unwrap();
        assert!(at.since(Clock::system().now()) > Duration::from_secs(3_000), "{reason}");

        let waiting = tokio::spawn({
            let runner = runner.clone();
            async move { runner.wait(1, SOON).await }
        });
        fixture.wait_for_requests(1).await;
        let retried = fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!((statuses(&retried), waits(&retried, 0).0), (vec!["queued", "queued"], "-"));
        assert_eq!(waiting.await.unwrap().len(), 1, "the waiting request was woken");
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.problem(409, "CONFLICT");

        at_limit(&runner, &runner.lease_one().await, hours(1)).await;
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        assert_eq!(statuses(&fixture.run(&run).await)[1], "cancelled");
        // What is cancelled and retried does not wait either.
        let lone = fixture.submit(json!([task("c")])).await;
        assert!(runner.lease(1).await.is_empty());
        fixture.api.post(&path(&lone, "/cancel"), &json!({})).await.expect(200);
        fixture.wait_for_end(&lone).await;
        fixture.api.post(&path(&lone, "/retry"), &json!({})).await.expect(200);
        assert_eq!(runner.lease(1).await.len(), 1);
    }

    async fn the_wait_goes_with_its_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        at_limit(&runner, &runner.lease_one().await, hours(100)).await;
        assert!(other.lease(1).await.is_empty(), "the run is on the first machine");
        assert_eq!(number(&fixture, HOLDS).await, 1);
        fixture.peers.remove_machine(fixture.user, &runner.id);
        fixture.delete_machine(&runner, fixture.now().await).await;
        assert_eq!(number(&fixture, HOLDS).await, 0);
        let next = other.lease_one().await;
        assert_eq!(next["resume"], json!(null), "the session was on the other machine");
        other.complete(&next).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_cancelled_run_does_not_wait(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        fixture.api.post(&path(&run, "/cancel"), &json!({})).await.expect(200);
        assert_eq!(at_limit(&runner, &lease, hours(1)).await["taskStatus"], "cancelled");
        assert_eq!(fixture.wait_for_end(&run).await["status"], "cancelled");
    }

    async fn a_task_does_not_wait_for_ever(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let mut runner = fixture.runner();
        at_limit(&runner, &runner.lease_one().await, hours(1)).await;
        fixture.stop().await;
        execute(&fixture.url, "UPDATE task_specs SET quota_waits = 999").await;
        let_waits_end(&fixture).await;
        fixture.start(&[]).await;
        runner = fixture.reconnect(&runner);
        let last = runner.lease_one().await;
        assert_eq!(at_limit(&runner, &last, hours(1)).await["taskStatus"], "failed");
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!(ended["tasks"][0]["error"]["code"], "PROVIDER_LIMIT_REACHED");
        // A retry by a person resets the count.
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!(at_limit(&runner, &runner.lease_one().await, hours(1)).await["taskStatus"], "queued");
    }

    async fn an_agent_gets_a_message_only_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let done = json!({ "status": "completed", "providerSessionId": "s-1" });
        runner.report(&runner.lease_one().await, "finish", done).await.expect(200);
        let messages = path(&run, &format!("/tasks/{}/messages", run["tasks"][0]["id"].as_str().unwrap()));
        fixture.api.post(&messages, &json!({ "text": "and this", "messageId": "m" })).await.expect(200);
        let second = runner.lease_one().await;
        runner.heartbeat(&second).await.expect(200);
        at_limit(&runner, &second, hours(1)).await;
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let third = runner.lease_one().await;
        assert!(third["prompt"].as_str().unwrap().starts_with("You were interrupted"), "{third}");
        assert_eq!((&third["attempt"], &third["resume"]), (&json!(2), &json!("s-1")));
    }

    async fn what_the_attempts_of_a_task_cost_is_summed_and_bounded(on: Backend) {
        let fixture = Fixture::new(on).await;
        let policy = json!({ "maxAttempts": 3, "backoffMs": 0 });
        let run = fixture.submit_run(json!({ "maxCostUsd": 2.5, "tasks": [
            { "prompt": "a", "provider": "claude", "retry": policy },
            { "prompt": "b", "provider": "claude", "maxCostUsd": 1_000_000 },
        ]})).await;
        assert_eq!((&run["tasks"][0]["maxCostUsd"], &run["tasks"][1]["maxCostUsd"]), (&json!(2.5), &json!(1_000_000.0)));
        let runner = fixture.runner();
        let cost = |status: &str, cost: f64| json!({ "status": status, "providerSessionId": "s-1", "usage": { "costUsd": cost } });
        let first = runner.lease_one().await;
        assert_eq!((&first["maxCostUsd"], &first["resumeCostUsd"]), (&json!(2.5), &json!(null)));
        runner.report(&first, "finish", cost("failed", 1.0)).await.expect(200);
        let second = runner.lease_one().await;
        assert_eq!((&second["maxCostUsd"], &second["resumeCostUsd"]), (&json!(1.5), &json!(1.0)));
        // What is left is used up, so there is no third attempt.
        assert_eq!(runner.report(&second, "finish", cost("failed", 1.5)).await.expect(200)["taskStatus"], "failed");
        runner.complete(&runner.lease_one().await).await;
        let ended = fixture.wait_for_end(&run).await;
        let error = &ended["tasks"][0]["error"];
        assert_eq!(error["code"], "COST_LIMIT_REACHED");
        assert!(error["message"].as_str().unwrap().contains("$2.5000"), "{error}");
        assert_eq!(ended["tasks"][0]["usage"]["costUsd"], 2.5);

        // A person who retries it lets it cost as much again. The agent's session is the same one.
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let third = runner.lease_one().await;
        assert_eq!((&third["maxCostUsd"], &third["resumeCostUsd"]), (&json!(2.5), &json!(2.5)));
        assert_eq!(runner.report(&third, "finish", cost("completed", 2.6)).await.expect(200)["taskStatus"], "failed");
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let reported = json!({ "status": "failed", "usage": { "costUsd": 0.1 }, "error": { "code": "COST_LIMIT_REACHED", "message": "x" } });
        let fourth = runner.lease_one().await;
        assert_eq!(runner.report(&fourth, "finish", reported).await.expect(200)["taskStatus"], "failed", "it is not retried");
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        let fifth = runner.lease_one().await;
        assert_eq!(runner.report(&fifth, "finish", cost("completed", 2.5)).await.expect(200)["taskStatus"], "completed");
        // So does one who says more to the agent.
        let messages = path(&run, &format!("/tasks/{}/messages", run["tasks"][0]["id"].as_str().unwrap()));
        fixture.api.post(&messages, &json!({ "text": "and this", "messageId": "m" })).await.expect(200);
        assert_eq!(runner.lease_one().await["maxCostUsd"], 2.5);
    }

    async fn a_limit_of_cost_has_bounds(on: Backend) {
        let fixture = Fixture::new(on).await;
        for bad in [json!(0), json!(-1), json!(1_000_000.5), json!("5"), json!(true)] {
            let of_run = fixture.api.post(RUNS, &json!({ "maxCostUsd": bad, "tasks": [task("a")] })).await;
            assert_eq!(of_run.bad_fields(), ["/maxCostUsd"], "{bad}");
            let of_task = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "maxCostUsd": bad }] });
            assert_eq!(fixture.api.post(RUNS, &of_task).await.bad_fields(), ["/tasks/0/maxCostUsd"], "{bad}");
        }
        let huge = fixture.api.request("POST", RUNS).header("content-type", "application/json")
            .body(r#"{"maxCostUsd":1e999,"tasks":[{"prompt":"a","provider":"claude"}]}"#);
        ensemble_testkit::Api::send(huge).await.problem(400, "INVALID_JSON");
        assert_eq!(fixture.submit(json!([task("a")])).await["tasks"][0]["maxCostUsd"], json!(null));
    }
}
