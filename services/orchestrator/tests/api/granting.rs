//! Which runner gets which task.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::world::{LEASES, World, task};

fn runs_of(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["runId"].as_str().unwrap()).collect()
}

on_both_databases! {
    async fn runs_take_turns_and_keep_to_their_concurrency(on: Backend) {
        let world = World::new(on).await;
        let tasks = vec![task("x"); 6];
        let a = world.submit_run(json!({ "tasks": tasks, "maxConcurrency": 3 })).await;
        let b = world.submit_run(json!({ "tasks": tasks, "maxConcurrency": 2 })).await;
        let (a, b) = (a["id"].as_str().unwrap(), b["id"].as_str().unwrap());
        let runner = world.runner();
        let leases = runner.take(64).await;
        assert_eq!(runs_of(&leases), [a, b, a, b, a]);
        assert!(runner.take(64).await.is_empty(), "both are full");
        let run = world.run(&json!({ "id": a })).await;
        assert_eq!(run["tasks"][5]["waitingFor"], "concurrency");
        runner.complete(&leases[0]).await;
        runner.complete(&leases[1]).await;
        assert_eq!(runs_of(&runner.take(1).await), [a]);
        assert_eq!(runs_of(&runner.take(1).await), [b]);
    }

    async fn a_newer_run_does_not_starve(on: Backend) {
        let world = World::new(on).await;
        for _ in 0..60 {
            world.submit(json!([task("old"), task("old")])).await;
        }
        let newest = world.submit(json!([task("new")])).await;
        let runner = world.runner();
        let mut seen = HashSet::new();
        for _ in 0..61 {
            seen.insert(runner.one().await["runId"].clone());
        }
        assert_eq!(seen.len(), 61, "each had its turn before any had two");
        assert!(seen.contains(&newest["id"]));
    }

    async fn the_first_machine_takes_the_run_unless_it_is_spread(on: Backend) {
        let world = World::new(on).await;
        let (one, two) = (world.runner(), world.runner());
        let kept = world.submit(json!([task("a"), task("b")])).await;
        one.take(1).await;
        assert!(two.take(8).await.is_empty());
        assert_eq!(one.take(8).await.len(), 1);
        let spread = world.submit_run(json!({ "tasks": [task("a"), task("b")], "spread": true })).await;
        assert_eq!(runs_of(&one.take(1).await), [spread["id"].as_str().unwrap()]);
        assert_eq!(runs_of(&two.take(1).await), [spread["id"].as_str().unwrap()]);
        assert_eq!(world.run(&kept).await["tasks"][1]["machineId"], json!(one.id));
    }

    async fn pinned_tasks_go_to_their_machine_only(on: Backend) {
        let world = World::new(on).await;
        let (one, two) = (world.runner(), world.runner());
        let run = world.submit(json!([
            { "prompt": "free", "provider": "claude" },
            { "prompt": "pinned", "provider": "claude", "machineId": two.id },
        ])).await;
        assert_eq!(one.take(8).await.len(), 1);
        let leases = two.take(8).await;
        assert_eq!(leases[0]["prompt"], "pinned");
        assert_eq!(world.run(&run).await["tasks"][1]["machineId"], json!(two.id));
    }

    async fn a_runner_gets_what_it_can_start_and_tasks_say_what_they_wait_for(on: Backend) {
        let world = World::with(on, &[("ORCHESTRATOR_RUNNER_SEEN_MS", "300")]).await;
        let run = world.submit(json!([
            { "prompt": "x", "provider": "gemini" }, { "prompt": "y", "provider": "claude" },
        ])).await;
        let runner = world.runner();
        let ask = async |providers: &[&str]| {
            let body = json!({ "machineId": runner.id, "providers": providers, "capacity": 8, "waitMs": 0 });
            runner.api.post(LEASES, &body).await.expect(200)["leases"].clone()
        };
        assert_eq!(ask(&["codex"]).await, json!([]));
        assert_eq!(world.run(&run).await["tasks"][0]["waitingFor"], "machine");
        assert_eq!(ask(&["claude", "codex", "claude"]).await[0]["prompt"], "y");
        let again = world.submit(json!([task("z")])).await;
        assert_eq!(again["tasks"][0]["waitingFor"], json!(null), "a runner is there that can take it");
        ensemble_testkit::eventually(Duration::from_secs(5), async || {
            world.run(&again).await["tasks"][0]["waitingFor"] == "machine"
        }).await;
    }

    async fn a_waiting_runner_is_woken_by_a_new_run_and_by_a_task_that_becomes_ready(on: Backend) {
        let world = World::new(on).await;
        let runner = world.runner();
        let waiting = tokio::spawn({ let runner = runner.clone(); async move { runner.one().await } });
        ensemble_testkit::eventually(Duration::from_secs(5), async || {
            // The runner is noted before it waits.
            let probe = world.submit(json!([{ "prompt": "probe", "provider": "codex", "machineId": runner.id }])).await;
            probe["tasks"][0]["waitingFor"] != "machine"
        }).await;
        let first = waiting.await.unwrap();
        assert_eq!(first["prompt"], "probe");
        while let Some(lease) = runner.take(1).await.pop() {
            runner.complete(&lease).await;
        }
        runner.complete(&first).await;
        world.submit(json!([
            { "prompt": "a", "provider": "claude" }, { "prompt": "b", "provider": "claude", "dependsOn": ["0"] },
        ])).await;
        let a = runner.one().await;
        let began = Instant::now();
        let waiting = tokio::spawn({ let runner = runner.clone(); async move { runner.one().await } });
        tokio::task::yield_now().await;
        runner.complete(&a).await;
        assert_eq!(waiting.await.unwrap()["prompt"], "b");
        assert!(began.elapsed() < Duration::from_secs(4), "not by the sweep: {:?}", began.elapsed());
    }

    async fn a_runner_that_went_while_it_waited_takes_nothing(on: Backend) {
        let world = World::new(on).await;
        let runner = world.runner();
        let waiting: Vec<_> =
            (0..4).map(|_| tokio::spawn({ let runner = runner.clone(); async move { runner.one().await } })).collect();
        ensemble_testkit::eventually(Duration::from_secs(20), async || world.service().in_flight() == 4).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        ensemble_testkit::eventually(Duration::from_secs(20), async || world.service().in_flight() == 0).await;
        let run = world.submit(json!([task("x")])).await;
        let leases = runner.take(1).await;
        assert_eq!((&leases[0]["runId"], &leases[0]["attempt"]), (&run["id"], &json!(1)));
    }

    async fn many_runners_never_get_the_same_task(on: Backend) {
        let world = World::new(on).await;
        world.submit_run(json!({ "tasks": vec![task("x"); 48], "maxConcurrency": 48, "spread": true })).await;
        let runners: Vec<_> = (0..12).map(|_| world.runner()).collect();
        let taken = futures_util::future::join_all(runners.iter().map(async |runner| {
            let mut mine = Vec::new();
            loop {
                let leases = runner.take(3).await;
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
