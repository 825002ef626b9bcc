//! Public links: how many they let in, what viewers see, how they die.

use std::time::Duration;

use ensemble_chassis::Clock;
use ensemble_testkit::{Answer, Api, eventually, on_both_databases};
use serde_json::{Value, json};

use crate::world::{Person, World, seqs};

async fn link(owner: &Person, session: &str, terms: Value) -> (String, Value) {
    let made = owner.api.post(&format!("/v1/sessions/{session}/public-share"), &terms).await;
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    let made = made.json();
    (format!("/v1/public-sessions/{}", made["token"].as_str().unwrap()), made)
}

async fn with_header(api: &Api, path: &str, name: &str, value: &str) -> Answer {
    Api::send(api.request("GET", path).header(name, value)).await
}

/// Knocks until somebody answers. A machine with a thousand connections at once is late with some of them, and a reader
/// that got no answer comes again with its key, so that no use is lost.
async fn knock(api: &Api, path: &str, key: &str) -> Answer {
    loop {
        match Api::try_send(api.request("GET", path).header("Idempotency-Key", key)).await {
            Ok(answer) if matches!(answer.status, 200 | 404) => return answer,
            Ok(answer) => assert!(matches!(answer.status, 408 | 503), "{answer:?}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

fn discreet(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{answer:?}");
}

on_both_databases! {
    async fn a_viewer_sees_the_session_and_not_its_people(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        owner.fill(&id, 60).await;
        let (path, made) = link(&owner, &id, json!({ "encryptedKey": "for the fragment", "maxUses": 5 })).await;
        assert_eq!(made["url"], format!("https://share.example/share/{}", made["token"].as_str().unwrap()));
        assert_eq!((&made["uses"], &made["maxUses"], &made["expiresAt"]), (&json!(0), &json!(5), &json!(null)));
        let answer = world.anonymous().get(&path).await;
        discreet(&answer);
        let seen = answer.expect(200);
        assert_eq!((&seen["accessLevel"], &seen["encryptedKey"], &seen["remainingUses"]), (&json!("view"), &json!("for the fragment"), &json!(4)));
        assert_eq!((&seen["session"]["id"], &seen["session"]["metadata"], &seen["session"]["lastSeq"]), (&json!(id), &json!("sealed metadata"), &json!(60)));
        assert_eq!(seqs(&seen["messages"]), (11..=60).rev().collect::<Vec<_>>());
        assert_eq!((&seen["hasMore"], &seen["nextBefore"], &seen["nextAfter"]), (&json!(true), &json!(11), &json!(60)));
        for hidden in ["senderId", "localId", "ownerId", "machineId", "encryptionKey", "tag"] {
            assert!(!answer.text.contains(hidden), "{hidden}");
        }
        // The next page is the same viewing; a bearer of any kind changes nothing.
        let token = seen["viewToken"].as_str().unwrap();
        let next = with_header(&owner.api.with_token("nonsense"), &format!("{path}?before=11"), "X-View-Token", token).await.expect(200);
        assert_eq!((seqs(&next["messages"]), &next["remainingUses"]), ((1..=10).rev().collect(), &json!(4)));
    }

    async fn a_thousand_readers_of_ten_uses(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        owner.fill(&id, 3).await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 10 })).await;
        let anonymous = world.anonymous();
        let readers = (0..1_000).map(|reader| {
            let (api, path) = (anonymous.clone(), path.clone());
            tokio::spawn(async move { knock(&api, &path, &format!("the-key-of-reader-{reader}")).await })
        });
        let mut inside = Vec::new();
        for reader in readers.collect::<Vec<_>>() {
            let answer = reader.await.unwrap();
            discreet(&answer);
            match answer.status {
                200 => inside.push(answer.json()["viewToken"].as_str().unwrap().to_owned()),
                _ => drop(answer.problem(404, "LINK_NOT_FOUND")),
            }
        }
        assert_eq!(inside.len(), 10);
        anonymous.get(&path).await.problem(404, "LINK_NOT_FOUND");
        for token in &inside {
            let page = with_header(&anonymous, &format!("{path}?after=1"), "X-View-Token", token).await.expect(200);
            assert_eq!((seqs(&page["messages"]), &page["remainingUses"]), (vec![2, 3], &json!(0)));
        }
        with_header(&anonymous, &path, "X-View-Token", "AAAA").await.problem(404, "LINK_NOT_FOUND");
    }

    async fn a_lost_answer_burns_no_use(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 2 })).await;
        let anonymous = world.anonymous();
        let key = "a-key-of-one-viewing";
        let repeats = (0..16).map(|_| { let (api, path) = (anonymous.clone(), path.clone()); tokio::spawn(async move { with_header(&api, &path, "Idempotency-Key", key).await.expect(200) }) });
        for repeat in repeats.collect::<Vec<_>>() {
            assert_eq!(repeat.await.unwrap()["remainingUses"], 1);
        }
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-of-another-one").await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-that-is-too-late").await.problem(404, "LINK_NOT_FOUND");
        with_header(&anonymous, &path, "Idempotency-Key", key).await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", "short").await.problem(400, "INVALID_ARGUMENT");
        // A session's new link knows nothing of the old one's viewings.
        let (path, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-of-somebody-new").await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", key).await.problem(404, "LINK_NOT_FOUND");
    }

    async fn looking_without_reading_counts_nothing(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        let anonymous = world.anonymous();
        for _ in 0..3 {
            let answer = Api::send(anonymous.request("HEAD", &path)).await;
            discreet(&answer);
            assert_eq!((answer.status, answer.text.as_str()), (200, ""));
        }
        anonymous.get(&path).await.expect(200);
        assert_eq!(Api::send(anonymous.request("HEAD", &path)).await.status, 404);
    }

    async fn all_dead_links_look_the_same(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        let anonymous = world.anonymous();
        let soon = Clock::system().now().plus(Duration::from_millis(700)).to_string();
        let (expiring, _) = link(&owner, &id, json!({ "expiresAt": soon })).await;
        let token = anonymous.get(&expiring).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        eventually(Duration::from_secs(5), async || anonymous.get(&expiring).await.status == 404).await;
        let mut bodies = vec![anonymous.get(&expiring).await, with_header(&anonymous, &expiring, "X-View-Token", &token).await];
        let (rotated, _) = link(&owner, &id, json!({})).await;
        let token = anonymous.get(&rotated).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        let (revoked, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        bodies.push(anonymous.get(&rotated).await);
        bodies.push(with_header(&anonymous, &rotated, "X-View-Token", &token).await);
        // A view token of one generation is none of the next.
        bodies.push(with_header(&anonymous, &rotated, "X-View-Token", &token).await);
        let token = anonymous.get(&revoked).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        bodies.push(anonymous.get(&revoked).await);
        assert_eq!(owner.api.delete(&format!("/v1/sessions/{id}/public-share")).await.expect(200), json!({ "success": true }));
        owner.api.delete(&format!("/v1/sessions/{id}/public-share")).await.expect(200);
        bodies.push(with_header(&anonymous, &revoked, "X-View-Token", &token).await);
        bodies.push(anonymous.get("/v1/public-sessions/unknown").await);
        bodies.push(anonymous.get(&format!("/v1/public-sessions/{}", "A".repeat(43))).await);
        bodies.push(anonymous.get("/v1/public-sessions/%00").await);
        bodies.push(anonymous.get("/v1/public-sessions/%FF").await);
        let (of_deleted, _) = link(&owner, &id, json!({})).await;
        owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
        bodies.push(anonymous.get(&of_deleted).await);
        for answer in &bodies {
            discreet(answer);
            let mut body = answer.problem(404, "LINK_NOT_FOUND");
            body["requestId"] = json!("");
            let mut first = bodies[0].json();
            first["requestId"] = json!("");
            assert_eq!(body, first);
        }
    }

    async fn terms_that_make_no_sense_are_refused(on: Backend) {
        let world = World::new(on).await;
        let owner = world.person();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}/public-share");
        for (terms, pointer) in [
            (json!({ "expiresAt": "2020-01-01T00:00:00Z" }), "/expiresAt"),
            (json!({ "expiresAt": "tomorrow" }), "/expiresAt"),
            (json!({ "expiresAt": 5 }), "/expiresAt"),
            (json!({ "maxUses": 0 }), "/maxUses"),
            (json!({ "maxUses": -1 }), "/maxUses"),
            (json!({ "maxUses": 1_000_001 }), "/maxUses"),
            (json!({ "maxUses": 1.5 }), "/maxUses"),
            (json!({ "maxUses": "5" }), "/maxUses"),
            (json!({ "maxUses": 9_007_199_254_740_992_i64 }), "/maxUses"),
        ] {
            assert_eq!(owner.api.post(&path, &terms).await.bad_fields(), [pointer], "{terms}");
        }
        assert_eq!(world.rows().await, 2, "nothing was written");
        // No body at all is a link without terms; the second is the first anew.
        assert_eq!(Api::send(owner.api.request("POST", &path)).await.status, 201);
        assert_eq!(Api::send(owner.api.request("POST", &path)).await.status, 200);
    }
}
