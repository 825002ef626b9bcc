//! POST /v1/machines.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn a_machine_is_registered_and_read_back(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let made = alice.post("/v1/machines", &json!({ "metadata": "m", "encryptionKey": "k" })).await.expect(201);
        let id = made["id"].as_str().unwrap();
        assert!((1..=64).contains(&id.len()), "{made}");
        for (field, value) in [
            ("metadata", json!("m")),
            ("metadataVersion", json!(1)),
            ("encryptionKey", json!("k")),
            ("daemonState", json!(null)),
            ("daemonStateVersion", json!(0)),
            ("activity", json!(null)),
            ("online", json!(false)),
            ("lastActiveAt", json!(null)),
        ] {
            assert_eq!(made[field], value, "{field}");
        }
        assert_eq!(made["createdAt"], made["updatedAt"]);
        assert_eq!(made["createdAt"].as_str().unwrap().len(), "2026-03-26T00:00:00.000Z".len());
        assert_eq!(alice.get(&format!("/v1/machines/{id}")).await.expect(200), made);
    }

    async fn a_taken_id_answers_with_the_stored_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        let first = alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        let other = json!({ "id": "laptop", "metadata": "other", "encryptionKey": "other" });
        assert_eq!(alice.post("/v1/machines", &other).await.expect(200), first);
        assert_eq!(bob.post("/v1/machines", &other).await.expect(201)["metadata"], "other");
        assert_eq!(alice.get("/v1/machines/laptop").await.expect(200), first, "another account's laptop is another machine");
    }

    async fn requests_with_one_idempotency_key_make_one_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        let (key, body) = ("0123456789abcdef", json!({ "metadata": "m", "encryptionKey": "k" }));
        let mut together = Vec::new();
        for _ in 0..8 {
            let (alice, body) = (alice.clone(), body.clone());
            together.push(tokio::spawn(async move { alice.post_keyed("/v1/machines", key, &body).await }));
        }
        let mut answers = Vec::new();
        for one in together {
            answers.push(one.await.unwrap());
        }
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
        assert!(answers.iter().all(|answer| answer.status == 200 || answer.status == 201), "{answers:?}");
        let id = answers[0].json()["id"].clone();
        assert!(answers.iter().all(|answer| answer.json()["id"] == id));

        let path = format!("/v1/machines/{}", id.as_str().unwrap());
        alice.patch(&path, &json!({ "metadata": "m2" })).await.expect(200);
        assert_eq!(alice.post_keyed("/v1/machines", key, &body).await.expect(200)["metadata"], "m2", "as it is now");
        let other = json!({ "metadata": "x", "encryptionKey": "k" });
        alice.post_keyed("/v1/machines", key, &other).await.problem(409, "IDEMPOTENCY_MISMATCH");
        bob.post_keyed("/v1/machines", key, &other).await.expect(201);
        alice.delete(&path).await.expect(200);
        alice.post_keyed("/v1/machines", key, &body).await.problem(404, "NOT_FOUND");
        alice.post_keyed("/v1/machines", "too short", &body).await.problem(400, "INVALID_ARGUMENT");
    }

    async fn a_malformed_body_names_the_field_and_writes_nothing(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let long = |bytes: usize| "x".repeat(bytes);
        for (body, pointer) in [
            (json!({ "encryptionKey": "k" }), "/metadata"),
            (json!({ "metadata": "m" }), "/encryptionKey"),
            (json!({ "metadata": 7, "encryptionKey": "k" }), "/metadata"),
            (json!({ "metadata": "", "encryptionKey": "k" }), "/metadata"),
            (json!({ "metadata": null, "encryptionKey": "k" }), "/metadata"),
            (json!({ "metadata": long(262_145), "encryptionKey": "k" }), "/metadata"),
            (json!({ "metadata": "m", "encryptionKey": long(8_193) }), "/encryptionKey"),
            (json!({ "metadata": "m", "encryptionKey": "k", "id": "" }), "/id"),
            (json!({ "metadata": "m", "encryptionKey": "k", "id": long(65) }), "/id"),
            (json!({ "metadata": "m", "encryptionKey": "k", "id": "a/b" }), "/id"),
            (json!({ "metadata": "m", "encryptionKey": "k", "id": 7 }), "/id"),
            (json!({ "metadata": "m", "encryptionKey": "k", "encryptionkey": "x" }), "/encryptionkey"),
        ] {
            let refused = alice.post("/v1/machines", &body).await;
            assert_eq!(refused.bad_fields(), [pointer], "{}", refused.text);
        }
        for text in [
            r#"{"metadata":"m","metadata":"n","encryptionKey":"k"}"#,
            r#"{"metadata":"a\u0000b","encryptionKey":"k"}"#,
            r#"{"metadata":"\ud800","encryptionKey":"k"}"#,
            r#"{"metadata":"m","encryptionKey":"k""#,
            "",
        ] {
            assert_eq!(alice.post_text("/v1/machines", text).await.status, 400, "{text}");
        }
        let largest = json!({ "metadata": long(262_144), "encryptionKey": long(8_192), "id": long(64) });
        alice.post("/v1/machines", &largest).await.expect(201);
        assert_eq!(alice.get("/v1/machines").await.expect(200)["machines"].as_array().unwrap().len(), 1);
    }

    async fn an_account_has_a_limit_of_machines(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_MACHINES", "2")]).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        for id in ["one", "two"] {
            alice.post("/v1/machines", &draft(id)).await.expect(201);
        }
        let refused = alice.post_keyed("/v1/machines", "0123456789abcdef", &draft("three")).await;
        let problem = refused.problem(429, "QUOTA_EXCEEDED");
        assert_eq!((&problem["quota"], &problem["limit"], &problem["used"]), (&json!("machines"), &json!(2), &json!(2)));
        assert!(refused.header("retry-after").is_none(), "waiting does not help");
        alice.get("/v1/machines/three").await.problem(404, "NOT_FOUND");
        alice.post("/v1/machines", &draft("one")).await.expect(200);
        bob.post("/v1/machines", &draft("three")).await.expect(201);
        alice.delete("/v1/machines/one").await.expect(200);
        alice.post_keyed("/v1/machines", "0123456789abcdef", &draft("three")).await.expect(201);
        alice.post("/v1/machines", &draft("one")).await.problem(429, "QUOTA_EXCEEDED");
    }

    async fn machines_that_are_registered_together_stay_within_the_quota(on: Backend) {
        let fixture = Fixture::with(on, &[("QUOTA_MACHINES", "3")]).await;
        let (_, alice) = fixture.user();
        let together = (0..12).map(|n| {
            let alice = alice.clone();
            tokio::spawn(async move { alice.post("/v1/machines", &draft(&format!("m{n}"))).await.status })
        });
        let mut statuses = Vec::new();
        for one in together.collect::<Vec<_>>() {
            statuses.push(one.await.unwrap());
        }
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 9, "{statuses:?}");
    }
}
