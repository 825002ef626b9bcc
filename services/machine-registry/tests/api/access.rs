//! Access: tokens, owners, and machine tokens.

use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use ensemble_types::ids::MachineId;
use serde_json::json;

use crate::{Fixture, draft};

/// Every route, as (method, path). Bodies are valid, so that only the caller can be refused.
const CALLS: [(&str, &str); 5] = [
    ("POST", "/v1/machines"),
    ("GET", "/v1/machines"),
    ("GET", "/v1/machines/m"),
    ("PATCH", "/v1/machines/m"),
    ("DELETE", "/v1/machines/m"),
];

async fn call(api: &Api, method: &str, path: &str) -> ensemble_testkit::Answer {
    let request = api.request(method, path);
    Api::send(match method {
        "POST" => request.json(&draft("m")),
        "PATCH" => request.json(&json!({ "activity": {} })),
        _ => request,
    })
    .await
}

on_both_databases! {
    async fn every_route_refuses_invalid_tokens_with_the_same_401(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let mut callers = vec![("no token", fixture.anonymous())];
        for (what, token) in fixture.peers.issuer().bad_tokens(user) {
            callers.push((what, fixture.with_token(&token)));
        }
        for (what, caller) in &callers {
            for (method, path) in CALLS {
                let refused = call(caller, method, path).await;
                assert_eq!(refused.status, 401, "{what}: {method} {path}");
                refused.problem(401, "UNAUTHENTICATED");
                assert!(refused.header("www-authenticate").is_some());
            }
        }
        alice.get("/v1/machines/m").await.expect(200);
    }

    async fn machines_of_other_accounts_are_not_found(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice), (_, bob)) = (fixture.user(), fixture.user());
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        for path in ["/v1/machines/m", "/v1/machines/unknown", "/v1/machines/a%20b", "/v1/machines/%00"] {
            for method in ["GET", "PATCH", "DELETE"] {
                let answer = call(&bob, method, path).await;
                assert_eq!(answer.problem(404, "NOT_FOUND")["detail"], call(&bob, "GET", "/v1/machines/m").await.json()["detail"]);
            }
        }
        alice.get("/v1/machines/m").await.expect(200);
    }

    async fn a_machine_token_reads_and_changes_its_own_machine_only(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (user, alice) = fixture.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        alice.post("/v1/machines", &draft("n")).await.expect(201);
        let token = fixture.peers.issuer().machine(user, &"m".parse::<MachineId>().unwrap());
        let runner = fixture.with_token(&token);
        assert_eq!(runner.get("/v1/machines/m").await.expect(200)["id"], "m");
        assert_eq!(runner.patch("/v1/machines/m", &json!({ "activity": {} })).await.expect(200)["online"], true);
        for (method, path) in [
            ("POST", "/v1/machines"),
            ("GET", "/v1/machines"),
            ("DELETE", "/v1/machines/m"),
            ("GET", "/v1/machines/n"),
            ("PATCH", "/v1/machines/n"),
            ("GET", "/v1/machines/unknown"),
        ] {
            call(&runner, method, path).await.problem(403, "FORBIDDEN");
        }
    }

    async fn a_revoked_token_stops_working(on: Backend) {
        let fixture = Fixture::new(on).await;
        let user = fixture.peers.new_user();
        let (token, id) = fixture.peers.issuer().revocable(user);
        let alice = fixture.with_token(&token);
        alice.get("/v1/machines").await.expect(200);
        fixture.peers.issuer().revoke(id);
        eventually(SOON, async || alice.get("/v1/machines").await.status == 401).await;
    }
}
