//! REGISTRATION=closed.

use ensemble_identity::Identity;
use ensemble_testkit::{Api, on_both_databases, start_service};
use serde_json::json;

use crate::{ORIGIN, Stage, new_key, signed};

on_both_databases! {
    async fn a_closed_server_lets_in_whom_it_knows(on: Backend) {
        let stage = Stage::new(on).await;
        let (key, _, user) = stage.account().await;
        let mut vars = stage.vars.clone();
        vars.push(("REGISTRATION".to_owned(), "closed".to_owned()));
        stage.service.stop().await;
        let closed = start_service::<Identity>(vars).await;
        let api = Api::new(&closed.public_url());
        let challenge = async || {
            let answer = api.post("/v1/auth/challenge", &json!({})).await.expect(200);
            answer["challenge"].as_str().unwrap().to_owned()
        };
        let known = api.post("/v1/auth", &signed(&key, ORIGIN, &challenge().await)).await.expect(200);
        assert_eq!(known["userId"], user.as_str());
        let (stranger, spent) = (new_key(), challenge().await);
        api.post("/v1/auth", &signed(&stranger, ORIGIN, &spent)).await.problem(403, "REGISTRATION_CLOSED");
        api.post("/v1/auth", &signed(&stranger, ORIGIN, &spent)).await.problem(401, "UNAUTHENTICATED");
        let forged = signed(&stranger, "https://evil.example.com", &challenge().await);
        api.post("/v1/auth", &forged).await.problem(401, "UNAUTHENTICATED");
    }
}
