//! The internal listener: Keys and Accounts.

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{
    Accounts, AccountsClient, GetAccountRequest, Keys, KeysClient, ListVersionsRequest, RevokeMachineTokensRequest,
    SnapshotRequest,
};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::{SOON, eventually, on_both_databases};
use ensemble_types::devices::Role;
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use serde_json::json;

use crate::Fixture;
use crate::listing::{self, Owner};

on_both_databases! {
    async fn peers_can_ask_whether_an_account_exists(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, _, id) = fixture.account().await;
        let accounts = AccountsClient::new(channel_to(&fixture.service.internal_url()));
        let get = |user_id: String| accounts.get(GetAccountRequest { user_id });
        assert_eq!(get(id.clone()).await.unwrap().user_id, id);
        assert!(matches!(get(UserId::generate().to_string()).await, Err(RpcError::NotFound(_))));
        assert!(matches!(get("x".to_owned()).await, Err(RpcError::Invalid(_))));
    }

    async fn peers_read_the_versions_of_the_newest_lists_of_users(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (mut alice, bob) = (Owner::new(&fixture).await, Owner::new(&fixture).await);
        let (_, _, without) = fixture.account().await;
        alice.put(alice.next()).await;
        let accounts = AccountsClient::new(channel_to(&fixture.service.internal_url()));
        let read = |user_ids: Vec<String>| accounts.list_versions(ListVersionsRequest { user_ids });
        let found = read(vec![alice.user.clone(), bob.user.clone(), without, UserId::generate().to_string()]).await;
        let mut found: Vec<_> = found.unwrap().versions.into_iter().map(|of| (of.version, of.user_id)).collect();
        found.sort_unstable();
        assert_eq!(found, [(1, bob.user), (2, alice.user)]);
        for bad in [vec!["x".to_owned()], vec![UserId::generate().to_string(); 501]] {
            assert!(matches!(read(bad).await, Err(RpcError::Invalid(_))));
        }
    }

    async fn tokens_of_a_deleted_machine_are_revoked(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice, id), (_, bob, _)) = (fixture.account().await, fixture.account().await);
        let make = async |api: &ensemble_testkit::Api, machine: &str| {
            let made = api.post("/v1/auth/tokens", &json!({ "machineId": machine })).await.expect(201);
            let made_at: Timestamp = api.get("/v1/auth/tokens").await.expect(200)["tokens"][0]["createdAt"]
                .as_str().unwrap().parse().unwrap();
            (fixture.api.with_token(made["token"].as_str().unwrap()), made_at)
        };
        let (laptop, made_at) = make(&alice, "laptop").await;
        let (other, _) = make(&alice, "other").await;
        let (namesake, _) = make(&bob, "laptop").await;
        let accounts = AccountsClient::new(channel_to(&fixture.service.internal_url()));
        let revoke = |made_until: i64| accounts.revoke_machine_tokens(RevokeMachineTokensRequest {
            user_id: id.clone(), machine_id: "laptop".to_owned(), made_until,
        });
        assert_eq!(revoke(made_at.micros() - 1).await.unwrap().revoked, 0, "made after the deletion, for a new machine");
        assert_eq!(laptop.get("/v1/account").await.status, 403);
        assert_eq!(revoke(made_at.micros() + 1_000).await.unwrap().revoked, 1);
        assert_eq!(revoke(made_at.micros() + 1_000).await.unwrap().revoked, 0);
        eventually(SOON, async || laptop.get("/v1/account").await.status == 401).await;
        assert_eq!((other.get("/v1/account").await.status, namesake.get("/v1/account").await.status), (403, 403));
        assert_eq!(alice.get("/v1/auth/tokens").await.expect(200)["tokens"].as_array().unwrap().len(), 1);
    }

    async fn the_key_of_a_deleted_machine_signs_in_no_more(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (old, new) = (listing::Keys::new(), listing::Keys::new());
        alice.put_with(alice.with(old.entry(Role::Machine)), &[&old]).await;
        let laptop = fixture.client(&old).await;
        let made_until = Timestamp::from_unix_seconds(4_000_000_000).micros();
        let accounts = AccountsClient::new(channel_to(&fixture.service.internal_url()));
        let request = RevokeMachineTokensRequest {
            user_id: alice.user.clone(), machine_id: "laptop".to_owned(), made_until,
        };
        assert_eq!(accounts.revoke_machine_tokens(request).await.unwrap().revoked, 1);
        fixture.sign_in(&old.key).await.problem(401, "DEVICE_REMOVED");
        eventually(SOON, async || laptop.get("/v1/account").await.status == 401).await;
        // Its owner can still sign in, and removes it from the list when the machine is set up again.
        let mut list = alice.next();
        list.devices.retain(|device| device.role != Role::Machine);
        list.devices.push(new.entry(Role::Machine));
        alice.put_with(list, &[&new]).await;
        fixture.client(&new).await.get("/v1/account").await.problem(403, "FORBIDDEN");
    }

    async fn an_unchanged_snapshot_is_not_sent_again(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice, _) = fixture.account().await;
        let keys = KeysClient::new(channel_to(&fixture.service.internal_url()));
        let first = keys.snapshot(SnapshotRequest::default()).await.unwrap();
        assert_eq!((first.keys.len(), first.revoked_token_ids.len(), first.unchanged), (1, 0, false));
        let known_version = first.version.clone();
        let again = keys.snapshot(SnapshotRequest { known_version: known_version.clone() }).await.unwrap();
        assert!(again.unchanged && again.keys.is_empty());
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        alice.delete(&format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap())).await.expect(200);
        let changed = keys.snapshot(SnapshotRequest { known_version }).await.unwrap();
        assert_eq!((changed.unchanged, changed.revoked_token_ids.len(), changed.keys), (false, 1, first.keys));
    }

    async fn sign_ins_are_counted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, _, _) = fixture.account().await;
        fixture.sign_in(&key).await.expect(200);
        fixture.challenge().await;
        let internal = fixture.api.at(&fixture.service.internal_url());
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
