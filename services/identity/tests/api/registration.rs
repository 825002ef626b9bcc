//! Who may make an account: REGISTRATION=closed, and addresses that have made many.

use ensemble_identity::Identity;
use ensemble_testkit::{Api, on_both_databases, start_service};
use serde_json::json;

use crate::{Fixture, ORIGIN, new_key, signed};

on_both_databases! {
    async fn a_closed_server_signs_in_existing_accounts_only(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, _, user) = fixture.account().await;
        let mut vars = fixture.vars.clone();
        vars.push(("REGISTRATION".to_owned(), "closed".to_owned()));
        fixture.service.stop().await;
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

    async fn an_address_that_has_made_many_accounts_makes_no_more(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, _, user) = fixture.account().await;
        let sign_in = async |key: &ed25519_dalek::SigningKey| {
            let body = signed(key, ORIGIN, &fixture.challenge().await);
            let request = fixture.api.request("POST", "/v1/auth").header("x-internal-no-new-account", "360");
            Api::send(request.json(&body)).await
        };
        assert_eq!(sign_in(&key).await.expect(200)["userId"], user.as_str(), "an existing account signs in");
        let refused = sign_in(&new_key()).await;
        let problem = refused.problem(429, "RATE_LIMITED");
        assert!(problem["detail"].as_str().unwrap().contains("The next one is allowed in 360 s."), "{problem}");
        assert_eq!(refused.header("retry-after"), Some("360"));
        assert!(refused.header("x-internal-new-account").is_none());
    }
}
