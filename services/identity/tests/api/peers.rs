//! The internal door: Keys and Accounts.

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{
    Accounts, AccountsClient, GetAccountRequest, Keys, KeysClient, RevokeMachineTokensRequest, SnapshotRequest,
};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use serde_json::json;

use crate::Stage;

on_both_databases! {
    async fn neighbours_ask_whether_an_account_exists(on: Backend) {
        let stage = Stage::new(on).await;
        let (_, _, id) = stage.account().await;
        let accounts = AccountsClient::new(channel_to(&stage.service.internal_url()));
        let ask = |user_id: String| accounts.get(GetAccountRequest { user_id });
        assert_eq!(ask(id.clone()).await.unwrap().user_id, id);
        assert!(matches!(ask(UserId::generate().to_string()).await, Err(RpcError::NotFound(_))));
        assert!(matches!(ask("x".to_owned()).await, Err(RpcError::Invalid(_))));
    }

    async fn a_deleted_machine_loses_the_tokens_that_it_had(on: Backend) {
        let stage = Stage::new(on).await;
        let ((_, alice, id), (_, bob, _)) = (stage.account().await, stage.account().await);
        let make = async |api: &ensemble_testkit::Api, machine: &str| {
            let made = api.post("/v1/auth/tokens", &json!({ "machineId": machine })).await.expect(201);
            let made_at: Timestamp = api.get("/v1/auth/tokens").await.expect(200)["tokens"][0]["createdAt"]
                .as_str().unwrap().parse().unwrap();
            (stage.api.with_token(made["token"].as_str().unwrap()), made_at)
        };
        let (laptop, made_at) = make(&alice, "laptop").await;
        let (other, _) = make(&alice, "other").await;
        let (namesake, _) = make(&bob, "laptop").await;
        let accounts = AccountsClient::new(channel_to(&stage.service.internal_url()));
        let revoke = |made_until: i64| accounts.revoke_machine_tokens(RevokeMachineTokensRequest {
            user_id: id.clone(), machine_id: "laptop".to_owned(), made_until,
        });
        assert_eq!(revoke(made_at.micros() - 1).await.unwrap().revoked, 0, "made later: another machine's");
        assert_eq!(laptop.get("/v1/account").await.status, 403);
        assert_eq!(revoke(made_at.micros() + 1_000).await.unwrap().revoked, 1);
        assert_eq!(revoke(made_at.micros() + 1_000).await.unwrap().revoked, 0);
        ensemble_testkit::eventually(crate::TIMEOUT, async || laptop.get("/v1/account").await.status == 401).await;
        assert_eq!((other.get("/v1/account").await.status, namesake.get("/v1/account").await.status), (403, 403));
        assert_eq!(alice.get("/v1/auth/tokens").await.expect(200)["tokens"].as_array().unwrap().len(), 1);
    }

    async fn a_snapshot_is_told_once(on: Backend) {
        let stage = Stage::new(on).await;
        let (_, alice, _) = stage.account().await;
        let keys = KeysClient::new(channel_to(&stage.service.internal_url()));
        let first = keys.snapshot(SnapshotRequest::default()).await.unwrap();
        assert_eq!((first.keys.len(), first.revoked_token_ids.len(), first.unchanged), (1, 0, false));
        let known_version = first.version.clone();
        let again = keys.snapshot(SnapshotRequest { known_version: known_version.clone() }).await.unwrap();
        assert!(again.unchanged && again.keys.is_empty());
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        alice.delete(&format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap())).await.expect(200);
        let news = keys.snapshot(SnapshotRequest { known_version }).await.unwrap();
        assert_eq!((news.unchanged, news.revoked_token_ids.len(), news.keys), (false, 1, first.keys));
    }

    async fn what_happens_is_counted(on: Backend) {
        let stage = Stage::new(on).await;
        let (key, _, _) = stage.account().await;
        stage.sign_in(&key).await.expect(200);
        stage.challenge().await;
        let internal = stage.api.at(&stage.service.internal_url());
        let metrics = internal.get("/metrics").await.text;
        for line in [
            r#"ensemble_identity_sign_ins_total{outcome="new_account",service="identity"} 1"#,
            r#"ensemble_identity_sign_ins_total{outcome="in",service="identity"} 1"#,
            r#"ensemble_identity_signing_keys{service="identity"} 1"#,
        ] {
            assert!(metrics.contains(line), "{line} is not in\n{metrics}");
        }
    }
}
