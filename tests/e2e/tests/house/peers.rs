//! What works while a peer is away, and what says clearly that it does not.

use std::time::{Duration, Instant};

use ensemble_e2e::House;
use ensemble_testkit::Backend;
use serde_json::json;

/// A token that identity revoked is refused by every service within ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_everywhere() {
    let house = House::open(Backend::Sqlite, &[]).await.unwrap();
    let owner = house.person().await.unwrap();
    house.machine(&owner, "m").await.unwrap();
    let made = house.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    let (machine, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    let lease = json!({ "machineId": "m", "providers": ["claude"], "capacity": 1, "waitMs": 0 });
    let beat = json!({ "activity": {} });
    let calls = [("PATCH", "/v1/machines/m", &beat), ("POST", "/v1/orchestrator/leases", &lease)];
    for (method, path, body) in calls {
        house.must(machine, method, path, body.clone()).await.unwrap();
    }
    house.must(&owner.token, "DELETE", &format!("/v1/auth/tokens/{id}"), json!(null)).await.unwrap();
    let revoked = Instant::now();
    for (method, path, body) in calls {
        loop {
            let (status, answer) = house.call(machine, method, path, Some(body)).await.unwrap();
            if status == 401 {
                break;
            }
            assert_eq!(status, 200, "{answer}");
            assert!(revoked.elapsed() < Duration::from_secs(10), "{path} still takes a revoked token");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(house.stack.stop().await);
}

/// A deleted machine takes its tokens and its tasks along.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_machine_ends_its_tokens_and_its_tasks() {
    let house = House::open(Backend::Sqlite, &[]).await.unwrap();
    let owner = house.person().await.unwrap();
    house.machine(&owner, "m").await.unwrap();
    let made = house.must(&owner.token, "POST", "/v1/auth/tokens", json!({ "machineId": "m" })).await.unwrap();
    let machine = made["token"].as_str().unwrap().to_owned();
    let run = json!({ "tasks": [{ "prompt": "x", "provider": "claude", "machineId": "m", "dependsOn": [] }] });
    let run = house.must(&owner.token, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    let path = format!("/v1/orchestrator/runs/{}", run["id"].as_str().unwrap());
    house.must(&owner.token, "DELETE", "/v1/machines/m", json!(null)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = house.must(&owner.token, "GET", &path, json!(null)).await.unwrap();
        let (token, _) =
            house.call(&machine, "PATCH", "/v1/machines/m", Some(&json!({ "activity": {} }))).await.unwrap();
        if now["tasks"][0]["error"]["code"] == "MACHINE_DELETED" && token == 401 {
            assert_eq!(now["status"], "failed", "{now}");
            break;
        }
        assert!(Instant::now() < deadline, "{now}, the token gives {token}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(house.stack.stop().await);
}
