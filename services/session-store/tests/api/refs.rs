//! Refs in paths.

use ensemble_testkit::{on_both_databases, sql};
use ensemble_types::ids::SessionId;
use ensemble_types::refs::Ref;
use serde_json::{Value, json};

use crate::fixture::{Fixture, messages};

on_both_databases! {
    async fn a_ref_stands_for_the_id_in_every_path(on: Backend) {
        let fixture = Fixture::start(on).await;
        let alice = fixture.client();
        let made = alice.api.post("/v1/sessions", &alice.draft()).await.expect(201);
        let reference = made["ref"].as_str().unwrap();
        let path = format!("/v1/sessions/{reference}");
        assert_eq!(alice.api.get(&path).await.expect(200), made);
        assert_eq!(alice.api.get("/v1/sessions").await.expect(200)["sessions"][0]["ref"], made["ref"]);
        let body = json!({ "content": "sealed", "localId": "a" });
        assert_eq!(alice.api.post(&messages(reference), &body).await.expect(201)["seq"], 1);
        assert_eq!(alice.api.get(&messages(reference)).await.expect(200)["messages"].as_array().unwrap().len(), 1);
        let guest = fixture.client();
        alice.share(reference, &guest, "view").await;
        assert_eq!(guest.api.get(&path).await.expect(200)["accessLevel"], "view");
        guest.api.post(&messages(reference), &body).await.problem(403, "FORBIDDEN");
        alice.api.delete(&format!("{path}/shares/{}", guest.id)).await.expect(200);
        guest.api.get(&path).await.problem(404, "NOT_FOUND");
        alice.api.delete(&path).await.expect(200);
        alice.api.get(&path).await.problem(404, "NOT_FOUND");
    }

    async fn a_ref_is_computed_from_the_id_also_of_rows_that_were_there(on: Backend) {
        let fixture = Fixture::start(on).await;
        let alice = fixture.client();
        let made = alice.api.post("/v1/sessions", &alice.draft()).await.expect(201);
        let of = |session: &Value| Ref::of(&session["id"].as_str().unwrap()).to_string();
        assert_eq!(made["ref"], of(&made));
        let other = alice.api.post("/v1/sessions", &alice.draft()).await.expect(201);
        let fixture = fixture.migrated_again("UPDATE sessions SET ref = substr(ref, 5) || substr(ref, 1, 4)", "20261215000000").await;
        let alice = alice.api.at(&fixture.service.public_url());
        for session in [&made, &other] {
            let path = format!("/v1/sessions/{}", session["ref"].as_str().unwrap());
            assert_eq!(alice.get(&path).await.expect(200)["id"], session["id"]);
        }
    }

    async fn an_id_whose_ref_another_session_has_is_refused(on: Backend) {
        let fixture = Fixture::start(on).await;
        let alice = fixture.client();
        let taken = alice.api.post("/v1/sessions", &alice.draft()).await.expect(201)["id"].clone();
        // Such a pair of ids is found after a million millions of tries.
        let id = SessionId::generate();
        let statement = format!("UPDATE sessions SET ref = '{}'", Ref::of(&id));
        sql::execute(&fixture.database.url, &statement).await;
        let mut draft = alice.draft();
        draft["id"] = json!(id);
        alice.api.post("/v1/sessions", &draft).await.problem(409, "CONFLICT");
        assert_eq!(alice.api.get("/v1/sessions").await.expect(200)["sessions"][0]["id"], taken);
    }

    async fn a_ref_gives_no_access(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (alice, bob) = (fixture.client(), fixture.client());
        let made = alice.api.post("/v1/sessions", &alice.draft()).await.expect(201);
        let reference = made["ref"].as_str().unwrap();
        bob.api.get(&format!("/v1/sessions/{reference}")).await.problem(404, "NOT_FOUND");
        bob.api.get(&messages(reference)).await.problem(404, "NOT_FOUND");
        for unknown in ["00000000", "0000000u", "0000000"] {
            alice.api.get(&format!("/v1/sessions/{unknown}")).await.problem(404, "NOT_FOUND");
        }
    }
}
