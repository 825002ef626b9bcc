//! POST /v1/auth/challenge and POST /v1/auth.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use ensemble_testkit::{Api, SOON, eventually, on_both_databases};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use crate::{Fixture, ORIGIN, base64url, claims, new_key, sign, signed};

on_both_databases! {
    async fn the_first_sign_in_makes_the_account_and_the_next_finds_it(on: Backend) {
        let fixture = Fixture::new(on).await;
        let key = new_key();
        let first = fixture.sign_in(&key).await;
        assert_eq!(first.header("x-internal-new-account"), Some("1"));
        assert_eq!(first.header("cache-control"), Some("no-store, no-transform"));
        let first = first.expect(200);
        assert_eq!(first["success"], true);
        let again = fixture.sign_in(&key).await;
        assert_eq!(again.header("x-internal-new-account"), None);
        let again = again.expect(200);
        assert_eq!(again["userId"], first["userId"]);
        assert_ne!(again["token"], first["token"]);
        assert_ne!(fixture.sign_in(&new_key()).await.expect(200)["userId"], first["userId"]);

        let api = fixture.api.with_token(first["token"].as_str().unwrap());
        let account = api.get("/v1/account").await.expect(200);
        assert_eq!(account["id"], first["userId"]);
        assert_eq!(account["publicKey"], base64url(key.verifying_key().as_bytes()));
    }

    async fn a_token_has_the_required_claims_and_lives_an_hour(on: Backend) {
        let fixture = Fixture::new(on).await;
        let answer = fixture.sign_in(&new_key()).await.expect(200);
        let token = answer["token"].as_str().unwrap();
        let claimed = claims(token);
        for (claim, value) in [("iss", "ensemble"), ("aud", "ensemble:user"), ("scope", "user")] {
            assert_eq!(claimed[claim], value);
        }
        assert_eq!(claimed["sub"], answer["userId"]);
        assert!(claimed["jti"].is_string());
        assert_eq!(claimed["exp"].as_i64().unwrap() - claimed["iat"].as_i64().unwrap(), 3_600);
        let expires: Timestamp = answer["expiresAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(expires.unix_seconds(), claimed["exp"].as_i64().unwrap());
    }

    async fn a_challenge_is_32_bytes_and_never_the_same(on: Backend) {
        let fixture = Fixture::new(on).await;
        let first = fixture.api.post("/v1/auth/challenge", &json!({})).await.expect(200);
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(first["challenge"].as_str().unwrap());
        assert_eq!(bytes.unwrap().len(), 32);
        assert!(first["expiresAt"].is_string());
        assert_ne!(fixture.challenge().await, fixture.challenge().await);
        // A client that called another address can say which ones the server accepts.
        assert_eq!(first["publicOrigins"], json!(["https://api.example.com", "http://127.0.0.1:8080"]));
        let bare = fixture.api.request("POST", "/v1/auth/challenge");
        assert_eq!(ensemble_testkit::Api::send(bare).await.status, 200, "it needs no body");
    }

    async fn a_sign_in_cannot_be_repeated(on: Backend) {
        let fixture = Fixture::new(on).await;
        let key = new_key();
        let body = signed(&key, ORIGIN, &fixture.challenge().await);
        fixture.api.post("/v1/auth", &body).await.expect(200);
        fixture.api.post("/v1/auth", &body).await.problem(401, "UNAUTHENTICATED");
        let again = signed(&key, ORIGIN, body["challenge"].as_str().unwrap());
        fixture.api.post("/v1/auth", &again).await.problem(401, "UNAUTHENTICATED");
    }

    async fn of_many_sign_ins_with_one_challenge_one_succeeds(on: Backend) {
        let fixture = Fixture::new(on).await;
        for _ in 0..3 {
            let challenge = fixture.challenge().await;
            let mut together = Vec::new();
            for _ in 0..16 {
                let (api, body) = (fixture.api.clone(), signed(&new_key(), ORIGIN, &challenge));
                together.push(tokio::spawn(async move { api.post("/v1/auth", &body).await.status }));
            }
            let mut signed_in_count = 0;
            for one in together {
                match one.await.unwrap() {
                    200 => signed_in_count += 1,
                    status => assert_eq!(status, 401),
                }
            }
            assert_eq!(signed_in_count, 1);
        }
    }

    async fn concurrent_sign_ins_with_one_key_make_one_account(on: Backend) {
        let fixture = Fixture::new(on).await;
        let key = new_key();
        let mut together = Vec::new();
        for _ in 0..12 {
            let (api, body) = (fixture.api.clone(), signed(&key, ORIGIN, &fixture.challenge().await));
            together.push(tokio::spawn(async move { api.post("/v1/auth", &body).await }));
        }
        let (mut users, mut new) = (Vec::new(), 0);
        for one in together {
            let answer = one.await.unwrap();
            new += usize::from(answer.header("x-internal-new-account").is_some());
            users.push(answer.expect(200)["userId"].to_string());
        }
        users.dedup();
        assert_eq!((users.len(), new), (1, 1));
    }

    async fn every_invalid_proof_gets_the_same_401(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (key, other) = (new_key(), new_key());
        let public = base64url(key.verifying_key().as_bytes());
        let challenge = fixture.challenge().await;
        let mut refused: Vec<(&str, Value)> = Vec::new();
        let mut bad = |what, body| refused.push((what, body));
        bad("an origin that is not ours", signed(&key, "https://evil.example.com", &fixture.challenge().await));
        bad("another scheme", signed(&key, "http://api.example.com", &fixture.challenge().await));
        bad("another port", signed(&key, "https://api.example.com:8443", &fixture.challenge().await));
        bad("no origin at all", signed(&key, "api.example.com", &fixture.challenge().await));
        let relayed = signed(&key, "https://evil.example.com", &challenge);
        bad("signed for another origin, sent with ours", with(&relayed, "origin", ORIGIN));
        let mine = signed(&key, ORIGIN, &fixture.challenge().await);
        bad("another account's key", with(&mine, "publicKey", &base64url(other.verifying_key().as_bytes())));
        let unsigned = signed(&key, ORIGIN, &fixture.challenge().await);
        bad("no signature", with(&unsigned, "signature", &base64url(&[0; 64])));
        bad("a challenge that was not given", signed(&key, ORIGIN, &base64url(&[9; 32])));
        bad("a challenge that cannot be one", signed(&key, ORIGIN, "x"));
        bad("a challenge in another form", signed(&key, ORIGIN, &format!("{}=", fixture.challenge().await)));
        let text = fixture.challenge().await;
        let bare = json!({ "publicKey": public, "challenge": text, "signature": sign(&key, &text), "origin": ORIGIN });
        bad("the challenge signed alone", bare);
        // A key of order one: its signatures fit any message unless they are checked strictly.
        let weak = json!({
            "publicKey": base64url(&low_order()), "challenge": fixture.challenge().await, "origin": ORIGIN,
            "signature": base64url(&[low_order().as_slice(), &[0; 32]].concat()),
        });
        bad("a weak key", weak);
        let mut bodies = Vec::new();
        for (what, body) in refused {
            let mut problem = fixture.api.post("/v1/auth", &body).await.problem(401, "UNAUTHENTICATED");
            problem["requestId"] = Value::Null;
            bodies.push((what, problem));
        }
        for (what, problem) in &bodies {
            assert_eq!(problem, &bodies[0].1, "{what}");
        }
        let burnt = fixture.api.post("/v1/auth", &signed(&key, ORIGIN, text.as_str())).await;
        assert_eq!(burnt.status, 401, "a challenge is spent by a bad proof, too");
    }

    async fn base64_of_any_kind_is_read(on: Backend) {
        let fixture = Fixture::new(on).await;
        let key = new_key();
        for alphabet in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE] {
            let good = signed(&key, ORIGIN, &fixture.challenge().await);
            let decode = |field: &str| {
                let text = good[field].as_str().unwrap();
                base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()
            };
            let public = with(&good, "publicKey", &alphabet.encode(decode("publicKey")));
            let both = with(&public, "signature", &alphabet.encode(decode("signature")));
            fixture.api.post("/v1/auth", &both).await.expect(200);
        }
        let challenge = fixture.challenge().await;
        fixture.api.post("/v1/auth", &signed(&key, "HTTPS://API.example.com:443", &challenge)).await.expect(200);
        let challenge = fixture.challenge().await;
        fixture.api.post("/v1/auth", &signed(&key, "http://127.0.0.1:8080", &challenge)).await.expect(200);
    }

    async fn a_malformed_body_names_the_field(on: Backend) {
        let fixture = Fixture::new(on).await;
        let good = signed(&new_key(), ORIGIN, &fixture.challenge().await);
        for (field, value) in [
            ("publicKey", json!("x")), ("publicKey", json!("")), ("publicKey", json!(7)),
            ("publicKey", json!(base64url(&[1; 31]))), ("publicKey", json!("x".repeat(129))),
            ("signature", json!("")), ("signature", json!(base64url(&[1; 63]))), ("signature", json!(null)),
            ("challenge", json!("")), ("challenge", json!({})), ("challenge", json!("x".repeat(257))),
            ("origin", json!("")), ("origin", json!(1)), ("origin", json!("x".repeat(513))),
        ] {
            let mut body = good.clone();
            body[field] = value;
            let refused = fixture.api.post("/v1/auth", &body).await;
            assert_eq!(refused.bad_fields(), [format!("/{field}")], "{}", refused.text);
        }
        fixture.api.post("/v1/auth", &good).await.expect(200);
    }

    async fn a_challenge_expires(on: Backend) {
        let fixture = Fixture::with(on, &[("CHALLENGE_MS", "100"), ("SWEEP_MS", "3600000")]).await;
        let (key, challenge) = (new_key(), fixture.challenge().await);
        let later = tokio::time::Instant::now() + std::time::Duration::from_millis(150);
        eventually(SOON, async || tokio::time::Instant::now() > later).await;
        fixture.api.post("/v1/auth", &signed(&key, ORIGIN, &challenge)).await.problem(401, "UNAUTHENTICATED");
    }

    async fn the_number_of_open_challenges_is_limited(on: Backend) {
        let fixture = Fixture::with(on, &[("CHALLENGE_MS", "1500"), ("CHALLENGE_LIMIT", "5"), ("SWEEP_MS", "50")]).await;
        let mut refused = None;
        for _ in 0..50 {
            let answer = fixture.api.post("/v1/auth/challenge", &json!({})).await;
            if answer.status != 200 {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("fifty are more than five");
        refused.problem(503, "UNAVAILABLE");
        assert!(refused.header("retry-after").is_some());
        eventually(SOON, async || fixture.api.post("/v1/auth/challenge", &json!({})).await.status == 200).await;
    }

    async fn callers_of_a_proxy_leave_half_of_the_challenges_to_the_others(on: Backend) {
        let fixture = Fixture::with(on, &[("CHALLENGE_LIMIT", "6"), ("SWEEP_MS", "3600000")]).await;
        let ask = async |entrance: &'static str| {
            let request = fixture.api.request("POST", "/v1/auth/challenge").header("x-internal-entrance", entrance);
            Api::send(request.json(&json!({}))).await
        };
        for _ in 0..3 {
            assert_eq!(ask("proxy").await.status, 200);
        }
        ask("proxy").await.problem(503, "UNAVAILABLE");
        for _ in 0..3 {
            assert_eq!(ask("local").await.status, 200);
        }
        ask("local").await.problem(503, "UNAVAILABLE");
    }
}

fn with(body: &Value, field: &str, value: &str) -> Value {
    let mut changed = body.clone();
    changed[field] = json!(value);
    changed
}

/// The neutral element of the curve (RFC 8032, section 5.1.2).
fn low_order() -> [u8; 32] {
    let mut point = [0; 32];
    point[0] = 1;
    point
}
