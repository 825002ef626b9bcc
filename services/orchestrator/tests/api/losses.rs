//! Runners that are lost, and the reports that they may still send when they come back.

use std::time::Duration;

use ensemble_testkit::{SOON, eventually, in_time, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, execute, task};

const SHORT: &[(&str, &str)] =
    &[("ORCHESTRATOR_LEASE_MS", "400"), ("ORCHESTRATOR_FIRST_BEAT_MS", "200"), ("ORCHESTRATOR_SWEEP_MS", "100")];

async fn is_queued(fixture: &Fixture, run: &Value) -> bool {
    fixture.run(run).await["tasks"][0]["status"] == "queued"
}

on_both_databases! {
    async fn the_task_of_an_expired_lease_goes_to_another_machine_with_a_new_fence(on: Backend) {
        let fixture = Fixture::with(on, SHORT).await;
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        let (lost, other) = (fixture.runner(), fixture.runner());
        let old = lost.lease_one().await;
        lost.heartbeat(&old).await.expect(200);
        let new = loop {
            let leases = other.wait(1, SOON).await;
            if leases[0]["taskId"] == old["taskId"] {
                break leases[0].clone();
            }
        };
        assert_eq!((&new["attempt"], &new["fence"]), (&json!(2), &json!(2)));
        assert_eq!(new["resume"], json!(null));
        lost.heartbeat(&old).await.problem(409, "LEASE_LOST");
        lost.output(&old, 0, "x").await.problem(409, "LEASE_LOST");
        lost.finish(&old, "completed").await.problem(409, "LEASE_LOST");
        other.complete(&new).await;
        let now = fixture.run(&run).await;
        assert_eq!((&now["tasks"][0]["status"], &now["tasks"][0]["attempt"]), (&json!("completed"), &json!(2)));
        // One machine was lost after its first heartbeat. An attempt that never started is no loss.
        assert_eq!(fixture.metric("ensemble_machine_losses_total").await, 1.0);
    }

    async fn a_late_report_counts_while_no_newer_attempt_exists(on: Backend) {
        let fixture = Fixture::with(on, SHORT).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        eventually(SOON, async || is_queued(&fixture, &run).await).await;
        assert_eq!(runner.finish(&lease, "completed").await.expect(200)["taskStatus"], "completed");
        let run = fixture.wait_for_end(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["attempt"]), (&json!("completed"), &json!(1)));
    }

    async fn the_session_of_a_lost_attempt_is_resumed_on_its_machine(on: Backend) {
        let fixture = Fixture::with(on, SHORT).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        runner.report(&lease, "heartbeat", json!({ "providerSessionId": "session-1" })).await.expect(200);
        eventually(SOON, async || is_queued(&fixture, &run).await).await;
        let next = runner.lease_one().await;
        assert_eq!((&next["attempt"], &next["resume"]), (&json!(2), &json!("session-1")));
        runner.complete(&next).await;
        fixture.wait_for_end(&run).await;
    }

    async fn a_late_heartbeat_resumes_the_attempt_and_is_no_loss(on: Backend) {
        let fixture = Fixture::with(on, &[SHORT, &[("ORCHESTRATOR_MAX_MACHINE_LOSSES", "2")]].concat()).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        for _ in 0..3 {
            // On a slow machine the lease may expire again before this is seen.
            eventually(SOON, async || {
                runner.heartbeat(&lease).await.expect(200);
                fixture.run(&run).await["tasks"][0]["status"] == "running"
            }).await;
            eventually(SOON, async || is_queued(&fixture, &run).await).await;
        }
        assert_eq!(runner.output(&lease, 0, "still here").await.expect(200)["nextOffset"], 10);
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn too_many_losses_fail_the_task(on: Backend) {
        let fixture = Fixture::with(on, SHORT).await;
        let run = fixture.submit(json!([task("a")])).await;
        let mut last = json!(null);
        for attempt in 1..=3 {
            let runner = fixture.runner();
            last = runner.lease_one().await;
            assert_eq!(last["attempt"], attempt);
            runner.heartbeat(&last).await.expect(200);
        }
        let run = fixture.wait_for_end(&run).await;
        assert_eq!((&run["status"], &run["tasks"][0]["error"]["code"]), (&json!("failed"), &json!("MACHINE_LOST")));
    }

    async fn a_lease_whose_response_was_lost_is_no_loss(on: Backend) {
        let fixture = Fixture::with(on, SHORT).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        for attempt in 1..=5 {
            assert_eq!(runner.lease_one().await["attempt"], attempt);
        }
        assert!(!fixture.run(&run).await["status"].as_str().unwrap().contains("failed"));
        eventually(SOON, async || is_queued(&fixture, &run).await).await;
        let lease = runner.lease_one().await;
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_runner_with_heartbeats_keeps_its_task(on: Backend) {
        let vars = [("ORCHESTRATOR_LEASE_MS", "2000"), ("ORCHESTRATOR_FIRST_BEAT_MS", "2000"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        in_time(Duration::from_secs(10), async || {
            let fixture = Fixture::with(on, &vars).await;
            let run = fixture.submit(json!([task("a")])).await;
            let runner = fixture.runner();
            let lease = runner.lease_one().await;
            let began = std::time::Instant::now();
            eventually(SOON, async || {
                runner.heartbeat(&lease).await.expect(200);
                began.elapsed() > Duration::from_secs(4)
            }).await;
            assert_eq!(fixture.run(&run).await["tasks"][0]["attempt"], 1);
            runner.complete(&lease).await;
        }).await;
    }

    async fn an_attempt_that_its_runner_does_not_end_times_out(on: Backend) {
        let vars = [("ORCHESTRATOR_TIMEOUT_GRACE_MS", "100"), ("ORCHESTRATOR_SWEEP_MS", "100")];
        let fixture = Fixture::with(on, &vars).await;
        let run = fixture.submit(json!([{ "prompt": "a", "provider": "claude", "timeoutMs": 1000 }])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        // A machine that stands still sends it too late.
        runner.heartbeat(&lease).await;
        let run = fixture.wait_for_end(&run).await;
        assert_eq!(run["tasks"][0]["error"]["code"], "TIMEOUT");
        runner.finish(&lease, "completed").await.problem(409, "LEASE_LOST");
    }

    async fn a_restart_of_the_service_extends_every_lease(on: Backend) {
        let mut fixture = Fixture::with(on, &[("ORCHESTRATOR_SWEEP_MS", "100")]).await;
        let run = fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        runner.heartbeat(&lease).await.expect(200);
        fixture.stop().await;
        // The service is down for longer than the life of the lease.
        let day = if fixture.url.starts_with("sqlite") { "86400000000" } else { "interval '24 hours'" };
        let expired = format!("UPDATE leases SET expires_at = expires_at - {day}, due_at = due_at - {day}");
        execute(&fixture.url, &expired).await;
        fixture.start(&[("ORCHESTRATOR_SWEEP_MS", "100")]).await;
        let runner = fixture.reconnect(&runner);
        assert_eq!(fixture.run(&run).await["tasks"][0]["status"], "running");
        runner.complete(&lease).await;
        assert_eq!(fixture.wait_for_end(&run).await["tasks"][0]["attempt"], 1);
    }
}
