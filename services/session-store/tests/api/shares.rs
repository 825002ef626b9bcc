//! Private shares.

use ensemble_testkit::on_both_databases;
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

use crate::fixture::Fixture;

on_both_databases! {
    async fn a_share_is_created_replaced_changed_and_removed(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (owner, guest) = (fixture.client(), fixture.client());
        let id = owner.session().await;
        let shares = format!("/v1/sessions/{id}/shares");
        let mine = format!("{shares}/{}", guest.id);
        let made = owner
            .api
            .post(&shares, &json!({ "userId": guest.id, "accessLevel": "view", "encryptedKey": "k1" }))
            .await
            .expect(201);
        for (field, value) in [
            ("sessionId", json!(id)),
            ("userId", json!(guest.id)),
            ("accessLevel", json!("view")),
            ("encryptedKey", json!("k1")),
            ("sharedBy", json!(owner.id)),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
        let seen = guest.api.get(&format!("/v1/sessions/{id}")).await.expect(200);
        assert_eq!(
            (&seen["accessLevel"], &seen["encryptedKey"], &seen["encryptionKey"]),
            (&json!("view"), &json!("k1"), &json!(null))
        );
        let replaced = owner
            .api
            .post(&shares, &json!({ "userId": guest.id, "accessLevel": "edit", "encryptedKey": "k2" }))
            .await
            .expect(200);
        assert_eq!((&replaced["accessLevel"], &replaced["createdAt"]), (&json!("edit"), &made["createdAt"]));
        let changed = owner.api.patch(&mine, &json!({ "accessLevel": "admin" })).await.expect(200);
        assert_eq!((&changed["accessLevel"], &changed["encryptedKey"]), (&json!("admin"), &json!("k2")));
        let changed = owner.api.patch(&mine, &json!({ "encryptedKey": "k3" })).await.expect(200);
        assert_eq!((&changed["accessLevel"], &changed["encryptedKey"]), (&json!("admin"), &json!("k3")));
        owner.api.patch(&mine, &json!({})).await.problem(400, "INVALID_ARGUMENT");
        assert_eq!(owner.api.delete(&mine).await.expect(200), json!({ "success": true }));
        owner.api.delete(&mine).await.problem(404, "NOT_FOUND");
        owner.api.patch(&mine, &json!({ "accessLevel": "view" })).await.problem(404, "NOT_FOUND");
        guest.api.get(&format!("/v1/sessions/{id}")).await.problem(404, "NOT_FOUND");
        assert_eq!(owner.api.get(&format!("/v1/sessions/{id}")).await.expect(200)["rekeyNeeded"], true);
    }

    async fn shares_are_listed_with_the_newest_device_list_of_their_users(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let (one, _other) = (fixture.guest(&owner, &id, "edit").await, fixture.guest(&owner, &id, "view").await);
        let versions = async || {
            let page = owner.api.get(&format!("/v1/sessions/{id}/shares")).await.expect(200);
            let version = |share: &Value| (share["userId"] == json!(one.id), share["listVersion"].clone());
            let mut versions: Vec<_> = page["shares"].as_array().unwrap().iter().map(version).collect();
            versions.sort_by_key(|(is_one, _)| *is_one);
            versions.into_iter().map(|(_, version)| version).collect::<Vec<_>>()
        };
        fixture.peers.set_list_version(one.id, 7);
        assert_eq!(versions().await, [Value::Null, json!(7)]);
        fixture.peers.identity_away(true);
        assert_eq!(versions().await, [Value::Null, Value::Null], "shares can be read all the same");
    }

    async fn the_owner_the_caller_and_unknown_users_cannot_be_recipients(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let admin = fixture.guest(&owner, &id, "admin").await;
        let shares = format!("/v1/sessions/{id}/shares");
        let with = |user: UserId| json!({ "userId": user, "accessLevel": "view", "encryptedKey": "k" });
        assert_eq!(owner.api.post(&shares, &with(owner.id)).await.bad_fields(), ["/userId"]);
        assert_eq!(admin.api.post(&shares, &with(owner.id)).await.bad_fields(), ["/userId"]);
        assert_eq!(admin.api.post(&shares, &with(admin.id)).await.bad_fields(), ["/userId"]);
        owner.api.post(&shares, &with(UserId::generate())).await.problem(404, "USER_NOT_FOUND");
        // Callers who may not share cannot find out which users exist.
        let viewer = fixture.guest(&owner, &id, "view").await;
        viewer.api.post(&shares, &with(UserId::generate())).await.problem(403, "FORBIDDEN");
        fixture.client().api.post(&shares, &with(UserId::generate())).await.problem(404, "NOT_FOUND");
    }

    async fn the_hundred_and_first_share_is_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let shares = format!("/v1/sessions/{id}/shares");
        let mut guests = Vec::new();
        for _ in 0..100 {
            guests.push(fixture.peers.new_user());
            owner
                .api
                .post(&shares, &json!({ "userId": guests.last(), "accessLevel": "view", "encryptedKey": "k" }))
                .await
                .expect(201);
        }
        let one_more = json!({ "userId": fixture.peers.new_user(), "accessLevel": "view", "encryptedKey": "k" });
        owner.api.post(&shares, &one_more).await.problem(409, "CONFLICT");
        owner
            .api
            .post(&shares, &json!({ "userId": guests[0], "accessLevel": "edit", "encryptedKey": "k" }))
            .await
            .expect(200);
        let (mut walked, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = owner.api.get(&format!("{shares}?limit=33{cursor}")).await.expect(200);
            walked.extend(page["shares"].as_array().unwrap().iter().map(|s| s["userId"].clone()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        walked.reverse();
        assert_eq!(walked, guests.iter().map(|id| json!(id)).collect::<Vec<_>>());
        let first =
            owner.api.get(&format!("{shares}?limit=1")).await.expect(200)["nextCursor"].as_str().unwrap().to_owned();
        let other = owner.session().await;
        owner.api.get(&format!("/v1/sessions/{other}/shares?cursor={first}")).await.problem(400, "INVALID_CURSOR");
    }

    async fn a_share_gives_access_to_one_session_only(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let (one, two) = (owner.session().await, owner.session().await);
        let guest = fixture.guest(&owner, &one, "admin").await;
        let attacker = fixture.client();
        let own = attacker.session().await;
        guest.api.get(&format!("/v1/sessions/{two}")).await.problem(404, "NOT_FOUND");
        owner.api.delete(&format!("/v1/sessions/{two}/shares/{}", guest.id)).await.problem(404, "NOT_FOUND");
        attacker.api.delete(&format!("/v1/sessions/{own}/shares/{}", guest.id)).await.problem(404, "NOT_FOUND");
        guest.api.get(&format!("/v1/sessions/{one}")).await.expect(200);
        for malformed in [one.to_uppercase(), one.replace('-', ""), format!("{one}%20"), "x".to_owned()] {
            owner.api.get(&format!("/v1/sessions/{malformed}")).await.problem(404, "NOT_FOUND");
        }
    }
}
