//! Changes in one service that other services must apply.

use std::time::{Duration, Instant};

use ensemble_e2e::Stack;
use ensemble_testkit::{Backend, eventually, eventually_some};
use serde_json::json;

/// A token that identity revoked is refused by every service within ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_everywhere() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let made = stack.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    let (machine, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    let lease = json!({ "machineId": "m", "providers": ["claude"], "capacity": 1, "waitMs": 0 });
    let beat = json!({ "activity": {} });
    let calls = [("PATCH", "/v1/machines/m", &beat), ("POST", "/v1/orchestrator/leases", &lease)];
    for (method, path, body) in calls {
        stack.must(machine, method, path, body.clone()).await.unwrap();
    }
    stack.must(&owner.token, "DELETE", &format!("/v1/auth/tokens/{id}"), json!(null)).await.unwrap();
    let revoked = Instant::now();
    for (method, path, body) in calls {
        let limit = Duration::from_secs(10).saturating_sub(revoked.elapsed());
        eventually(limit, async || {
            let (status, answer) = stack.call(machine, method, path, Some(body)).await.unwrap();
            assert!(matches!(status, 200 | 401), "{path}: {status} {answer}");
            status == 401
        })
        .await;
    }
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
    let run = eventually_some(Duration::from_secs(30), async || {
        let run = stack.must(&owner.token, "GET", &path, json!(null)).await.unwrap();
        let body = json!({ "activity": {} });
        let (token_status, _) = stack.call(&machine, "PATCH", "/v1/machines/m", Some(&body)).await.unwrap();
        (run["tasks"][0]["error"]["code"] == "MACHINE_DELETED" && token_status == 401).then_some(run)
    })
    .await;
    assert_eq!(run["status"], "failed", "{run}");
    assert!(stack.services.stop().await);
}
