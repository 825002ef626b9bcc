//! Signing in with the key of a device: what each role gets, and that listed keys make no accounts.

use ensemble_testkit::on_both_databases;
use ensemble_types::devices::Role;
use serde_json::{Value, json};

use crate::listing::{Keys, Owner, change, proven, sign};
use crate::{Fixture, ORIGIN, claims, new_key, signed};

/// The claims of the token of a sign-in.
async fn token_of(fixture: &Fixture, keys: &Keys) -> (Value, Value) {
    let answer = fixture.sign_in(&keys.key).await.expect(200);
    let claims = claims(answer["token"].as_str().unwrap());
    (answer, claims)
}

on_both_databases! {
    async fn a_device_signs_in_to_its_account(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Linked).await;
        for keys in [&alice.keys, &tablet] {
            let (answer, claimed) = token_of(&fixture, keys).await;
            assert_eq!(answer["userId"], alice.user.as_str());
            for (claim, value) in
                [("aud", "ensemble:user"), ("scope", "user"), ("sub", &alice.user), ("device", &keys.public())]
            {
                assert_eq!(claimed[claim], value, "{claim}");
            }
        }
        let tablet_api = fixture.client(&tablet).await;
        let devices = tablet_api.get("/v1/devices").await.expect(200);
        let current: Vec<&Value> = devices["devices"].as_array().unwrap().iter().map(|one| &one["current"]).collect();
        assert_eq!(current, [&json!(false), &json!(true)]);
        let seen = devices["devices"][1]["lastSeenAt"].as_str().unwrap();
        assert!(seen.contains(":00Z") || seen.contains(":00.000"), "to the minute: {seen}");
        let ring = tablet_api.get("/v1/devices/content-ring").await.expect(200);
        assert_eq!(ring["sealed"], format!("ring 2 of {}", tablet.public()));
    }

    async fn an_account_without_a_list_signs_in_with_its_key(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, user) = fixture.account().await;
        let keys = Keys::of(key);
        let (answer, claimed) = token_of(&fixture, &keys).await;
        assert_eq!((&answer["userId"], &claimed["device"]), (&json!(user), &json!(keys.public())));
        alice.get("/v1/devices").await.expect(200);
    }

    async fn a_machine_gets_a_token_of_its_machine(on: Backend) {
        let fixture = Fixture::with(on, &[("MACHINE_TOKEN_LIMIT", "2")]).await;
        let mut alice = Owner::new(&fixture).await;
        let runner = Keys::new();
        alice.put_with(alice.with(runner.entry(Role::Machine)), &[&runner]).await;
        for _ in 0..4 {
            let (answer, claimed) = token_of(&fixture, &runner).await;
            assert_eq!(answer["userId"], alice.user.as_str());
            for (claim, value) in [
                ("aud", "ensemble:machine"), ("scope", "machine"), ("machineId", "laptop"), ("sub", &alice.user),
                ("device", &runner.public()),
            ] {
                assert_eq!(claimed[claim], value, "{claim}");
            }
            assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 3_600);
        }
        // A runner that starts again and again does not use up the tokens that people make.
        let make = async || alice.api.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.status;
        assert_eq!((make().await, make().await, make().await), (201, 201, 409));
    }

    async fn recovery_words_get_ten_minutes_for_the_list(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (words, laptop) = (Keys::new(), Keys::new());
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        let (answer, claimed) = token_of(&fixture, &words).await;
        for (claim, value) in [("aud", "ensemble:recovery"), ("scope", "recovery"), ("device", &words.public())] {
            assert_eq!(claimed[claim], value, "{claim}");
        }
        assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 600);
        let recovery = fixture.api.with_token(answer["token"].as_str().unwrap());
        recovery.get("/v1/devices/content-ring").await.expect(200);
        let unproven = change(&sign(&alice.with(laptop.entry(Role::Primary)), &words));
        recovery.post("/v1/devices", &unproven).await.problem(400, "INVALID_ARGUMENT");
        // They sign it, and remove what was lost.
        let mut list = alice.without(&alice.keys);
        list.devices.push(laptop.entry(Role::Primary));
        recovery.post("/v1/devices", &proven(&sign(&list, &words), &[&laptop])).await.expect(201);
        fixture.client(&laptop).await.get("/v1/account").await.expect(200);
        fixture.sign_in(&alice.keys.key).await.problem(401, "DEVICE_REMOVED");
    }

    async fn an_unknown_key_makes_an_account_only_when_it_may(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (known, _, user) = fixture.account().await;
        let sign_in = async |key: &ed25519_dalek::SigningKey, create: Value| {
            let mut body = signed(key, ORIGIN, &fixture.challenge().await);
            body["create"] = create;
            fixture.api.post("/v1/auth", &body).await
        };
        let stranger = new_key();
        let refused = sign_in(&stranger, json!(false)).await;
        refused.problem(404, "USER_NOT_FOUND");
        assert!(refused.header("x-internal-new-account").is_none());
        assert_eq!(sign_in(&known, json!(false)).await.expect(200)["userId"], user.as_str());
        assert_eq!(sign_in(&stranger, json!("no")).await.bad_fields(), ["/create"]);
        assert_eq!(sign_in(&stranger, json!(true)).await.header("x-internal-new-account"), Some("1"));
        sign_in(&stranger, json!(false)).await.expect(200);
        let forged = { let mut body = signed(&new_key(), "https://evil.example.com", &fixture.challenge().await);
            body["create"] = json!(false);
            body };
        fixture.api.post("/v1/auth", &forged).await.problem(401, "UNAUTHENTICATED");
    }

    async fn a_listed_key_never_makes_an_account(on: Backend) {
        let fixture = Fixture::new(on).await;
        let mut alice = Owner::new(&fixture).await;
        let (tablet, words) = (Keys::new(), Keys::new());
        alice.link(&fixture, &tablet, Role::Linked).await;
        alice.put_with(alice.with(words.entry(Role::Recovery)), &[&words]).await;
        for keys in [&tablet, &words] {
            let answer = fixture.sign_in(&keys.key).await;
            assert!(answer.header("x-internal-new-account").is_none());
            assert_eq!(answer.expect(200)["userId"], alice.user.as_str());
        }
        alice.put(alice.without(&tablet)).await;
        fixture.sign_in(&tablet.key).await.problem(401, "DEVICE_REMOVED");
    }
}
