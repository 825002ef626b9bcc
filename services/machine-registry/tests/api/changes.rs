//! PATCH /v1/machines/{id}: versions and heartbeats.

use ensemble_testkit::{SOON, eventually, on_both_databases};
use ensemble_types::ids::UserId;
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn a_change_raises_the_version_of_its_field(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let one = alice.patch("/v1/machines/m", &json!({ "metadata": "m2" })).await.expect(200);
        assert_eq!((&one["metadata"], &one["metadataVersion"]), (&json!("m2"), &json!(2)));
        assert_eq!(one["daemonStateVersion"], 0);
        assert!(one["updatedAt"].as_str() >= one["createdAt"].as_str());
        let two = json!({ "metadata": "m3", "daemonState": "d1", "activity": { "jobs": [1, 2] } });
        let both = alice.patch("/v1/machines/m", &two).await.expect(200);
        assert_eq!((&both["metadataVersion"], &both["daemonStateVersion"]), (&json!(3), &json!(1)));
        assert_eq!((&both["activity"], &both["online"]), (&json!({ "jobs": [1, 2] }), &json!(true)));
        assert_eq!(alice.get("/v1/machines/m").await.expect(200), both);
    }

    async fn a_conflicting_change_changes_nothing_and_gets_the_current_value(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let change = |body| { let alice = alice.clone(); async move { alice.patch("/v1/machines/m", &body).await } };
        change(json!({ "metadata": "m2", "expectedVersion": 1 })).await.expect(200);
        let late = change(json!({ "metadata": "m3", "expectedVersion": 1 })).await.problem(409, "VERSION_MISMATCH");
        assert_eq!(late["current"], json!({ "version": 2, "value": "m2" }));
        let first = change(json!({ "daemonState": "d1", "expectedVersion": 1 })).await.problem(409, "VERSION_MISMATCH");
        assert_eq!(first["current"], json!({ "version": 0, "value": null }));
        let half = json!({
            "metadata": "m3", "daemonState": "d1", "activity": {},
            "expectedMetadataVersion": 2, "expectedDaemonStateVersion": 9,
        });
        change(half).await.problem(409, "VERSION_MISMATCH");
        let now = alice.get("/v1/machines/m").await.expect(200);
        assert_eq!((&now["metadata"], &now["daemonState"], &now["online"]), (&json!("m2"), &json!(null), &json!(false)));
        let both = json!({
            "metadata": "m3", "daemonState": "d1", "expectedMetadataVersion": 2, "expectedDaemonStateVersion": 0,
        });
        change(both).await.expect(200);
    }

    async fn of_many_changes_to_one_version_one_succeeds(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let mut together = Vec::new();
        for n in 0..12 {
            let alice = alice.clone();
            let body = json!({ "metadata": format!("by {n}"), "expectedVersion": 1 });
            together.push(tokio::spawn(async move { alice.patch("/v1/machines/m", &body).await.status }));
        }
        let mut succeeded = 0;
        for one in together {
            match one.await.unwrap() {
                200 => succeeded += 1,
                status => assert_eq!(status, 409),
            }
        }
        assert_eq!(succeeded, 1);
        assert_eq!(alice.get("/v1/machines/m").await.expect(200)["metadataVersion"], 2);
    }

    async fn changes_without_an_expected_version_all_succeed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let mut together = Vec::new();
        for n in 0..12 {
            let alice = alice.clone();
            let body = json!({ "daemonState": format!("by {n}") });
            together.push(tokio::spawn(async move { alice.patch("/v1/machines/m", &body).await.status }));
        }
        for one in together {
            assert_eq!(one.await.unwrap(), 200);
        }
        assert_eq!(alice.get("/v1/machines/m").await.expect(200)["daemonStateVersion"], 12);
    }

    async fn a_machine_that_says_that_it_ends_is_offline_until_the_next_heartbeat(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let path = "/v1/machines/m";
        let beat = |online: Option<bool>| match online {
            Some(online) => json!({ "activity": {}, "online": online }),
            None => json!({ "activity": {} }),
        };
        for (online, seen) in [(None, true), (Some(false), false), (None, true), (Some(true), true)] {
            assert_eq!(alice.patch(path, &beat(online)).await.expect(200)["online"], seen, "{online:?}");
            assert_eq!(alice.get(path).await.expect(200)["online"], seen, "{online:?}");
        }
        let with_metadata = json!({ "activity": {}, "online": false, "metadata": "new" });
        assert_eq!(alice.patch(path, &with_metadata).await.expect(200)["online"], false);
        assert_eq!(alice.patch(path, &json!({ "online": false })).await.status, 400);
    }

    async fn the_owner_changes_the_key_and_a_machine_does_not(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        let mut made = draft("m");
        made["contentEpoch"] = json!(2);
        assert_eq!(alice.post("/v1/machines", &made).await.expect(201)["contentEpoch"], 2);
        let key = json!({ "encryptionKey": "k2", "contentEpoch": 3 });
        let changed = alice.patch("/v1/machines/m", &key).await.expect(200);
        assert_eq!((&changed["encryptionKey"], &changed["contentEpoch"]), (&json!("k2"), &json!(3)));
        assert_eq!(alice.get("/v1/machines/m").await.expect(200), changed);
        let token = fixture.peers.issuer().machine(user, &"m".parse().unwrap());
        fixture.with_token(&token).patch("/v1/machines/m", &key).await.problem(403, "FORBIDDEN");
        assert_eq!(alice.patch("/v1/machines/m", &json!({ "contentEpoch": 4 })).await.bad_fields(), ["/contentEpoch"]);
        let without = alice.patch("/v1/machines/m", &json!({ "encryptionKey": "k3" })).await.expect(200);
        assert_eq!(without["contentEpoch"], serde_json::Value::Null);
    }

    async fn a_machine_says_which_list_it_obeys(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        let made = alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(made["seen"], serde_json::Value::Null);
        let machine = fixture.with_token(&fixture.peers.issuer().machine(user, &"m".parse().unwrap()));
        let seen = |version: u32| json!({ "version": version, "digest": "d".repeat(43), "sig": "s".repeat(86) });
        for version in [2, 3] {
            let changed = machine.patch("/v1/machines/m", &json!({ "seen": seen(version) })).await.expect(200);
            assert_eq!((&changed["seen"], &changed["lastActiveAt"]), (&seen(version), &serde_json::Value::Null));
        }
        // A heartbeat keeps it, and it can come with one.
        assert_eq!(machine.patch("/v1/machines/m", &json!({ "activity": {} })).await.expect(200)["seen"], seen(3));
        let both = machine.patch("/v1/machines/m", &json!({ "activity": {}, "seen": seen(4) })).await.expect(200);
        assert_eq!((&both["seen"], &both["online"]), (&seen(4), &json!(true)));
        assert_eq!(alice.get("/v1/machines").await.expect(200)["machines"][0], both);
        let mut long = seen(5);
        long["sig"] = json!("s".repeat(87));
        assert_eq!(alice.patch("/v1/machines/m", &json!({ "seen": long })).await.bad_fields(), ["/seen/sig"]);
        let other = fixture.with_token(&fixture.peers.issuer().machine(user, &"n".parse().unwrap()));
        other.patch("/v1/machines/m", &json!({ "seen": seen(5) })).await.problem(403, "FORBIDDEN");
        assert_eq!(alice.get("/v1/machines/m").await.expect(200), both);
    }

    async fn a_heartbeat_changes_presence_only(on: Backend) {
        let fixture = Fixture::with(on, &[("MACHINE_ONLINE_MS", "300")]).await;
        let (_, alice) = fixture.user();
        let made = alice.post("/v1/machines", &draft("m")).await.expect(201);
        let updated = alice.patch("/v1/machines/m", &json!({ "activity": { "a": 1.50 } })).await;
        assert!(updated.text.contains(r#""activity":{"a":1.5"#), "{}", updated.text);
        let updated = updated.expect(200);
        assert_eq!((&updated["online"], &updated["updatedAt"]), (&json!(true), &made["updatedAt"]));
        assert_eq!((&updated["metadataVersion"], &updated["daemonStateVersion"]), (&json!(1), &json!(0)));
        assert!(updated["lastActiveAt"].is_string());
        eventually(SOON, async || alice.get("/v1/machines/m").await.expect(200)["online"] == false).await;
        let away = alice.get("/v1/machines").await.expect(200);
        assert_eq!(away["machines"][0]["lastActiveAt"], updated["lastActiveAt"], "the time of the last heartbeat stays");
    }

    async fn invalid_changes_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let large = "x".repeat(16_384);
        for (body, pointer) in [
            (json!({ "metadata": "x", "daemonState": "y", "expectedVersion": 1 }), "/expectedVersion"),
            (json!({ "activity": {}, "expectedVersion": 1 }), "/expectedVersion"),
            (json!({ "metadata": "x", "expectedDaemonStateVersion": 0 }), "/expectedDaemonStateVersion"),
            (json!({ "metadata": "x", "expectedVersion": 1, "expectedMetadataVersion": 1 }), "/expectedMetadataVersion"),
            (json!({ "metadata": "x", "expectedVersion": "1" }), "/expectedVersion"),
            (json!({ "activity": [] }), "/activity"),
            (json!({ "activity": "busy" }), "/activity"),
            (json!({ "activity": { "text": large } }), "/activity"),
            (json!({ "metadata": "" }), "/metadata"),
        ] {
            let refused = alice.patch("/v1/machines/m", &body).await;
            assert_eq!(refused.bad_fields(), [pointer], "{body}: {}", refused.text);
        }
        for body in [json!({}), json!({ "online": true }), json!({ "metadata": null })] {
            alice.patch("/v1/machines/m", &body).await.problem(400, "INVALID_ARGUMENT");
        }
        let now = alice.get("/v1/machines/m").await.expect(200);
        assert_eq!((&now["metadataVersion"], &now["online"]), (&json!(1), &json!(false)));
    }
}

/// The revisions of the hints of machine `m`, once there are at least `count`.
async fn hints(fixture: &Fixture, user: UserId, count: usize) -> Vec<i64> {
    eventually(SOON, async || fixture.peers.hints(user).len() >= count).await;
    let hints = fixture.peers.hints(user);
    assert!(hints.iter().all(|(kind, id, _)| (kind.as_str(), id.as_str()) == ("machine", "m")), "{hints:?}");
    hints.into_iter().map(|(_, _, revision)| revision).collect()
}

on_both_databases! {
    async fn a_change_is_a_hint_and_a_heartbeat_is_none(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        let beat = async |activity: &str| {
            alice.patch("/v1/machines/m", &json!({ "activity": { "says": activity } })).await.expect(200);
        };
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        assert_eq!(hints(&fixture, user, 1).await.len(), 1);
        beat("a").await;
        assert_eq!(hints(&fixture, user, 2).await.len(), 2, "it has come");
        beat("a").await;
        beat("a").await;
        beat("b").await;
        assert_eq!(hints(&fixture, user, 3).await.len(), 3, "only what is new");
        alice.delete("/v1/machines/m").await.expect(200);
        let revisions = hints(&fixture, user, 4).await;
        assert_eq!(revisions.len(), 4);
        assert!(revisions.is_sorted(), "{revisions:?}");
    }

    async fn the_end_of_heartbeats_is_a_hint(on: Backend) {
        let fixture = Fixture::with(on, &[("MACHINE_ONLINE_MS", "500")]).await;
        let (user, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        hints(&fixture, user, 1).await;
        alice.patch("/v1/machines/m", &json!({ "activity": {} })).await.expect(200);
        hints(&fixture, user, 3).await;
        assert_eq!(alice.get("/v1/machines/m").await.expect(200)["online"], false);
    }
}
