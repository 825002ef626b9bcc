//! Changes that concern a whole run are made in small transactions. What they leave to do is done after a kill, and by the next change
//! that needs it.

use ensemble_testkit::{Program, SOON, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, Runner, number, path, task, variables};

/// More than two transactions; in a chain, eleven.
const TASKS: usize = 1_100;
/// Tasks that one transaction may change, in addition to the one that ended.
const BATCH: i64 = 500;

fn chain(count: usize) -> Value {
    (0..count).map(|at| node(at.checked_sub(1))).collect()
}

fn node(depends_on: Option<usize>) -> Value {
    let names: Vec<String> = depends_on.iter().map(usize::to_string).collect();
    json!({ "prompt": "x", "provider": "claude", "dependsOn": names })
}

/// Waits until nothing is left to do. Then no transaction has changed more tasks than one may.
async fn settled(fixture: &Fixture) {
    eventually(SOON, async || number(fixture, "SELECT count(*) FROM runs WHERE unsettled").await == 0).await;
    assert_eq!(number(fixture, "SELECT count(*) FROM ended_tasks").await, 0);
    let most =
        "SELECT max(n) FROM (SELECT count(*) AS n FROM tasks WHERE version > 1 GROUP BY run_id, version) changed";
    let most = number(fixture, most).await;
    assert!(most <= BATCH + 1, "one transaction has changed {most} tasks of a run");
}

async fn summary(fixture: &Fixture, run: &Value, what: &str) -> Value {
    fixture.run(run).await["summary"][what].clone()
}

async fn act(fixture: &Fixture, run: &Value, what: &str) -> Value {
    fixture.api.post(&path(run, what), &json!({})).await.expect(200)
}

/// Fails the first task of a run, and leaves the agent's session.
async fn fail_first(runner: &Runner) -> Value {
    let lease = runner.lease_one().await;
    let report = json!({ "status": "failed", "providerSessionId": "s" });
    assert_eq!(runner.report(&lease, "finish", report).await.expect(200)["taskStatus"], "failed");
    lease
}

on_both_databases! {
    async fn a_failure_is_passed_on_in_batches(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(chain(TASKS)).await;
        let wide = fixture.submit((0..TASKS).map(|at| node((at > 0).then_some(0))).collect()).await;
        let runner = fixture.runner();
        for _ in [&run, &wide] {
            fail_first(&runner).await;
        }
        for run in [&run, &wide] {
            let run = fixture.wait_for_end(run).await;
            assert_eq!((&run["status"], &run["summary"]["failed"]), (&json!("failed"), &json!(TASKS)));
        }
        settled(&fixture).await;
        assert_eq!(number(&fixture, "SELECT count(*) FROM leases").await, 2, "no dependent was leased");
    }

    async fn dependents_are_released_cancelled_and_queued_again_in_batches(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit((0..TASKS).map(|at| node((at > 0).then_some(0))).collect()).await;
        let runner = fixture.runner();
        runner.complete(&runner.lease_one().await).await;
        settled(&fixture).await;
        assert_eq!(number(&fixture, "SELECT ready FROM runs").await, i64::try_from(TASKS - 1).unwrap());
        act(&fixture, &run, "/cancel").await;
        assert!(runner.lease(64).await.is_empty(), "also of those that are not cancelled yet");
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["summary"]["cancelled"]), (&json!("cancelled"), &json!(TASKS - 1)));
        settled(&fixture).await;
        assert_eq!(act(&fixture, &run, "/retry").await["summary"]["queued"], TASKS - 1);
        // Cancelled while tasks of it are still to be queued again.
        act(&fixture, &run, "/cancel").await;
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["summary"]["cancelled"]), (&json!("cancelled"), &json!(TASKS - 1)));
        act(&fixture, &run, "/retry").await;
        settled(&fixture).await;
        let ready = "SELECT count(*) FROM tasks WHERE status = 'queued' AND open_deps = 0";
        assert_eq!(number(&fixture, ready).await, i64::try_from(TASKS - 1).unwrap());
        assert_eq!(number(&fixture, "SELECT ready FROM runs").await, i64::try_from(TASKS - 1).unwrap());
        assert_eq!(runner.lease(64).await.len(), 4, "as many as the run may have at once");
    }

    async fn a_retry_in_the_middle_of_a_failure_brings_all_tasks_back(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(chain(TASKS)).await;
        let runner = fixture.runner();
        fail_first(&runner).await;
        assert_eq!(act(&fixture, &run, "/retry").await["summary"]["queued"], TASKS);
        // It fails before all of its dependents are queued again.
        fail_first(&runner).await;
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["summary"]["failed"]), (&json!("failed"), &json!(TASKS)));
        settled(&fixture).await;
        act(&fixture, &run, "/retry").await;
        settled(&fixture).await;
        let right = "SELECT count(*) FROM tasks WHERE status = 'queued' \
                     AND open_deps = CASE WHEN position = 0 THEN 0 ELSE 1 END AND error_code IS NULL";
        assert_eq!(number(&fixture, right).await, i64::try_from(TASKS).unwrap());
    }

    async fn a_message_in_the_middle_of_a_failure_finds_its_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(chain(TASKS)).await;
        let runner = fixture.runner();
        let lease = fail_first(&runner).await;
        let said = path(&run, &format!("/tasks/{}/messages", lease["taskId"].as_str().unwrap()));
        let message = json!({ "messageId": "0123456789abcdef", "text": "Again." });
        assert_eq!(fixture.api.post(&said, &message).await.expect(200)["status"], "queued");
        assert_eq!(summary(&fixture, &run, "failed").await, TASKS - 1);
        runner.complete(&runner.lease_one().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "failed");
        settled(&fixture).await;
    }

    async fn tasks_of_a_deleted_machine_fail_in_batches(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (gone, other) = (fixture.runner(), fixture.runner());
        let mut tasks = vec![task("x"); TASKS];
        tasks.iter_mut().for_each(|task| task["machineId"] = json!(gone.id));
        tasks.push(task("y"));
        let run = fixture.submit(json!(tasks)).await;
        fixture.peers.remove_machine(fixture.user, &gone.id);
        let ended = fixture.delete_machine(&gone, fixture.now().await).await;
        assert_eq!(usize::try_from(ended.tasks_failed).unwrap(), TASKS);
        other.complete(&other.lease_one().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["summary"]["failed"], TASKS);
        settled(&fixture).await;
    }

    async fn a_failure_is_passed_on_after_a_kill(on: Backend) {
        let mut fixture = Fixture::new(on).await;
        fixture.stop().await;
        let vars = variables(&fixture.peers, &fixture.url, &[("RUST_LOG", "warn")]);
        let mut service = Program::start(env!("CARGO_BIN_EXE_ensemble-orchestrator"), vars).await;
        fixture.api = fixture.api.at(&service.public_url);
        let runner = fixture.runner();
        let run = fixture.api.post(RUNS, &json!({ "tasks": chain(TASKS) })).await.expect(201);
        let lease = fail_first(&runner).await;
        service.kill().await;
        let queued = number(&fixture, "SELECT count(*) FROM tasks WHERE status = 'queued'").await;
        assert!(queued > 0, "the kill came in the middle");
        let open = "SELECT count(*) FROM tasks WHERE status = 'queued' AND open_deps = 0";
        assert_eq!(number(&fixture, open).await, 0, "no runner can get one of them");
        service.restart().await;
        assert!(runner.lease(64).await.is_empty());
        assert_eq!(runner.finish(&lease, "failed").await.expect(200)["taskStatus"], "failed", "a repeated report");
        let ended = fixture.wait_for_end(&run).await;
        assert_eq!((&ended["status"], &ended["summary"]["failed"]), (&json!("failed"), &json!(TASKS)));
        settled(&fixture).await;
        assert_eq!(number(&fixture, "SELECT count(*) FROM leases").await, 1, "no dependent was leased");
        service.kill().await;
    }
}
