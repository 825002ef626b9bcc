//! Runners that go away, and what they may still say when they come back.

use std::time::Duration;

use ensemble_testkit::{eventually, on_both_databases};
use serde_json::{Value, json};

use crate::world::{World, task};

const SHORT: &[(&str, &str)] =
    &[("ORCHESTRATOR_LEASE_MS", "400"), ("ORCHESTRATOR_FIRST_BEAT_MS", "200"), ("ORCHESTRATOR_SWEEP_MS", "100")];
const TIMEOUT: Duration = Duration::from_secs(15);

async fn is_queued(world: &World, run: &Value) -> bool {
    world.run(run).await["tasks"][0]["status"] == "queued"
}

on_both_databases! {
    async fn a_lease_that_runs_out_goes_to_another_machine_and_the_old_fence_is_void(on: Backend) {
        let world = World::with(on, SHORT).await;
        let run = world.submit(json!([task("a"), task("b")])).await;
        let (lost, other) = (world.runner(), world.runner());
        let old = lost.one().await;
        lost.beat(&old).await.expect(200);
        let new = loop {
            let leases = other.wait(1, TIMEOUT).await;
            if leases[0]["taskId"] == old["taskId"] {
                break leases[0].clone();
            }
        };
        assert_eq!((&new["attempt"], &new["fence"]), (&json!(2), &json!(2)));
        assert_eq!(new["resume"], json!(null));
        lost.beat(&old).await.problem(409, "LEASE_LOST");
        lost.output(&old, 0, "x").await.problem(409, "LEASE_LOST");
        lost.finish(&old, "completed").await.problem(409, "LEASE_LOST");
        other.complete(&new).await;
        let now = world.run(&run).await;
        assert_eq!((&now["tasks"][0]["status"], &now["tasks"][0]["attempt"]), (&json!("completed"), &json!(2)));
        // The machine that said nothing after its first heartbeat; what was never begun is no loss.
        assert_eq!(world.metric("ensemble_machine_losses_total").await, 1.0);
    }

    async fn a_late_report_is_taken_when_nobody_else_has_the_task(on: Backend) {
        let world = World::with(on, SHORT).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        runner.beat(&lease).await.expect(200);
        eventually(TIMEOUT, async || is_queued(&world, &run).await).await;
        assert_eq!(runner.finish(&lease, "completed").await.expect(200)["taskStatus"], "completed");
        let run = world.ended(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["attempt"]), (&json!("completed"), &json!(1)));
    }

    async fn a_late_heartbeat_takes_the_task_up_again_and_it_was_no_loss(on: Backend) {
        let world = World::with(on, &[SHORT, &[("ORCHESTRATOR_MAX_MACHINE_LOSSES", "2")]].concat()).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        for _ in 0..3 {
            runner.beat(&lease).await.expect(200);
            assert_eq!(world.run(&run).await["tasks"][0]["status"], "running");
            eventually(TIMEOUT, async || is_queued(&world, &run).await).await;
        }
        assert_eq!(runner.output(&lease, 0, "still here").await.expect(200)["nextOffset"], 10);
        runner.complete(&lease).await;
        assert_eq!(world.ended(&run).await["status"], "completed");
    }

    async fn too_many_losses_fail_the_task(on: Backend) {
        let world = World::with(on, SHORT).await;
        let run = world.submit(json!([task("a")])).await;
        let mut last = json!(null);
        for attempt in 1..=3 {
            let runner = world.runner();
            last = runner.one().await;
            assert_eq!(last["attempt"], attempt);
            runner.beat(&last).await.expect(200);
        }
        let run = world.ended(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["error"]["code"]), (&json!("failed"), &json!("MACHINE_LOST")));
    }

    async fn a_lease_whose_answer_was_lost_is_no_loss(on: Backend) {
        let world = World::with(on, SHORT).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        for attempt in 1..=5 {
            assert_eq!(runner.one().await["attempt"], attempt);
        }
        assert!(!world.run(&run).await["status"].as_str().unwrap().contains("failed"));
        eventually(TIMEOUT, async || is_queued(&world, &run).await).await;
        let lease = runner.one().await;
        runner.complete(&lease).await;
        assert_eq!(world.ended(&run).await["status"], "completed");
    }

    async fn a_runner_that_beats_keeps_its_task(on: Backend) {
        let world = World::with(on, SHORT).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            runner.beat(&lease).await.expect(200);
            tokio::time::timeout(Duration::from_millis(100), std::future::pending::<()>()).await.unwrap_err();
        }
        assert_eq!(world.run(&run).await["tasks"][0]["attempt"], 1);
        runner.complete(&lease).await;
    }

    async fn an_attempt_that_its_runner_does_not_end_is_ended(on: Backend) {
        let vars = [("ORCHESTRATOR_TIMEOUT_GRACE_MS", "100"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        let world = World::with(on, &vars).await;
        let run = world.submit(json!([{ "prompt": "a", "provider": "claude", "timeoutMs": 1000 }])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        runner.beat(&lease).await.expect(200);
        let run = world.ended(&run).await;
        assert_eq!(run["tasks"][0]["error"]["code"], "TIMEOUT");
        runner.finish(&lease, "completed").await.problem(409, "LEASE_LOST");
    }

    async fn a_restart_of_the_service_gives_every_lease_a_fresh_life(on: Backend) {
        let world = World::with(on, &[("ORCHESTRATOR_LEASE_MS", "1500"), ("ORCHESTRATOR_SWEEP_MS", "100")]).await;
        let run = world.submit(json!([task("a")])).await;
        let runner = world.runner();
        let lease = runner.one().await;
        runner.beat(&lease).await.expect(200);
        let mut world = world;
        world.stop().await;
        // Away for longer than the lease lives.
        tokio::time::timeout(Duration::from_millis(2_000), std::future::pending::<()>()).await.unwrap_err();
        world.start(&[("ORCHESTRATOR_LEASE_MS", "1500"), ("ORCHESTRATOR_SWEEP_MS", "100")]).await;
        let runner = world.again(&runner);
        assert_eq!(world.run(&run).await["tasks"][0]["status"], "running");
        runner.complete(&lease).await;
        assert_eq!(world.ended(&run).await["tasks"][0]["attempt"], 1);
    }
}
