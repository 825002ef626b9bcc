//! Refs in paths.

use ensemble_machine_registry::MachineRegistry;
use ensemble_store_kit::Db;
use ensemble_testkit::{Backend, on_both_databases, sql, start_service};
use ensemble_types::refs::Ref;
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

    async fn a_ref_is_computed_from_the_id_also_of_rows_that_were_there(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        let made = alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        assert_eq!(made["ref"], Ref::of(&"laptop").to_string());
        assert_eq!(bob.post("/v1/machines", &draft("laptop")).await.expect(201)["ref"], made["ref"]);
        let Fixture { service, vars, database, peers } = fixture;
        service.stop().await;
        let url = &database.url;
        sql::closed(url).await;
        sql::execute(url, "UPDATE machines SET ref = substr(ref, 5) || substr(ref, 1, 4)").await;
        sql::forget_migration(url, "20261215000000").await;
        Db::migrate(&database.config(), ensemble_machine_registry::migrations()).await.unwrap();
        let service = start_service::<MachineRegistry>(vars.clone()).await;
        let alice = alice.at(&service.public_url());
        let _fixture = Fixture { service, vars, database, peers };
        let path = format!("/v1/machines/{}", made["ref"].as_str().unwrap());
        assert_eq!(alice.get(&path).await.expect(200)["id"], "laptop");
    }

    async fn a_ref_that_two_accounts_have_does_not_stop_the_way_back(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        for user in [&alice, &bob] {
            user.post("/v1/machines", &draft("laptop")).await.expect(201);
        }
        let Fixture { service, vars: _, database, peers: _peers } = fixture;
        service.stop().await;
        let url = &database.url;
        sql::closed(url).await;
        let down = match on {
            Backend::Postgres => include_str!("../../migrations/postgres/2026-12-15-000000_computed_refs/down.sql"),
            Backend::Sqlite => include_str!("../../migrations/sqlite/2026-12-15-000000_computed_refs/down.sql"),
        };
        sql::execute(url, down).await;
        assert_eq!(sql::number(url, "SELECT count(DISTINCT ref) FROM machines").await, 2);
        sql::forget_migration(url, "20261215000000").await;
        Db::migrate(&database.config(), ensemble_machine_registry::migrations()).await.unwrap();
        assert_eq!(sql::number(url, "SELECT count(DISTINCT ref) FROM machines").await, 1);
    }

    async fn an_id_whose_ref_another_machine_has_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        alice.post("/v1/machines", &draft("laptop")).await.expect(201);
        let statement = format!("UPDATE machines SET ref = '{}'", Ref::of(&"desk"));
        sql::execute(&fixture.database.url, &statement).await;
        alice.post("/v1/machines", &draft("desk")).await.problem(409, "CONFLICT");
        bob.post("/v1/machines", &draft("desk")).await.expect(201);
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
