//! Signing in: bound to the origin, once for many calls, and again when a token is refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ed25519_dalek::{Signature, VerifyingKey};
use ensemble_client::{Client, Credential, Error};
use ensemble_protocol::AccountKey;
use ensemble_types::problem::Code;
use serde_json::Value;

use crate::scripted::{Reply, Request, Server, json, problem, quick};

const ACCOUNT: &str = r#"{"id":"01890a5d-ac96-774b-bcce-b302099a8057","publicKey":"x","contentPublicKey":null,
    "contentPublicKeySignature":null,"displayName":null,"createdAt":"2026-03-26T00:00:00.000Z"}"#;

/// Accepts every sign-in and returns the tokens `t1`, `t2`, …. `account` answers all other requests.
fn identity(account: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> impl Fn(&Request, usize) -> Reply {
    let given = AtomicUsize::new(0);
    move |request, _| match request.path.as_str() {
        "/v1/auth/challenge" => json(200, r#"{"challenge":"abc","expiresAt":"2026-03-26T00:01:00.000Z"}"#),
        "/v1/auth" => {
            let number = given.fetch_add(1, Ordering::SeqCst) + 1;
            let body = format!(
                r#"{{"success":true,"token":"t{number}","userId":"01890a5d-ac96-774b-bcce-b302099a8057",
                    "expiresAt":"2026-03-26T01:00:00.000Z"}}"#
            );
            Reply::With(200, "application/json", ("date", "Thu, 26 Mar 2026 00:00:00 GMT"), body)
        }
        _ => account(request),
    }
}

fn client(server: &Server, key: &AccountKey) -> Client {
    let builder = Client::builder(&server.url).retry(quick());
    builder.credential(Credential::Account(key.clone())).build().unwrap()
}

fn bearer(request: &Request) -> &str {
    request.headers.get("authorization").map_or("", |value| value.trim_start_matches("Bearer "))
}

#[tokio::test]
async fn the_signature_covers_the_dialled_origin_the_key_and_the_challenge() {
    let server = Server::start(identity(|_| json(200, ACCOUNT))).await;
    let key = AccountKey::generate();
    client(&server, &key).account().await.unwrap();
    let seen = server.seen();
    let sent = seen.iter().find(|request| request.path == "/v1/auth").unwrap();
    assert!(!sent.headers.contains_key("authorization"));
    let sent: Value = serde_json::from_str(&sent.body).unwrap();
    assert_eq!(sent["origin"], server.url);
    let bytes = |field: &str| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(sent[field].as_str().unwrap()).unwrap()
    };
    let public = VerifyingKey::from_bytes(&bytes("publicKey").try_into().unwrap()).unwrap();
    let signature = Signature::from_bytes(&bytes("signature").try_into().unwrap());
    let text = format!("ensemble-auth-v1\n{}\n{}\nabc", server.url, key.public_key());
    public.verify_strict(text.as_bytes(), &signature).unwrap();
}

#[tokio::test]
async fn one_sign_in_serves_many_calls_at_once() {
    let server = Server::start(identity(|_| json(200, ACCOUNT))).await;
    let client = client(&server, &AccountKey::generate());
    let calls = (0..20).map(|_| client.account());
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    let seen = server.seen();
    assert_eq!(seen.iter().filter(|request| request.path == "/v1/auth").count(), 1);
    assert!(seen.iter().filter(|request| request.path == "/v1/account").all(|request| bearer(request) == "t1"));
}

#[tokio::test]
async fn a_call_whose_caller_waits_for_something_else_keeps_no_other_from_signing_in() {
    let server = Server::start(identity(|_| json(200, ACCOUNT))).await;
    let client = client(&server, &AccountKey::generate());
    let mut first = Box::pin(client.account());
    while server.seen().is_empty() {
        assert!(futures_util::poll!(&mut first).is_pending());
        tokio::task::yield_now().await;
    }
    // The first one is not polled now.
    tokio::time::timeout(Duration::from_secs(60), client.account()).await.expect("it waits for the first one").unwrap();
    first.await.unwrap();
    assert_eq!(server.seen().iter().filter(|request| request.path == "/v1/auth").count(), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let server = Server::start(identity(|request| match bearer(request) {
        "t2" => json(200, ACCOUNT),
        _ => problem(401, "UNAUTHENTICATED"),
    }))
    .await;
    let client = client(&server, &AccountKey::generate());
    client.account().await.unwrap();
    client.account().await.unwrap();
    assert_eq!(server.seen().iter().filter(|request| request.path == "/v1/auth").count(), 2);

    let server = Server::start(identity(|_| problem(401, "UNAUTHENTICATED"))).await;
    let error = self::client(&server, &AccountKey::generate()).account().await.unwrap_err();
    assert!(error.is(Code::Unauthenticated));
    assert_eq!(server.seen().iter().filter(|request| request.path == "/v1/account").count(), 2);
}

#[tokio::test]
async fn a_lost_sign_in_requests_another_challenge() {
    let lost = AtomicUsize::new(0);
    let identity = identity(|_| json(200, ACCOUNT));
    let server = Server::start(move |request, before| {
        if request.path == "/v1/auth" && lost.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::Nothing;
        }
        identity(request, before)
    })
    .await;
    client(&server, &AccountKey::generate()).account().await.unwrap();
    let paths: Vec<_> = server.seen().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/auth/challenge", "/v1/auth", "/v1/auth/challenge", "/v1/auth", "/v1/account"]);
}

#[tokio::test]
async fn a_sign_in_at_an_address_that_the_server_does_not_accept_names_the_cause() {
    let challenge = |origins: &str| {
        json(200, format!(r#"{{"challenge":"abc","expiresAt":"2026-03-26T00:01:00.000Z","publicOrigins":{origins}}}"#))
    };
    let refusing = |origins: &'static str| {
        Server::start(move |request, _| match request.path.as_str() {
            "/v1/auth/challenge" => challenge(origins),
            _ => problem(401, "UNAUTHENTICATED"),
        })
    };
    let server = refusing(r#"["https://a.example","http://b.example"]"#).await;
    let error = client(&server, &AccountKey::generate()).sign_in().await.unwrap_err();
    let Error::WrongOrigin { origin, accepted } = error else { panic!("{error:?}") };
    assert_eq!(
        (origin, accepted),
        (server.url.clone(), vec!["https://a.example".into(), "http://b.example".to_owned()])
    );

    // A server that does not say so, or that accepts the origin, has another reason.
    let silent = refusing("[]").await;
    let error = client(&silent, &AccountKey::generate()).sign_in().await.unwrap_err();
    assert!(error.is(Code::Unauthenticated), "{error:?}");
}
