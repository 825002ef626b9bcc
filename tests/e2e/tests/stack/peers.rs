//! Changes in one service that other services must apply.

use std::time::{Duration, Instant};

use ensemble_e2e::Stack;
use ensemble_testkit::{Api, Backend, Events, SOON, eventually, eventually_some, in_time};
use serde_json::{Value, json};

/// A token that identity revoked is refused by every service within ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_everywhere() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let lease = json!({ "machineId": "m", "providers": ["claude"], "capacity": 1, "waitMs": 0 });
    let beat = json!({ "activity": {} });
    let calls = [("PATCH", "/v1/machines/m", &beat), ("POST", "/v1/orchestrator/leases", &lease)];
    in_time(Duration::from_secs(20), async || {
        let made = stack.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
        let (machine, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
        for (method, path, body) in calls {
            stack.must(machine, method, path, body.clone()).await.unwrap();
        }
        stack.must(&owner.token, "DELETE", &format!("/v1/auth/tokens/{id}"), json!(null)).await.unwrap();
        let revoked = Instant::now();
        for (method, path, body) in calls {
            eventually(Duration::from_secs(10).saturating_sub(revoked.elapsed()), async || {
                let (status, answer) = stack.call(machine, method, path, Some(body)).await.unwrap();
                // A call that a service does not answer in time, because the machine stands still, is made again.
                assert!(matches!(status, 200 | 401 | 504), "{path}: {status} {answer}");
                status == 401
            })
            .await;
        }
    })
    .await;
    assert!(stack.services.stop().await);
}

/// Deleting a machine revokes its tokens and ends its tasks.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_machine_ends_its_tokens_and_its_tasks() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let made = stack.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    let machine = made["token"].as_str().unwrap().to_owned();
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "machineId": "m", "dependsOn": [] }] });
    let run = stack.must(&owner.token, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    let path = format!("/v1/orchestrator/runs/{}", run["id"].as_str().unwrap());
    stack.must(&owner.token, "DELETE", "/v1/machines/m", json!(null)).await.unwrap();
    let run = eventually_some(SOON, async || {
        let run = stack.must(&owner.token, "GET", &path, json!(null)).await.unwrap();
        let body = json!({ "activity": {} });
        let (token_status, _) = stack.call(&machine, "PATCH", "/v1/machines/m", Some(&body)).await.unwrap();
        (run["tasks"][0]["error"]["code"] == "MACHINE_DELETED" && token_status == 401).then_some(run)
    })
    .await;
    assert_eq!(run["status"], "failed", "{run}");
    assert!(stack.services.stop().await);
}

/// What changes in any service is a hint in the one stream of the account.
#[tokio::test(flavor = "multi_thread")]
async fn each_service_gives_hints() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    let api = Api::new(stack.url()).with_token(&owner.token);
    let mut events = Events::open(api.request("GET", "/v1/events")).await;
    assert_eq!(events.status, 200);
    let mut hint = async |kind: &str| loop {
        let event = events.next_within(Duration::from_secs(60)).await.unwrap().expect("the stream has ended");
        let data: Value = serde_json::from_str(&event.data).unwrap();
        if data["kind"] == kind {
            return data["id"].as_str().unwrap().to_owned();
        }
    };
    stack.machine(&owner, "m").await.unwrap();
    assert_eq!(hint("machine").await, "m");
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude" }] });
    let run = stack.must(&owner.token, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    assert_eq!(hint("run").await, run["id"].as_str().unwrap());
    assert!(stack.services.stop().await);
}
