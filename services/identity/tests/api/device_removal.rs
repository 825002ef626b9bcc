//! Removing a device: its tokens, its sign-in and its machine's tokens end, here and on every other service.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::KeySource;
use ensemble_chassis::auth::DeviceKey;
use ensemble_rpc::identity::{Keys as _, KeysClient, SnapshotRequest};
use ensemble_rpc::{KeyRefresh, RemoteKeys};
use ensemble_testkit::peers::channel_to;
use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use ensemble_types::devices::Role;
use serde_json::json;

use crate::listing::{Keys, Owner, after, change, new_epoch, sign};
use crate::{Fixture, signed};

on_both_databases! {
    async fn a_removed_device_is_out_at_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Primary).await;
        let api = fixture.client(&tablet).await;
        let made = api.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        let runner = fixture.api.with_token(made["token"].as_str().unwrap());
        runner.get("/v1/account").await.problem(403, "FORBIDDEN");
        let before = alice.next();
        alice.put(alice.without(&tablet)).await;
        for path in ["/v1/account", "/v1/devices", "/v1/devices/content-ring", "/v1/auth/tokens"] {
            api.get(path).await.problem(401, "DEVICE_REMOVED");
        }
        runner.get("/v1/account").await.problem(401, "DEVICE_REMOVED");
        api.post("/v1/devices", &change(&sign(&before, &tablet))).await.problem(401, "DEVICE_REMOVED");
        fixture.sign_in(&tablet.key).await.problem(401, "DEVICE_REMOVED");
        let forged = signed(&tablet.key, "https://evil.example.com", &fixture.challenge().await);
        fixture.api.post("/v1/auth", &forged).await.problem(401, "UNAUTHENTICATED");
        alice.api.get("/v1/account").await.expect(200);
        let devices = alice.api.get("/v1/devices").await.expect(200);
        assert_eq!(devices["devices"].as_array().unwrap().len(), 1);
    }

    async fn the_first_device_is_removed_like_any_other(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (first, second) = (alice.keys.clone(), Keys::new());
        alice.link(&fixture, &second, Role::Primary).await;
        // This token is from before there was a list.
        let lost = alice.api.clone();
        alice.api = fixture.client(&second).await;
        let next = alice.without(&first);
        alice.keys = second;
        alice.put(next).await;
        lost.get("/v1/account").await.problem(401, "DEVICE_REMOVED");
        fixture.sign_in(&first.key).await.problem(401, "DEVICE_REMOVED");
        assert_eq!(fixture.sign_in(&alice.keys.key).await.expect(200)["userId"], alice.user.as_str());
        let account = alice.api.get("/v1/account").await.expect(200);
        assert_eq!(account["publicKey"], first.public(), "the account keeps its name");
    }

    async fn of_two_primaries_that_remove_each_other_one_stays(on: Backend) {
        let fixture = Fixture::new(on).await;
        for _ in 0..3 {
            let mut alice = Owner::new(&fixture).await;
            let second = Keys::new();
            alice.link(&fixture, &second, Role::Primary).await;
            let other = fixture.client(&second).await;
            let removal = |gone: &Keys, by: &Keys| change(&sign(&alice.without(gone), by));
            let (one, two) = (removal(&second, &alice.keys), removal(&alice.keys, &second));
            let (one, two) = tokio::join!(alice.api.post("/v1/devices", &one), other.post("/v1/devices", &two));
            let mut statuses = [one.status, two.status];
            statuses.sort_unstable();
            assert!(statuses == [201, 401] || statuses == [201, 409], "{statuses:?}");
            let signed_in = [fixture.sign_in(&alice.keys.key).await.status, fixture.sign_in(&second.key).await.status];
            assert_eq!(signed_in, if one.status == 201 { [200, 401] } else { [401, 200] });
        }
    }

    async fn tokens_of_a_removed_machine_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let runner = Keys::new();
        alice.put_with(alice.with(runner.entry(Role::Machine)), &[&runner]).await;
        let by_key = fixture.client(&runner).await;
        let made = async |machine: &str| {
            let made = alice.api.post("/v1/auth/tokens", &json!({ "machineId": machine })).await.expect(201);
            fixture.api.with_token(made["token"].as_str().unwrap())
        };
        let (by_hand, other) = (made("laptop").await, made("other").await);
        let mut list = alice.next();
        list.devices.retain(|device| device.role != Role::Machine);
        alice.put(list).await;
        by_key.get("/v1/account").await.problem(401, "DEVICE_REMOVED");
        by_hand.get("/v1/account").await.problem(401, "UNAUTHENTICATED");
        other.get("/v1/account").await.problem(403, "FORBIDDEN");
        fixture.sign_in(&runner.key).await.problem(401, "DEVICE_REMOVED");
    }

    async fn old_words_are_worth_nothing(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (old, new) = (Keys::new(), Keys::new());
        alice.put_with(alice.with(old.entry(Role::Recovery)), &[&old]).await;
        let token = fixture.client(&old).await;
        let mut list = alice.without(&old);
        list.devices.push(new.entry(Role::Recovery));
        alice.put_with(list, &[&new]).await;
        token.get("/v1/devices").await.problem(401, "DEVICE_REMOVED");
        fixture.sign_in(&old.key).await.problem(401, "DEVICE_REMOVED");
        fixture.client(&new).await.get("/v1/devices").await.expect(200);
        let list = after(&alice.signed);
        let by_old = alice.api.post("/v1/devices", &change(&sign(&new_epoch(list), &old))).await;
        by_old.problem(400, "INVALID_ARGUMENT");
    }

    async fn peers_learn_of_removed_devices_that_have_tokens(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (tablet, unused) = (Keys::new(), Keys::new());
        alice.link(&fixture, &tablet, Role::Linked).await;
        alice.put_with(alice.with(unused.entry(Role::Machine)), &[&unused]).await;
        fixture.client(&tablet).await;
        let channel = channel_to(&fixture.service.internal_url());
        let refresh = KeyRefresh { every: Duration::from_millis(20), trusted_for: SOON };
        let peer = RemoteKeys::follow(Arc::new(KeysClient::new(channel.clone())), refresh).await;
        let key = DeviceKey(tablet.key.verifying_key().to_bytes());
        assert!(!peer.current().unwrap().is_removed(&key));
        let mut list = alice.without(&tablet);
        list.devices.retain(|device| device.role != Role::Machine);
        alice.put(list).await;
        eventually(SOON, async || peer.current().unwrap().is_removed(&key)).await;
        let snapshot = KeysClient::new(channel).snapshot(SnapshotRequest::default()).await.unwrap();
        assert_eq!(snapshot.removed_devices, [key.0.to_vec()], "a device that never signed in has no token to refuse");
    }

    async fn a_change_of_the_list_ends_no_other_token(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Linked).await;
        let api = fixture.client(&tablet).await;
        alice.put(new_epoch(alice.next())).await;
        api.get("/v1/account").await.expect(200);
        let ring = api.get("/v1/devices/content-ring").await.expect(200);
        assert_eq!((&ring["version"], &ring["contentEpoch"]), (&json!(3), &json!(2)));
    }
}

/// On PostgreSQL there may be several replicas. Each is notified of a removal at once.
#[test]
fn a_removal_reaches_the_other_replica() {
    ensemble_testkit::run(async {
        let settings = [("KEY_RING_REFRESH_MS", "60000")];
        let fixture = Fixture::with(ensemble_testkit::Backend::Postgres, &settings).await;
        let replica = fixture.replica().await;
        let mut alice = Owner::new(&fixture).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Linked).await;
        let signed_in = fixture.sign_in(&tablet.key).await.expect(200);
        let elsewhere = Api::new(&replica.public_url()).with_token(signed_in["token"].as_str().unwrap());
        elsewhere.get("/v1/account").await.expect(200);
        alice.put(alice.without(&tablet)).await;
        eventually(SOON, async || elsewhere.get("/v1/account").await.status == 401).await;
    });
}
