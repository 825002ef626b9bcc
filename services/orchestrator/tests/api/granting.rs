//! Which runner gets which task.

use std::collections::HashSet;

use ensemble_testkit::{SOON, eventually_some, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, NO_SWEEP, task};

fn runs_of(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["runId"].as_str().unwrap()).collect()
}

on_both_databases! {
    async fn runs_take_turns_within_their_concurrency(on: Backend) {
        let fixture = Fixture::new(on).await;
        let tasks = vec![task("x"); 6];
        let a = fixture.submit_run(json!({ "tasks": tasks, "maxConcurrency": 3 })).await;
        let b = fixture.submit_run(json!({ "tasks": tasks, "maxConcurrency": 2 })).await;
        let (a, b) = (a["id"].as_str().unwrap(), b["id"].as_str().unwrap());
        let runner = fixture.runner();
        let leases = runner.lease(64).await;
        assert_eq!(runs_of(&leases), [a, b, a, b, a]);
        assert!(runner.lease(64).await.is_empty(), "both are full");
        let run = fixture.run(&json!({ "id": a })).await;
        assert_eq!(run["tasks"][5]["waitingFor"], "concurrency");
        runner.complete(&leases[0]).await;
        runner.complete(&leases[1]).await;
        assert_eq!(runs_of(&runner.lease(1).await), [a]);
        assert_eq!(runs_of(&runner.lease(1).await), [b]);
    }

    async fn an_answer_has_few_prompts_that_are_filled_in(on: Backend) {
        let fixture = Fixture::new(on).await;
        let filled = json!({ "prompt": "{{tasks.a.output}}", "provider": "claude", "dependsOn": ["a"] });
        let mut tasks = vec![json!({ "taskKey": "a", "prompt": "x", "provider": "claude" })];
        tasks.extend(vec![filled; 9]);
        let run = fixture.submit_run(json!({ "tasks": tasks, "maxConcurrency": 10 })).await;
        let plain = fixture.submit_run(json!({ "tasks": vec![task("x"); 9], "maxConcurrency": 10 })).await;
        let runner = fixture.runner();
        for lease in runner.lease(64).await {
            runner.complete(&lease).await;
        }
        let seen = [runner.lease(64).await, runner.lease(64).await, runner.lease(64).await].map(|leases| leases.len());
        assert_eq!(seen, [4, 4, 1], "the next answers have the rest");
        assert_eq!(fixture.run(&plain).await["summary"]["completed"], 9, "other tasks are not held back");
        assert_eq!(fixture.run(&run).await["summary"]["running"], 9);
    }

    async fn a_newer_run_does_not_starve(on: Backend) {
        let fixture = Fixture::new(on).await;
        for _ in 0..60 {
            fixture.submit(json!([task("old"), task("old")])).await;
        }
        let newest = fixture.submit(json!([task("new")])).await;
        let runner = fixture.runner();
        let mut seen = HashSet::new();
        for _ in 0..61 {
            seen.insert(runner.lease_one().await["runId"].clone());
        }
        assert_eq!(seen.len(), 61, "each run got a lease before any got two");
        assert!(seen.contains(&newest["id"]));
    }

    async fn the_first_machine_gets_the_whole_run_unless_it_is_spread(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (one, two) = (fixture.runner(), fixture.runner());
        let kept = fixture.submit(json!([task("a"), task("b")])).await;
        one.lease(1).await;
        assert!(two.lease(8).await.is_empty());
        assert_eq!(one.lease(8).await.len(), 1);
        let spread = fixture.submit_run(json!({ "tasks": [task("a"), task("b")], "spread": true })).await;
        assert_eq!(runs_of(&one.lease(1).await), [spread["id"].as_str().unwrap()]);
        assert_eq!(runs_of(&two.lease(1).await), [spread["id"].as_str().unwrap()]);
        assert_eq!(fixture.run(&kept).await["tasks"][1]["machineId"], json!(one.id));
    }

    async fn pinned_tasks_run_on_their_machine_only(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (one, two) = (fixture.runner(), fixture.runner());
        let run = fixture.submit(json!([
            { "prompt": "free", "provider": "claude" },
            { "prompt": "pinned", "provider": "claude", "machineId": two.id },
        ])).await;
        assert_eq!(one.lease(8).await.len(), 1);
        let leases = two.lease(8).await;
        assert_eq!(leases[0]["prompt"], "pinned");
        assert_eq!(fixture.run(&run).await["tasks"][1]["machineId"], json!(two.id));
    }

    async fn a_runner_gets_tasks_of_its_providers_and_the_others_wait_for_a_machine(on: Backend) {
        let fixture = Fixture::with(on, &[("ORCHESTRATOR_RUNNER_SEEN_MS", "300")]).await;
        let run = fixture.submit(json!([
            { "prompt": "x", "provider": "gemini" }, { "prompt": "y", "provider": "claude" },
        ])).await;
        let runner = fixture.runner();
        let ask = async |providers: &[&str]| {
            let body = json!({ "machineId": runner.id, "providers": providers, "capacity": 8, "waitMs": 0 });
            runner.api.post(LEASES, &body).await.expect(200)["leases"].clone()
        };
        assert_eq!(ask(&["codex"]).await, json!([]));
        assert_eq!(fixture.run(&run).await["tasks"][0]["waitingFor"], "machine");
        assert_eq!(ask(&["claude", "codex", "claude"]).await[0]["prompt"], "y");
        // On a slow machine the runner may not be active any more.
        let again = eventually_some(SOON, async || {
            ask(&["claude"]).await;
            let again = fixture.submit(json!([task("z")])).await;
            again["tasks"][0]["waitingFor"].is_null().then_some(again)
        }).await;
        ensemble_testkit::eventually(SOON, async || {
            fixture.run(&again).await["tasks"][0]["waitingFor"] == "machine"
        }).await;
    }

    async fn a_waiting_runner_is_notified_of_new_runs_and_ready_tasks(on: Backend) {
        let fixture = Fixture::with(on, &NO_SWEEP).await;
        let runner = fixture.runner();
        let waiting = tokio::spawn({ let runner = runner.clone(); async move { runner.lease_one().await } });
        ensemble_testkit::eventually(SOON, async || {
            // The runner is recorded before it waits.
            let probe = fixture.submit(json!([{ "prompt": "probe", "provider": "codex", "machineId": runner.id }])).await;
            probe["tasks"][0]["waitingFor"] != "machine"
        }).await;
        let first = waiting.await.unwrap();
        assert_eq!(first["prompt"], "probe");
        while let Some(lease) = runner.lease(1).await.pop() {
            runner.complete(&lease).await;
        }
        runner.complete(&first).await;
        fixture.submit(json!([
            { "prompt": "a", "provider": "claude" }, { "prompt": "b", "provider": "claude", "dependsOn": ["0"] },
        ])).await;
        let a = runner.lease_one().await;
        let waiting = tokio::spawn({ let runner = runner.clone(); async move { runner.lease_one().await } });
        tokio::task::yield_now().await;
        runner.complete(&a).await;
        assert_eq!(waiting.await.unwrap()["prompt"], "b");
    }

    async fn a_runner_that_disconnects_while_it_waits_gets_no_lease(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let waiting: Vec<_> =
            (0..4).map(|_| tokio::spawn({ let runner = runner.clone(); async move { runner.lease_one().await } })).collect();
        ensemble_testkit::eventually(SOON, async || fixture.service().in_flight() == 4).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        ensemble_testkit::eventually(SOON, async || fixture.service().in_flight() == 0).await;
        let run = fixture.submit(json!([task("x")])).await;
        let leases = runner.lease(1).await;
        assert_eq!((&leases[0]["runId"], &leases[0]["attempt"]), (&run["id"], &json!(1)));
    }

    async fn many_runners_never_get_the_same_task(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.submit_run(json!({ "tasks": vec![task("x"); 48], "maxConcurrency": 48, "spread": true })).await;
        let runners: Vec<_> = (0..12).map(|_| fixture.runner()).collect();
        let taken = futures_util::future::join_all(runners.iter().map(async |runner| {
            let mut mine = Vec::new();
            loop {
                let leases = runner.lease(3).await;
                if leases.is_empty() {
                    return mine;
                }
                mine.extend(leases.iter().map(|lease| lease["taskId"].as_str().unwrap().to_owned()));
            }
        })).await;
        let all: Vec<String> = taken.into_iter().flatten().collect();
        assert_eq!((all.len(), all.iter().collect::<HashSet<_>>().len()), (48, 48));
    }
}
