//! Machine tokens: making, listing, revoking.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use ensemble_types::ids::TokenId;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{Fixture, base64url, claims, new_key, sign};

on_both_databases! {
    async fn a_machine_token_acts_for_its_machine_only(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice, id) = fixture.account().await;
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "laptop", "expiresInSeconds": 60 })).await;
        let made = made.expect(201);
        let claimed = claims(made["token"].as_str().unwrap());
        for (claim, value) in
            [("aud", "ensemble:machine"), ("scope", "machine"), ("machineId", "laptop"), ("sub", id.as_str())]
        {
            assert_eq!(claimed[claim], value);
        }
        assert_eq!(claimed["jti"], made["id"]);
        assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 60);
        let longest = alice.post("/v1/auth/tokens", &json!({ "machineId": "laptop" })).await.expect(201);
        let claimed = claims(longest["token"].as_str().unwrap());
        assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 7_776_000);
    }

    async fn tokens_are_listed_newest_first_without_their_text(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice, _), (_, bob, _)) = (fixture.account().await, fixture.account().await);
        let mut made = Vec::new();
        for n in 0..5 {
            let token = alice.post("/v1/auth/tokens", &json!({ "machineId": format!("m{n}") })).await.expect(201);
            made.insert(0, token["id"].clone());
        }
        let mut seen: Vec<Value> = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = alice.get(&format!("/v1/auth/tokens?limit=2{cursor}")).await;
            assert!(!page.text.contains("eyJ"), "a token is shown once");
            let page = page.expect(200);
            seen.extend(page["tokens"].as_array().unwrap().iter().map(|token| token["id"].clone()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, made);
        assert_eq!(bob.get("/v1/auth/tokens").await.expect(200), json!({ "tokens": [], "nextCursor": null }));
        for query in ["limit=0", "limit=501", "limit=x"] {
            assert_eq!(alice.get(&format!("/v1/auth/tokens?{query}")).await.bad_fields(), ["?limit"]);
        }
        alice.get("/v1/auth/tokens?cursor=bWFjaGluZXMKWzEsImEiXQ").await.problem(400, "INVALID_CURSOR");
    }

    async fn a_revoked_token_is_refused_and_no_longer_listed(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((_, alice, _), (_, bob, _)) = (fixture.account().await, fixture.account().await);
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        let path = format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap());
        let runner = fixture.api.with_token(made["token"].as_str().unwrap());
        runner.get("/v1/account").await.problem(403, "FORBIDDEN");
        bob.delete(&path).await.problem(404, "NOT_FOUND");
        runner.get("/v1/account").await.problem(403, "FORBIDDEN");
        assert_eq!(alice.delete(&path).await.expect(200), json!({ "success": true }));
        runner.get("/v1/account").await.problem(401, "UNAUTHENTICATED");
        assert_eq!(alice.get("/v1/auth/tokens").await.expect(200)["tokens"], json!([]));
        alice.delete(&path).await.expect(200);
        for unknown in [TokenId::generate().to_string(), "x".to_owned()] {
            alice.delete(&format!("/v1/auth/tokens/{unknown}")).await.problem(404, "NOT_FOUND");
        }
    }

    async fn a_user_signs_out_by_revoking_the_token_in_use(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, alice, _) = fixture.account().await;
        let token = fixture.sign_in(&key).await.expect(200)["token"].as_str().unwrap().to_owned();
        let second = fixture.api.with_token(&token);
        let id = claims(&token)["jti"].as_str().unwrap().to_owned();
        alice.delete(&format!("/v1/auth/tokens/{id}")).await.problem(404, "NOT_FOUND");
        second.delete(&format!("/v1/auth/tokens/{id}")).await.expect(200);
        second.get("/v1/account").await.problem(401, "UNAUTHENTICATED");
        alice.get("/v1/account").await.expect(200);
    }

    async fn invalid_requests_are_refused(on: Backend) {
        let fixture = Fixture::with(on, &[("MACHINE_TOKEN_LIMIT", "3")]).await;
        let (_, alice, _) = fixture.account().await;
        for seconds in [json!(0), json!(59), json!(7_776_001), json!(-1), json!("60"), json!(60.5), json!(1e300)] {
            let refused = alice.post("/v1/auth/tokens", &json!({ "machineId": "m", "expiresInSeconds": seconds })).await;
            assert_eq!(refused.bad_fields(), ["/expiresInSeconds"], "{seconds}: {}", refused.text);
        }
        for machine in [json!(""), json!("a b"), json!("x".repeat(65)), json!(7), json!(null)] {
            let refused = alice.post("/v1/auth/tokens", &json!({ "machineId": machine })).await;
            assert_eq!(refused.bad_fields(), ["/machineId"], "{machine}");
        }
        let make = async || alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await;
        for _ in 0..3 {
            let made = make().await.expect(201);
            alice.delete(&format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap())).await.expect(200);
        }
        make().await.problem(409, "CONFLICT");
    }

    async fn the_limit_holds_when_many_are_made_at_once(on: Backend) {
        let fixture = Fixture::with(on, &[("MACHINE_TOKEN_LIMIT", "3")]).await;
        let (_, alice, _) = fixture.account().await;
        let mut together = Vec::new();
        for _ in 0..24 {
            let alice = alice.clone();
            let body = json!({ "machineId": "m" });
            together.push(tokio::spawn(async move { alice.post("/v1/auth/tokens", &body).await.status }));
        }
        let mut made = 0;
        for one in together {
            match one.await.unwrap() {
                201 => made += 1,
                status => assert_eq!(status, 409),
            }
        }
        assert_eq!(made, 3);
    }

    async fn a_forged_cursor_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, alice, _) = fixture.account().await;
        let id = "01a1ffd5-0000-7000-8000-000000000000";
        for written in [
            format!("machines\n[0,\"{id}\"]"),
            format!("machine-tokens\n[9223372036854775807,\"{id}\"]"),
            format!("machine-tokens\n[-9223372036854775808,\"{id}\"]"),
            format!("machine-tokens\n[1e400,\"{id}\"]"),
            "machine-tokens\n[0,\"x' or 1=1\"]".to_owned(),
            "machine-tokens\n[]".to_owned(),
            "machine-tokens".to_owned(),
        ] {
            let cursor = base64url(written.as_bytes());
            alice.get(&format!("/v1/auth/tokens?cursor={cursor}")).await.problem(400, "INVALID_CURSOR");
        }
    }

    async fn expired_tokens_are_deleted(on: Backend) {
        let settings = [("MACHINE_TOKEN_MAX_SECONDS", "1"), ("SWEEP_MS", "50"), ("MACHINE_TOKEN_LIMIT", "1")];
        let fixture = Fixture::with(on, &settings).await;
        let (_, alice, _) = fixture.account().await;
        let make = async || alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.status;
        assert_eq!(make().await, 201);
        // On a slow machine the first one may have expired.
        eventually(SOON, async || make().await == 409).await;
        eventually(SOON, async || make().await == 201).await;
    }
}

on_both_databases! {
    async fn a_changed_token_is_refused(on: Backend) {
        let fixture = Fixture::new(on).await;
        let token = fixture.sign_in(&new_key()).await.expect(200)["token"].as_str().unwrap().to_owned();
        let [head, payload, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
        let kid = header["kid"].as_str().unwrap();
        let jwks = fixture.api.get("/.well-known/jwks.json").await.expect(200);
        let x = jwks["keys"][0]["x"].as_str().unwrap().to_owned();
        let public = URL_SAFE_NO_PAD.decode(&x).unwrap();
        let own = new_key();
        let head_of = |change: Value| {
            let mut changed = header.clone();
            for (name, value) in change.as_object().unwrap() {
                changed[name] = value.clone();
            }
            base64url(&serde_json::to_vec(&changed).unwrap())
        };
        let payload_of = |name: &str, value: Value| {
            let mut changed = claims(&token);
            changed[name] = value;
            base64url(&serde_json::to_vec(&changed).unwrap())
        };
        let hs256 = |secret: &[u8]| {
            let signed = format!("{}.{payload}", head_of(json!({ "alg": "HS256" })));
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
            mac.update(signed.as_bytes());
            format!("{signed}.{}", base64url(&mac.finalize().into_bytes()))
        };
        let resigned = |head: String, payload: &str| format!("{head}.{payload}.{}", sign(&own, &format!("{head}.{payload}")));
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(own.verifying_key().as_bytes()) });
        let forged = [
            ("unsigned", format!("{head}.{payload}.")),
            ("alg none", format!("{}.{payload}.", head_of(json!({ "alg": "none" })))),
            ("alg none, signed", format!("{}.{payload}.{signature}", head_of(json!({ "alg": "none" })))),
            ("HS256 with the public key", hs256(&public)),
            ("HS256 with the public key in base64", hs256(x.as_bytes())),
            ("HS256 with nothing", hs256(b"")),
            ("another signer", resigned(head.to_owned(), payload)),
            ("another signer that brings its key", resigned(head_of(json!({ "jwk": jwk })), payload)),
            ("another kid", format!("{}.{payload}.{signature}", head_of(json!({ "kid": "other" })))),
            ("a kid that is a path", resigned(head_of(json!({ "kid": "../../etc/passwd" })), payload)),
            ("no kid", format!("{}.{payload}.{signature}", head_of(json!({ "kid": null })))),
            ("another user", format!("{head}.{}.{signature}", payload_of("sub", json!(TokenId::generate())))),
            ("a longer life", format!("{head}.{}.{signature}", payload_of("exp", json!(4_000_000_000_i64)))),
            ("another audience", format!("{head}.{}.{signature}", payload_of("aud", json!("ensemble:machine")))),
            ("a signature cut short", token[..token.len() - 4].to_owned()),
            ("twice", format!("{token}.{token}")),
        ];
        assert!(!kid.is_empty());
        for (what, forged) in forged {
            fixture.api.with_token(&forged).get("/v1/account").await.problem(401, "UNAUTHENTICATED");
            assert_ne!(forged, token, "{what}");
        }
        fixture.api.with_token(&token).get("/v1/account").await.expect(200);
    }
}

/// On PostgreSQL there may be several replicas. Each is notified of a revocation at once.
#[test]
fn a_revocation_reaches_the_other_replica() {
    ensemble_testkit::run(async {
        let settings = [("KEY_RING_REFRESH_MS", "60000")];
        let fixture = Fixture::with(ensemble_testkit::Backend::Postgres, &settings).await;
        let replica = fixture.replica().await;
        let (_, alice, _) = fixture.account().await;
        let made = alice.post("/v1/auth/tokens", &json!({ "machineId": "m" })).await.expect(201);
        let elsewhere = Api::new(&replica.public_url()).with_token(made["token"].as_str().unwrap());
        elsewhere.get("/v1/account").await.problem(403, "FORBIDDEN");
        alice.delete(&format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap())).await.expect(200);
        eventually(SOON, async || elsewhere.get("/v1/account").await.status == 401).await;
    });
}
