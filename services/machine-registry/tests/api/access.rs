//! Who may do what.

use ensemble_testkit::{Api, on_both_databases};
use ensemble_types::ids::MachineId;
use serde_json::json;

use crate::{Stage, draft};

/// Every call, as (method, path); bodies are good ones, so that nothing but the caller can be wrong.
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
    async fn without_a_good_token_every_call_is_the_same_401(on: Backend) {
        let stage = Stage::new(on).await;
        let (user, alice) = stage.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        let mut callers = vec![("nobody", stage.anonymous())];
        for (what, token) in stage.peers.issuer().bad_tokens(user) {
            callers.push((what, stage.bearing(&token)));
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

    async fn what_is_not_yours_does_not_exist(on: Backend) {
        let stage = Stage::new(on).await;
        let ((_, alice), (_, bob)) = (stage.user(), stage.user());
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
        let stage = Stage::new(on).await;
        let (user, alice) = stage.user();
        alice.post("/v1/machines", &draft("m")).await.expect(201);
        alice.post("/v1/machines", &draft("n")).await.expect(201);
        let token = stage.peers.issuer().machine(user, &"m".parse::<MachineId>().unwrap());
        let runner = stage.bearing(&token);
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
        let stage = Stage::new(on).await;
        let user = stage.peers.new_user();
        let (token, id) = stage.peers.issuer().revocable(user);
        let alice = stage.bearing(&token);
        alice.get("/v1/machines").await.expect(200);
        stage.peers.issuer().revoke(id);
        ensemble_testkit::eventually(crate::TIMEOUT, async || alice.get("/v1/machines").await.status == 401).await;
    }
}
