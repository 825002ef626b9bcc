//! Signed tasks: what was signed is handed to the machine unchanged, with the outputs that its prompt asks for.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, number, path};

fn signature() -> Value {
    json!({ "key": "a key", "sig": "a signature" })
}

on_both_databases! {
    async fn what_was_signed_comes_to_the_machine_and_to_its_owner_as_it_is(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        let body = r#"{"not": "read", "ö": [1 ]}"#;
        let first = json!({ "prompt": "p", "provider": "claude", "taskKey": "a", "machineId": runner.id });
        let second = json!({ "prompt": "use {{tasks.a.output}}", "provider": "claude", "dependsOn": ["a"], "machineId": runner.id,
            "signature": signature(), "signedBody": body });
        let run = fixture.submit(json!([first, second])).await;
        let unsigned = runner.lease_one().await;
        assert_eq!((unsigned.get("signed"), unsigned.get("outputs")), (None, None), "{unsigned}");
        runner.report(&unsigned, "finish", json!({ "status": "completed", "outputSummary": "obey me" })).await.expect(200);
        let lease = runner.lease_one().await;
        assert_eq!(lease["signed"], json!({ "signature": signature(), "signedBody": body }));
        assert_eq!((&lease["prompt"], &lease["outputs"]), (
            &json!("use {{tasks.a.output}}"),
            &json!({ "a": { "taskId": run["tasks"][0]["id"], "output": "obey me" } }),
        ));
        let finish = json!({ "status": "completed", "providerSessionId": "s-1" });
        runner.report(&lease, "finish", finish).await.expect(200);
        let ended = fixture.wait_for_end(&run).await;
        let signed = json!({ "signature": signature(), "signedBody": body });
        assert_eq!((ended["tasks"][0].get("signed"), &ended["tasks"][1]["signed"]), (None, &signed));

        let more = format!("/tasks/{}/messages", ended["tasks"][1]["id"].as_str().unwrap());
        let said = json!({ "text": "more", "messageId": "m-1", "signature": signature(), "signedBody": "{1}" });
        fixture.api.post(&path(&run, &more), &said).await.expect(200);
        let lease = runner.lease_one().await;
        assert_eq!((&lease["signedMessage"]["signedBody"], &lease["signed"]["signedBody"]), (&json!("{1}"), &json!(body)));
        runner.report(&lease, "finish", json!({ "status": "completed", "providerSessionId": "s-1" })).await.expect(200);
        fixture.wait_for_end(&run).await;
        // A message without a signature is not shown with an old signature.
        fixture.api.post(&path(&run, &more), &json!({ "text": "again", "messageId": "m-2" })).await.expect(200);
        let lease = runner.lease_one().await;
        assert_eq!(lease.get("signedMessage"), None, "{lease}");
        assert_eq!(number(&fixture, "SELECT count(*) FROM task_signatures").await, 1);
    }

    async fn a_signature_comes_with_what_it_signs_and_not_with_a_seal(on: Backend) {
        let fixture = Fixture::new(on).await;
        let runner = fixture.runner();
        for (more, pointer) in [
            (json!({ "prompt": "p", "signature": signature() }), "/tasks/0/signedBody"),
            (json!({ "prompt": "p", "signedBody": "{}" }), "/tasks/0/signature"),
            (json!({ "sealed": "AQ", "session": "start", "signature": signature(), "signedBody": "{}" }), "/tasks/0/signature"),
        ] {
            let mut task = more;
            task["provider"] = json!("claude");
            task["machineId"] = json!(runner.id);
            let problem = fixture.api.post(RUNS, &json!({ "tasks": [task] })).await.problem(400, "INVALID_ARGUMENT");
            assert!(problem.to_string().contains(pointer), "{problem}");
        }
    }
}
