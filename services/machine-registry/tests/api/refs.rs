//! Refs in paths.

use ensemble_testkit::on_both_databases;
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn a_ref_stands_for_the_id_in_every_path(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let made = alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        let path = format!("/v1/machines/{}", made["ref"].as_str().unwrap());
        assert_eq!(alice.get(&path).await.expect(200), made);
        assert_eq!(alice.get("/v1/machines").await.expect(200)["machines"][0], made);
        assert_eq!(alice.patch(&path, &json!({ "metadata": "new" })).await.expect(200)["id"], "laptop");
        alice.delete(&path).await.expect(200);
        alice.get(&path).await.problem(404, "NOT_FOUND");
        alice.get("/v1/machines/laptop").await.problem(404, "NOT_FOUND");
    }

    async fn a_ref_gives_no_access(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((alice_id, alice), (_, bob)) = (fixture.user(), fixture.user());
        let made = alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        let other = alice.post("/v1/machines", &draft("desk")).await.expect(201);
        let path = |of: &serde_json::Value| format!("/v1/machines/{}", of["ref"].as_str().unwrap());
        bob.get(&path(&made)).await.problem(404, "NOT_FOUND");
        bob.delete(&path(&made)).await.problem(404, "NOT_FOUND");
        let machine = fixture.with_token(&fixture.peers.issuer().machine(alice_id, &"laptop".parse().unwrap()));
        assert_eq!(machine.get(&path(&made)).await.expect(200), made);
        machine.get(&path(&other)).await.problem(403, "FORBIDDEN");
        machine.get("/v1/machines/00000000").await.problem(403, "FORBIDDEN");
        machine.delete(&path(&made)).await.problem(403, "FORBIDDEN");
    }

    async fn a_machine_with_the_id_is_found_before_one_with_the_ref(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice) = fixture.user();
        let made = alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        let same = made["ref"].as_str().unwrap();
        let named = alice.post("/v1/machines", &draft(same)).await.expect(201);
        assert_eq!(alice.get(&format!("/v1/machines/{same}")).await.expect(200), named);
        alice.delete(&format!("/v1/machines/{same}")).await.expect(200);
        assert_eq!(alice.get(&format!("/v1/machines/{same}")).await.expect(200), made);
    }
}
