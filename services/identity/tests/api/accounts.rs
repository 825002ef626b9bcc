//! GET and PATCH /v1/account, GET /v1/users/{id}.

use ensemble_testkit::on_both_databases;
use ensemble_types::ids::UserId;
use serde_json::{Value, json};

use crate::{Fixture, base64url, new_key, sign};

fn content_key(key: &[u8; 32], by: &ed25519_dalek::SigningKey) -> Value {
    let public = base64url(key);
    let signature = sign(by, &format!("ensemble-content-key-v1\n{public}"));
    json!({ "contentPublicKey": public, "contentPublicKeySignature": signature })
}

on_both_databases! {
    async fn an_account_can_be_read_and_changed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, id) = fixture.account().await;
        let account = alice.get("/v1/account").await.expect(200);
        assert_eq!(account["id"], id.as_str());
        assert_eq!(account["publicKey"], base64url(key.verifying_key().as_bytes()));
        for absent in ["contentPublicKey", "contentPublicKeySignature", "displayName"] {
            assert_eq!(account[absent], Value::Null, "{absent}");
        }
        let named = alice.patch("/v1/account", &json!({ "displayName": "Zoë" })).await.expect(200);
        assert_eq!(named["displayName"], "Zoë");
        let change = content_key(&[5; 32], &key);
        let keyed = alice.patch("/v1/account", &change).await.expect(200);
        assert_eq!(keyed["contentPublicKey"], change["contentPublicKey"]);
        assert_eq!(keyed["contentPublicKeySignature"], change["contentPublicKeySignature"]);
        assert_eq!(keyed["displayName"], "Zoë", "fields that are not sent stay");
        assert_eq!(alice.get("/v1/account").await.expect(200), keyed);
    }

    async fn clients_share_a_state_that_only_they_read(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice, id), (_, bob, _)) = (fixture.account().await, fixture.account().await);
        let first = alice.get("/v1/account").await.expect(200);
        assert_eq!((&first["clientState"], &first["clientStateVersion"]), (&Value::Null, &json!(0)));
        let change = |state: &str, version: i64| json!({ "clientState": state, "expectedVersion": version });
        let kept = alice.patch("/v1/account", &change("one", 0)).await.expect(200);
        assert_eq!((&kept["clientState"], &kept["clientStateVersion"]), (&json!("one"), &json!(1)));
        // Of two clients that change the same version the second merges.
        let late = alice.patch("/v1/account", &change("two", 0)).await;
        assert_eq!(late.problem(409, "VERSION_MISMATCH")["current"], json!({ "version": 1, "value": "one" }));
        alice.patch("/v1/account", &json!({ "displayName": "Zoë" })).await.expect(200);
        assert_eq!(alice.get("/v1/account").await.expect(200)["clientState"], "one");
        let longest = "x".repeat(65_536);
        alice.patch("/v1/account", &change(&longest, 1)).await.expect(200);
        assert_eq!(alice.patch("/v1/account", &change(&(longest + "x"), 2)).await.bad_fields(), ["/clientState"]);
        for bad in [json!({ "clientState": "x" }), json!({ "expectedVersion": 2 })] {
            assert_eq!(alice.patch("/v1/account", &bad).await.bad_fields(), ["/expectedVersion"]);
        }
        let seen = bob.get(&format!("/v1/users/{id}")).await.expect(200);
        assert!(seen.get("clientState").is_none());
    }

    async fn a_content_key_needs_the_account_keys_signature(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, _) = fixture.account().await;
        alice.patch("/v1/account", &content_key(&[5; 32], &key)).await.expect(200);
        let foreign = content_key(&[6; 32], &new_key());
        let swapped = json!({
            "contentPublicKey": base64url(&[6; 32]),
            "contentPublicKeySignature": content_key(&[5; 32], &key)["contentPublicKeySignature"],
        });
        for body in [foreign, swapped] {
            assert_eq!(alice.patch("/v1/account", &body).await.bad_fields(), ["/contentPublicKeySignature"]);
        }
        let good = content_key(&[6; 32], &key);
        let alone = |field: &str| json!({ field: good[field] });
        let only_key = alice.patch("/v1/account", &alone("contentPublicKey")).await;
        assert_eq!(only_key.bad_fields(), ["/contentPublicKeySignature"]);
        let only_signature = alice.patch("/v1/account", &alone("contentPublicKeySignature")).await;
        assert_eq!(only_signature.bad_fields(), ["/contentPublicKey"]);
        let both = json!({ "displayName": "x", "contentPublicKey": "short", "contentPublicKeySignature": "short" });
        assert_eq!(alice.patch("/v1/account", &both).await.bad_fields(), ["/contentPublicKey"]);
        let account = alice.get("/v1/account").await.expect(200);
        assert_eq!(account["contentPublicKey"], base64url(&[5; 32]), "none of these changed anything");
        assert_eq!(account["displayName"], Value::Null);
    }

    async fn invalid_changes_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice, _) = fixture.account().await;
        alice.patch("/v1/account", &json!({ "displayName": "x".repeat(128) })).await.expect(200);
        alice.patch("/v1/account", &json!({ "displayName": "ä".repeat(128) })).await.expect(200);
        for name in [json!("x".repeat(129)), json!(7), json!(["x"])] {
            assert_eq!(alice.patch("/v1/account", &json!({ "displayName": name })).await.bad_fields(), ["/displayName"]);
        }
        for body in [json!({}), json!({ "id": UserId::generate() }), json!({ "displayName": null })] {
            alice.patch("/v1/account", &body).await.problem(400, "INVALID_ARGUMENT");
        }
    }

    async fn other_users_see_the_public_fields(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, id) = fixture.account().await;
        let (_, bob, _) = fixture.account().await;
        alice.patch("/v1/account", &content_key(&[5; 32], &key)).await.expect(200);
        let seen = bob.get(&format!("/v1/users/{id}")).await.expect(200);
        let own = alice.get("/v1/account").await.expect(200);
        for field in ["id", "publicKey", "contentPublicKey", "contentPublicKeySignature", "displayName"] {
            assert_eq!(seen[field], own[field], "{field}");
        }
        assert_eq!(seen.as_object().unwrap().len(), 5);
        for unknown in [UserId::generate().to_string(), "x".to_owned(), id.to_uppercase()] {
            bob.get(&format!("/v1/users/{unknown}")).await.problem(404, "NOT_FOUND");
        }
    }

    async fn every_route_needs_a_users_token(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice, id) = fixture.account().await;
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        let runner = fixture.api.with_token(made["token"].as_str().unwrap());
        for (method, path) in [
            ("GET", "/v1/account".to_owned()),
            ("PATCH", "/v1/account".to_owned()),
            ("GET", format!("/v1/users/{id}")),
            ("POST", "/v1/auth/tokens".to_owned()),
            ("GET", "/v1/auth/tokens".to_owned()),
            ("DELETE", format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap())),
        ] {
            let anonymous = fixture.api.request(method, &path).json(&json!({ "machineId": "m", "displayName": "x" }));
            ensemble_testkit::Api::send(anonymous).await.problem(401, "UNAUTHENTICATED");
            let machine = runner.request(method, &path).json(&json!({ "machineId": "m", "displayName": "x" }));
            ensemble_testkit::Api::send(machine).await.problem(403, "FORBIDDEN");
        }
        let foreign = ensemble_testkit::Issuer::new();
        for (what, token) in foreign.bad_tokens(id.parse().unwrap()) {
            let refused = fixture.api.with_token(&token).get("/v1/account").await;
            assert_eq!(refused.status, 401, "{what}");
        }
        let stranger = foreign.user(id.parse().unwrap());
        assert_eq!(fixture.api.with_token(&stranger).get("/v1/account").await.status, 401, "another issuer");
    }
}
