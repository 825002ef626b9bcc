//! Tasks that a machine hands back because it cannot run them.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LEASES, Runner, path, statuses, task};

const NO_FOLDER: &str = "WORKING_DIRECTORY_NOT_FOUND";

async fn refuse(runner: &Runner, lease: &Value, code: &str) -> Value {
    let body = json!({ "status": "refused", "error": { "code": code, "message": "It is not here." } });
    runner.report(lease, "finish", body).await.expect(200)
}

/// Requests leases for these providers without waiting.
async fn offer(runner: &Runner, providers: Value) -> Vec<Value> {
    let body = json!({ "machineId": runner.id, "providers": providers, "capacity": 1, "slots": 1, "waitMs": 0 });
    runner.api.post(LEASES, &body).await.expect(200)["leases"].as_array().unwrap().clone()
}

on_both_databases! {
    async fn a_task_that_a_machine_hands_back_goes_to_another_one(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), { "prompt": "b", "provider": "claude", "dependsOn": ["0"] }])).await;
        let (cannot, can) = (fixture.runner(), fixture.runner());
        assert!(can.lease(0).await.is_empty(), "it only says that it is there");
        let lease = cannot.lease_one().await;
        cannot.heartbeat(&lease).await.expect(200);
        assert_eq!(refuse(&cannot, &lease, NO_FOLDER).await["taskStatus"], "queued");
        assert_eq!(refuse(&cannot, &lease, NO_FOLDER).await["taskStatus"], "queued", "a repeated report");
        assert!(cannot.lease(4).await.is_empty(), "it does not get the task again");
        let now = fixture.run(&run).await;
        let refusal = &now["tasks"][0]["refusals"][0];
        assert_eq!((&refusal["machineId"], &refusal["code"]), (&json!(cannot.id), &json!(NO_FOLDER)));
        assert_eq!((&now["tasks"][0]["attempt"], &now["machineId"]), (&json!(0), &json!(null)));

        let other = can.lease_one().await;
        assert_eq!((&other["attempt"], &other["fence"], &other["taskId"]), (&json!(1), &json!(2), &lease["taskId"]));
        can.heartbeat(&other).await.expect(200);
        can.output(&other, 0, "done").await.expect(200);
        can.complete(&other).await;
        assert_eq!(fixture.run(&run).await["machineId"], json!(can.id), "the run follows the machine that took it");
        assert!(cannot.lease(4).await.is_empty(), "the second task follows the first one");
        let output = path(&run, &format!("/tasks/{}/output?attempt=1", lease["taskId"].as_str().unwrap()));
        assert_eq!(fixture.api.get(&output).await.text, "done", "the attempt that was handed back has no number");
        can.complete(&can.lease_one().await).await;
        assert_eq!(fixture.wait_for_end(&run).await["status"], "completed");
    }

    async fn a_task_fails_when_no_machine_is_left(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (first, second) = (fixture.runner(), fixture.runner());
        offer(&second, json!(["claude"])).await;
        let run = fixture.submit(json!([task("a"), { "prompt": "b", "provider": "claude", "dependsOn": ["0"] }])).await;
        refuse(&first, &first.lease_one().await, NO_FOLDER).await;
        assert_eq!(statuses(&fixture.run(&run).await), ["queued", "queued"], "the second machine may be able to");
        assert_eq!(refuse(&second, &second.lease_one().await, "HOST_BUSY").await["taskStatus"], "failed");
        let run = fixture.wait_for_end(&run).await;
        assert_eq!(statuses(&run), ["failed", "dependency_failed"]);
        assert_eq!(run["tasks"][0]["error"]["code"], "HOST_BUSY");
        assert_eq!(run["tasks"][0]["refusals"].as_array().unwrap().len(), 2);

        // After a retry every machine is asked again.
        fixture.api.post(&path(&run, "/retry"), &json!({})).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][0]["refusals"], json!([]));
        let lease = first.lease_one().await;
        first.complete(&lease).await;
    }

    async fn a_pinned_task_fails_when_its_machine_hands_it_back(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (wanted, other) = (fixture.runner(), fixture.runner());
        offer(&other, json!(["claude"])).await;
        let run = fixture.submit_run(json!({ "tasks": [task("a")], "machineId": wanted.id })).await;
        assert_eq!((&run["machineId"], &run["tasks"][0]["machineId"]), (&json!(wanted.id), &json!(wanted.id)));
        assert!(offer(&other, json!(["claude"])).await.is_empty(), "the run says which machine");
        let reason = fixture.run(&run).await["tasks"][0]["waitingReason"].as_str().unwrap().to_owned();
        assert!(reason.contains("pinned") && reason.contains(wanted.id.as_str()), "{reason}");
        assert_eq!(refuse(&wanted, &wanted.lease_one().await, NO_FOLDER).await["taskStatus"], "failed");
        assert_eq!(fixture.wait_for_end(&run).await["tasks"][0]["error"]["code"], NO_FOLDER);
        let unknown = json!({ "tasks": [task("a")], "machineId": "unknown" });
        fixture.api.post(crate::fixture::RUNS, &unknown).await.problem(404, "MACHINE_NOT_FOUND");
    }

    async fn a_machine_that_offers_a_provider_again_gets_its_tasks_again(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (runner, other) = (fixture.runner(), fixture.runner());
        offer(&other, json!(["claude"])).await;
        let run = fixture.submit(json!([task("a")])).await;
        let lease = offer(&runner, json!(["claude", "codex"])).await.remove(0);
        refuse(&runner, &lease, "PROVIDER_NOT_SIGNED_IN").await;
        assert!(offer(&runner, json!(["claude", "codex"])).await.is_empty());
        let reason = fixture.run(&run).await["tasks"][0]["waitingReason"].clone();
        assert_eq!(reason, json!(null), "the other machine can take it");
        assert!(offer(&runner, json!(["codex"])).await.is_empty());
        let again = offer(&runner, json!(["claude", "codex"])).await;
        assert_eq!((&again[0]["taskId"], &again[0]["fence"]), (&lease["taskId"], &json!(2)));
    }

    async fn a_task_cannot_be_handed_back_after_the_agent_has_started(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.submit(json!([task("a")])).await;
        let runner = fixture.runner();
        let lease = runner.lease_one().await;
        let without_reason = runner.finish(&lease, "refused").await;
        assert_eq!(without_reason.bad_fields(), ["/error"]);
        runner.output(&lease, 0, "x").await.expect(200);
        let body = json!({ "status": "refused", "error": { "code": "HOST_BUSY", "message": "" } });
        runner.report(&lease, "finish", body).await.problem(409, "CONFLICT");
        runner.complete(&lease).await;
    }

    async fn a_full_machine_is_named(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let run = fixture.submit(json!([task("a"), task("b")])).await;
        assert_eq!(offer(&runner, json!(["claude"])).await.len(), 1);
        let waits = fixture.run(&run).await["tasks"][1].clone();
        assert_eq!(waits["waitingFor"], "machine");
        let reason = waits["waitingReason"].as_str().unwrap();
        assert!(reason.contains(&format!("{}, which is full: 1 of 1", runner.id)), "{reason}");
    }
}
