//! Public links: how many uses they allow, what viewers see, how they end.

use std::time::Duration;

use ensemble_chassis::Clock;
use ensemble_testkit::{Answer, Api, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, seqs};

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The time of all links has come.
const EXPIRED: &str = "UPDATE links SET expires_at = created_at";

async fn link(owner: &Client, session: &str, terms: Value) -> (String, Value) {
    let made = owner.api.post(&format!("/v1/sessions/{session}/public-share"), &terms).await;
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    let made = made.json();
    (format!("/v1/public-sessions/{}", made["token"].as_str().unwrap()), made)
}

async fn with_header(api: &Api, path: &str, name: &str, value: &str) -> Answer {
    Api::send(api.request("GET", path).header(name, value)).await
}

/// Reads a link, and retries with the same key when there is no response. With a thousand connections at once, some
/// requests fail; the key makes the retry the same viewing.
async fn view_with_retries(api: &Api, path: &str, key: &str) -> Answer {
    loop {
        match Api::try_send(api.request("GET", path).header("Idempotency-Key", key)).await {
            Ok(answer) if matches!(answer.status, 200 | 404) => return answer,
            Ok(answer) => assert!(matches!(answer.status, 408 | 503), "{answer:?}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

fn expect_privacy_headers(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), Some("no-store, no-transform"), "{answer:?}");
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{answer:?}");
}

on_both_databases! {
    async fn viewers_see_the_messages_without_their_senders(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.fill(&id, 60).await;
        let (path, made) = link(&owner, &id, json!({ "encryptedKey": "for the fragment", "maxUses": 5 })).await;
        assert_eq!(made["url"], format!("https://share.example/share/{}", made["token"].as_str().unwrap()));
        assert_eq!((&made["uses"], &made["maxUses"], &made["expiresAt"]), (&json!(0), &json!(5), &json!(null)));
        let answer = fixture.anonymous().get(&path).await;
        expect_privacy_headers(&answer);
        let seen = answer.expect(200);
        assert_eq!(
            (&seen["accessLevel"], &seen["encryptedKey"], &seen["remainingUses"]),
            (&json!("view"), &json!("for the fragment"), &json!(4))
        );
        assert_eq!(
            (&seen["session"]["id"], &seen["session"]["metadata"], &seen["session"]["lastSeq"]),
            (&json!(id), &json!("sealed metadata"), &json!(60))
        );
        assert_eq!(seqs(&seen["messages"]), (11..=60).rev().collect::<Vec<_>>());
        assert_eq!((&seen["hasMore"], &seen["nextBefore"], &seen["nextAfter"]), (&json!(true), &json!(11), &json!(60)));
        for hidden in ["senderId", "localId", "ownerId", "machineId", "encryptionKey", "tag"] {
            assert!(!answer.text.contains(hidden), "{hidden}");
        }
        // The next page belongs to the same viewing. A bearer token makes no difference.
        let token = seen["viewToken"].as_str().unwrap();
        let next = with_header(&owner.api.with_token("nonsense"), &format!("{path}?before=11"), "X-View-Token", token)
            .await
            .expect(200);
        assert_eq!((seqs(&next["messages"]), &next["remainingUses"]), ((1..=10).rev().collect(), &json!(4)));
    }

    async fn ten_uses_admit_ten_of_a_thousand_readers(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.fill(&id, 3).await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 10 })).await;
        let anonymous = fixture.anonymous();
        let readers = (0..1_000).map(|reader| {
            let (api, path) = (anonymous.clone(), path.clone());
            tokio::spawn(async move { view_with_retries(&api, &path, &format!("the-key-of-reader-{reader}")).await })
        });
        let mut view_tokens = Vec::new();
        for reader in readers.collect::<Vec<_>>() {
            let answer = reader.await.unwrap();
            expect_privacy_headers(&answer);
            match answer.status {
                200 => view_tokens.push(answer.json()["viewToken"].as_str().unwrap().to_owned()),
                _ => drop(answer.problem(404, "LINK_NOT_FOUND")),
            }
        }
        assert_eq!(view_tokens.len(), 10);
        anonymous.get(&path).await.problem(404, "LINK_NOT_FOUND");
        for token in &view_tokens {
            let page = with_header(&anonymous, &format!("{path}?after=1"), "X-View-Token", token).await.expect(200);
            assert_eq!((seqs(&page["messages"]), &page["remainingUses"]), (vec![2, 3], &json!(0)));
        }
        with_header(&anonymous, &path, "X-View-Token", "AAAA").await.problem(404, "LINK_NOT_FOUND");
    }

    async fn a_repeated_idempotency_key_costs_no_further_use(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 2 })).await;
        let anonymous = fixture.anonymous();
        let key = "a-key-of-one-viewing";
        let repeats = (0..16).map(|_| {
            let (api, path) = (anonymous.clone(), path.clone());
            tokio::spawn(async move { with_header(&api, &path, "Idempotency-Key", key).await.expect(200) })
        });
        for repeat in repeats.collect::<Vec<_>>() {
            assert_eq!(repeat.await.unwrap()["remainingUses"], 1);
        }
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-of-another-one").await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-that-is-too-late")
            .await
            .problem(404, "LINK_NOT_FOUND");
        with_header(&anonymous, &path, "Idempotency-Key", key).await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", "short").await.problem(400, "INVALID_ARGUMENT");
        // The viewings of a replaced link do not count for the new one.
        let (path, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        with_header(&anonymous, &path, "Idempotency-Key", "a-key-of-a-new-reader").await.expect(200);
        with_header(&anonymous, &path, "Idempotency-Key", key).await.problem(404, "LINK_NOT_FOUND");
    }

    async fn head_requests_cost_no_use(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        let anonymous = fixture.anonymous();
        for _ in 0..3 {
            let answer = Api::send(anonymous.request("HEAD", &path)).await;
            expect_privacy_headers(&answer);
            assert_eq!((answer.status, answer.text.as_str()), (200, ""));
        }
        anonymous.get(&path).await.expect(200);
        assert_eq!(Api::send(anonymous.request("HEAD", &path)).await.status, 404);
    }

    async fn prefetches_cost_no_use(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let (path, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        let anonymous = fixture.anonymous();
        for (name, value) in [
            ("Sec-Purpose", "prefetch"),
            ("Sec-Purpose", "prefetch;prerender"),
            ("Sec-Purpose", "prefetch; anonymous-client-ip"),
            ("Purpose", "Prefetch"),
            ("X-Moz", "prefetch"),
        ] {
            let answer = with_header(&anonymous, &path, name, value).await;
            expect_privacy_headers(&answer);
            answer.problem(403, "FORBIDDEN");
        }
        let seen = with_header(&anonymous, &path, "Sec-Purpose", "something-else").await.expect(200);
        assert_eq!(seen["remainingUses"], 0);
    }

    async fn links_that_do_not_work_are_indistinguishable(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let anonymous = fixture.anonymous();
        let later = Clock::system().now().plus(YEAR).to_string();
        let (expiring, _) = link(&owner, &id, json!({ "expiresAt": later })).await;
        let token = anonymous.get(&expiring).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        fixture.execute(EXPIRED).await;
        let mut bodies =
            vec![anonymous.get(&expiring).await, with_header(&anonymous, &expiring, "X-View-Token", &token).await];
        let (rotated, _) = link(&owner, &id, json!({})).await;
        let token = anonymous.get(&rotated).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        let (revoked, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        bodies.push(anonymous.get(&rotated).await);
        bodies.push(with_header(&anonymous, &rotated, "X-View-Token", &token).await);
        let old_token = token;
        let token = anonymous.get(&revoked).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        bodies.push(anonymous.get(&revoked).await);
        // A view token of the replaced link does not continue a viewing of the new one.
        bodies.push(with_header(&anonymous, &revoked, "X-View-Token", &old_token).await);
        assert_eq!(
            owner.api.delete(&format!("/v1/sessions/{id}/public-share")).await.expect(200),
            json!({ "success": true })
        );
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
            expect_privacy_headers(answer);
            let mut body = answer.problem(404, "LINK_NOT_FOUND");
            body["requestId"] = json!("");
            let mut first = bodies[0].json();
            first["requestId"] = json!("");
            assert_eq!(body, first);
        }
    }

    async fn the_owner_sees_how_a_link_stands(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}/public-share");
        owner.api.get(&path).await.problem(404, "LINK_NOT_FOUND");
        let end = Clock::system().now().plus(YEAR);
        let (public, made) = link(&owner, &id, json!({ "maxUses": 2, "expiresAt": end })).await;
        fixture.anonymous().get(&public).await.expect(200);
        let state = owner.api.get(&path).await.expect(200);
        let expected = json!({
            "expiresAt": made["expiresAt"], "maxUses": 2, "uses": 1, "createdAt": made["createdAt"], "keyEpoch": 1
        });
        assert_eq!(state, expected, "no token, no url");
        // A link of after a new key names it; one that is used up is still there to be ended.
        owner.api.patch(&format!("/v1/sessions/{id}"), &json!({ "encryptionKey": "k", "expectedKeyEpoch": 1 })).await.expect(200);
        assert_eq!(owner.api.get(&path).await.expect(200)["keyEpoch"], 1);
        let (public, _) = link(&owner, &id, json!({ "maxUses": 1 })).await;
        fixture.anonymous().get(&public).await.expect(200);
        let state = owner.api.get(&path).await.expect(200);
        assert_eq!((&state["keyEpoch"], &state["uses"], &state["expiresAt"]), (&json!(2), &json!(1), &Value::Null));
        owner.api.delete(&path).await.expect(200);
        owner.api.get(&path).await.problem(404, "LINK_NOT_FOUND");
        link(&owner, &id, json!({ "expiresAt": Clock::system().now().plus(YEAR) })).await;
        fixture.execute(EXPIRED).await;
        owner.api.get(&path).await.problem(404, "LINK_NOT_FOUND");
    }

    async fn invalid_link_terms_are_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}/public-share");
        for (terms, pointer) in [
            (json!({ "expiresAt": "2020-01-01T00:00:00Z" }), "/expiresAt"),
            (json!({ "expiresAt": "tomorrow" }), "/expiresAt"),
            (json!({ "expiresAt": 5 }), "/expiresAt"),
            (json!({ "expiresAt": Clock::system().now().plus(YEAR + Duration::from_secs(3_600)) }), "/expiresAt"),
            (json!({ "expiresAt": "9999-12-31T23:59:59Z" }), "/expiresAt"),
            (json!({ "maxUses": 0 }), "/maxUses"),
            (json!({ "maxUses": -1 }), "/maxUses"),
            (json!({ "maxUses": 1_000_001 }), "/maxUses"),
            (json!({ "maxUses": 1.5 }), "/maxUses"),
            (json!({ "maxUses": "5" }), "/maxUses"),
            (json!({ "maxUses": 9_007_199_254_740_992_i64 }), "/maxUses"),
        ] {
            assert_eq!(owner.api.post(&path, &terms).await.bad_fields(), [pointer], "{terms}");
        }
        assert_eq!(fixture.rows().await, 2, "nothing was written");
        let terms = json!({ "expiresAt": Clock::system().now().plus(YEAR) });
        assert_eq!(owner.api.post(&path, &terms).await.status, 201, "a year is allowed");
        owner.api.delete(&path).await.expect(200);
        // A request without a body creates a link without limits. A second request replaces it.
        assert_eq!(Api::send(owner.api.request("POST", &path)).await.status, 201);
        assert_eq!(Api::send(owner.api.request("POST", &path)).await.status, 200);
    }
}
