//! GET /v1/machines.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_testkit::{Api, on_both_databases};
use serde_json::{Value, json};

use crate::{Fixture, draft};

async fn walk(api: &Api, limit: u32) -> (Vec<String>, Vec<usize>) {
    let (mut ids, mut pages, mut cursor) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = api.get(&format!("/v1/machines?limit={limit}{after}")).await.expect(200);
        let machines = page["machines"].as_array().unwrap();
        ids.extend(machines.iter().map(|machine| machine["id"].as_str().unwrap().to_owned()));
        pages.push(machines.len());
        match &page["nextCursor"] {
            Value::String(next) => cursor = Some(next.clone()),
            Value::Null => return (ids, pages),
            other => panic!("{other}"),
        }
    }
}

on_both_databases! {
    async fn machines_are_listed_newest_first_in_pages(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        let mut made = Vec::new();
        for n in 0..7 {
            let machine = alice.post("/v1/machines", &draft(&format!("m{n}"))).await.expect(201);
            made.push((machine["createdAt"].as_str().unwrap().to_owned(), machine["id"].as_str().unwrap().to_owned()));
        }
        bob.post("/v1/machines", &draft("bobs")).await.expect(201);
        for limit in [1, 2, 3, 7, 500] {
            let (ids, pages) = walk(&alice, limit).await;
            assert_eq!(ids, ["m6", "m5", "m4", "m3", "m2", "m1", "m0"], "limit {limit}");
            assert!(pages.iter().all(|size| *size <= limit as usize));
        }
        assert_eq!(walk(&bob, 100).await.0, ["bobs"]);
        let (_, carol) = fixture.user();
        assert_eq!(carol.get("/v1/machines").await.expect(200), json!({ "machines": [], "nextCursor": null }));
    }

    async fn a_forged_cursor_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        for written in [
            "machine-tokens\n[0,\"m\"]",
            "machines\n[9223372036854775807,\"m\"]",
            "machines\n[-9223372036854775808,\"m\"]",
            "machines\n[0,\"\\u0000\"]",
            "machines\n{}",
        ] {
            let cursor = URL_SAFE_NO_PAD.encode(written);
            alice.get(&format!("/v1/machines?cursor={cursor}")).await.problem(400, "INVALID_CURSOR");
        }
        // A valid one shows only the caller's machines.
        let (_, bob) = fixture.user();
        let far = URL_SAFE_NO_PAD.encode("machines\n[253402300799000000,\"z\"]");
        let page = bob.get(&format!("/v1/machines?cursor={far}")).await.expect(200);
        assert_eq!(page["machines"], json!([]));
    }

    async fn machines_made_at_the_same_time_are_each_listed_once(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let mut together = Vec::new();
        for n in 0..20 {
            let alice = alice.clone();
            together.push(tokio::spawn(async move { alice.post("/v1/machines", &draft(&format!("m{n}"))).await.status }));
        }
        for one in together {
            assert_eq!(one.await.unwrap(), 201);
        }
        let (mut ids, _) = walk(&alice, 3).await;
        assert_eq!(ids.len(), 20);
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 20);
    }

    async fn a_page_ends_at_four_mebibytes(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let large = "x".repeat(262_144);
        for n in 0..10 {
            let body = json!({ "id": format!("m{n}"), "metadata": large, "encryptionKey": "k" });
            alice.post("/v1/machines", &body).await.expect(201);
            let state = json!({ "daemonState": large });
            alice.patch(&format!("/v1/machines/m{n}"), &state).await.expect(200);
        }
        let first = alice.get("/v1/machines").await;
        assert!(first.text.len() <= 4 << 20, "{} bytes", first.text.len());
        assert!(first.json()["nextCursor"].is_string());
        let (ids, pages) = walk(&alice, 100).await;
        assert_eq!((ids.len(), pages.as_slice()), (10, [7, 3].as_slice()));
    }

    async fn invalid_limits_and_cursors_are_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        for limit in ["0", "501", "-1", "ten", "1.5", "", "99999999999999999999"] {
            let refused = alice.get(&format!("/v1/machines?limit={limit}")).await;
            assert_eq!(refused.bad_fields(), ["?limit"], "{limit}");
        }
        for cursor in ["x", "", "%00", "bWFjaGluZXMKW10", "c2Vzc2lvbnMKWzEsImEiXQ"] {
            let refused = alice.get(&format!("/v1/machines?cursor={cursor}")).await;
            assert_eq!(refused.status, 400, "{cursor}: {}", refused.text);
        }
        alice.get("/v1/machines?cursor=c2Vzc2lvbnMKWzEsImEiXQ").await.problem(400, "INVALID_CURSOR");
    }
}
