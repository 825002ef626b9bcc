//! How many requests a caller may send, what they count against, and the fields that say so.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::SigningKey;
use ensemble_chassis::Clock;
use ensemble_chassis::auth::{AUDIENCE_MACHINE, AUDIENCE_USER, Claims, ISSUER, sign};
use ensemble_types::ids::{TokenId, UserId};

use crate::Edge;
use crate::entrances::{NAME, of_up};
use crate::raw::Answer;
use crate::stub::{Reaction, Stub};

fn signing_key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

/// What the stub publishes as identity.
pub(crate) fn jwks() -> String {
    static KEYS: OnceLock<String> = OnceLock::new();
    let x = || URL_SAFE_NO_PAD.encode(signing_key().verifying_key().as_bytes());
    KEYS.get_or_init(|| {
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k1","use":"sig","alg":"EdDSA","x":"{}"}}]}}"#, x())
    })
    .clone()
}

fn token(user: UserId, machine: Option<&str>, key: &SigningKey) -> String {
    ensemble_chassis::auth::install_provider();
    let now = Clock::system().now().unix_seconds();
    let claims = Claims {
        iss: ISSUER.to_owned(),
        aud: if machine.is_some() { AUDIENCE_MACHINE } else { AUDIENCE_USER }.to_owned(),
        sub: user,
        jti: TokenId::generate(),
        iat: now,
        exp: now + 3600,
        scope: if machine.is_some() { "machine" } else { "user" }.to_owned(),
        machine_id: machine.map(|id| id.parse().unwrap()),
        device: None,
    };
    sign(&claims, "k1", key).unwrap()
}

async fn limited(stub: &Stub, variables: &[(&str, &str)]) -> Edge {
    let edge = Edge::with(stub, variables).await;
    // The keys are there when a token is counted as its account.
    let probe = token(UserId::generate(), Some("probe"), &signing_key());
    ensemble_testkit::eventually(crate::raw::SOON, async || {
        let answer = with(&edge, "GET /v1/account", &probe).await;
        answer.header("ratelimit-policy").unwrap_or_default().contains("machine")
    })
    .await;
    edge
}

async fn with(edge: &Edge, line: &str, token: &str) -> Answer {
    edge.ask(&format!("{line} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"))
        .await
}

#[tokio::test]
async fn an_account_has_its_share_whatever_its_tokens() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_ACCOUNT", "3")]).await;
    let (one, other) = (UserId::generate(), UserId::generate());
    for left in [2, 1, 0] {
        let answer = with(&edge, "GET /v1/sessions", &token(one, None, &signing_key())).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("ratelimit-policy"), Some("\"account\";q=3;w=60"));
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"account\";r={left};t=")), "{answer:?}");
    }
    let refused = with(&edge, "GET /v1/sessions", &token(one, None, &signing_key())).await;
    assert_eq!((refused.status, refused.code()), (429, "RATE_LIMITED".to_owned()));
    assert!(refused.text().contains("At most 3 requests of one account are allowed in a minute."), "{refused:?}");
    let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"account\";r=0;t="));
    assert_eq!(with(&edge, "GET /v1/sessions", &token(other, None, &signing_key())).await.status, 200);
}

#[tokio::test]
async fn looks_leave_the_share_of_the_account_for_commands() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_ACCOUNT", "1"), ("LIMIT_LOOK", "2")]).await;
    let user = token(UserId::generate(), None, &signing_key());
    for _ in 0..2 {
        assert_eq!(with(&edge, "POST /v1/looks", &user).await.status, 200);
    }
    let refused = with(&edge, "POST /v1/looks", &user).await;
    assert_eq!((refused.status, refused.code()), (429, "RATE_LIMITED".to_owned()));
    assert!(refused.text().contains("At most 2 looks of one account are allowed in a minute."), "{refused:?}");
    assert_eq!(with(&edge, "GET /v1/sessions", &user).await.status, 200);
}

#[tokio::test]
async fn tokens_that_are_not_ours_count_by_address() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_ADDRESS", "8"), ("LIMIT_ACCOUNT", "1")]).await;
    let foreign = SigningKey::from_bytes(&[8; 32]);
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(with(&edge, "GET /v1/sessions", &token(UserId::generate(), None, &foreign)).await.status);
        statuses.push(with(&edge, "GET /v1/sessions", "nonsense").await.status);
        statuses.push(edge.get("/v1/sessions").await.status);
    }
    assert_eq!(statuses.last(), Some(&429), "one share for all of them: {statuses:?}");
    assert!(statuses.iter().filter(|status| **status == 200).count() <= 9);
    assert_eq!(with(&edge, "GET /v1/sessions", &token(UserId::generate(), None, &signing_key())).await.status, 200);
}

#[tokio::test]
async fn a_runner_is_never_kept_from_its_heartbeat_or_finish() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_MACHINE", "2"), ("LIMIT_ADDRESS", "10")]).await;
    let runner = token(UserId::generate(), Some("m1"), &signing_key());
    for _ in 0..5 {
        assert_eq!(with(&edge, "POST /v1/orchestrator/leases/x/heartbeat", &runner).await.status, 200);
        assert_eq!(with(&edge, "POST /v1/orchestrator/leases/x/finish", &runner).await.status, 200);
    }
    assert_eq!(with(&edge, "POST /v1/orchestrator/leases/x/output", &runner).await.status, 429);
    let mut stranger = 0;
    for _ in 0..12 {
        stranger = with(&edge, "POST /v1/orchestrator/leases/x/heartbeat", "nonsense").await.status;
    }
    assert_eq!(stranger, 429, "the exception is for runners");
}

#[tokio::test]
async fn sign_in_and_public_links_have_strict_shares_of_their_own() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_SIGN_IN", "2"), ("LIMIT_PUBLIC_LINK", "2"), ("LIMIT_DEVICE_LINK", "2")]).await;
    let user = token(UserId::generate(), None, &signing_key());
    for (line, policy) in [
        ("POST /v1/auth/challenge", "sign-in"),
        ("GET /v1/public-sessions/t", "public-link"),
        ("POST /v1/auth/links/x/request", "device-link"),
    ] {
        for _ in 0..2 {
            let answer = with(&edge, line, &user).await;
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"{policy}\";q=2;w=60").as_str()));
        }
        assert_eq!(with(&edge, line, &user).await.status, 429, "{line}");
    }
    assert_eq!(edge.get("/share/t").await.status, 429, "the page counts with the link");
    assert_eq!(with(&edge, "POST /v1/auth", &user).await.status, 429, "one share for both steps");
    assert_eq!(with(&edge, "GET /v1/auth/tokens", &user).await.status, 200);
    for _ in 0..5 {
        assert_eq!(edge.get("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn zero_turns_a_limit_off() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("LIMIT_ADDRESS", "0")]).await;
    let answer = edge.get("/v1/sessions").await;
    assert_eq!((answer.status, answer.header("ratelimit"), answer.header("ratelimit-policy")), (200, None, None));
}

#[tokio::test]
async fn connections_are_bounded_for_each_address() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("MAX_CONNECTIONS_PER_ADDRESS", "2")]).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut raw = edge.connect().await;
        raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        assert_eq!(raw.answer().await.status, 200);
        held.push(raw);
    }
    let mut third = edge.connect().await;
    third.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    let refused = third.answer().await;
    assert_eq!(
        (refused.status, refused.code(), refused.header("connection")),
        (429, "RATE_LIMITED".to_owned(), Some("close"))
    );
    assert_eq!(refused.header("ratelimit-policy"), Some("\"connections\";q=2;qu=\"concurrent-requests\""));
    assert_eq!(stub.count(), 2);
    drop(third);
    held.pop();
    let deadline = std::time::Instant::now() + crate::raw::SOON;
    loop {
        let mut raw = edge.connect().await;
        raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n").await;
        if raw.answer().await.status == 200 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the place was not given back");
    }
}

const SIGN_IN: &str =
    "POST /v1/auth HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Internal-No-New-Account: 1\r\nContent-Length: 2\r\n\r\n{}";

/// As identity: it makes an account unless it must not.
pub(crate) async fn identity() -> Stub {
    Stub::start(|arrived| {
        let answer: &[u8] = if arrived.header("x-internal-no-new-account").is_some() {
            b"HTTP/1.1 429 Too Many Requests\r\nRateLimit: \"of the service\";r=1\r\ncontent-length: 2\r\n\r\n{}"
        } else {
            b"HTTP/1.1 200 OK\r\nx-internal-new-account: 1\r\ncontent-length: 2\r\n\r\n{}"
        };
        Reaction::Say(answer.to_vec())
    })
    .await
}

#[tokio::test]
async fn identity_learns_which_addresses_made_enough_accounts() {
    let stub = identity().await;
    let edge = Edge::with(&stub, &[("LIMIT_NEW_ACCOUNTS", "2")]).await;
    for status in [200, 200, 429] {
        let answer = edge.ask(SIGN_IN).await;
        assert_eq!((answer.status, answer.header("x-internal-new-account")), (status, None));
        let wait = stub.last().header("x-internal-no-new-account").map(|wait| wait.parse::<u32>().unwrap());
        if status == 200 {
            assert_eq!(wait, None, "the edge's field and not the client's");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"sign-in\";q=60;w=60"));
        } else {
            assert!(wait.is_some_and(|wait| (1_700..=1_801).contains(&wait)), "{wait:?}");
            assert_eq!(answer.header("ratelimit-policy"), Some("\"new-accounts\";q=2;w=3600"));
            assert_eq!(answer.header("ratelimit"), Some("\"new-accounts\";r=0;t=3600"));
        }
    }
}

#[tokio::test]
async fn new_accounts_of_the_only_computer_that_reaches_the_server_are_not_counted() {
    let stub = identity().await;
    let edge = of_up(&stub, &[("LIMIT_NEW_ACCOUNTS", "1"), ("ONLY_HERE", "true")]).await;
    for _ in 0..3 {
        assert_eq!(edge.ask(SIGN_IN).await.status, 200);
    }
    // A tunnel or a page of another name ends on loopback, too.
    let carried = SIGN_IN.replace("Content-Length", "X-Forwarded-For: 192.0.2.1\r\nContent-Length");
    let renamed = SIGN_IN.replace("127.0.0.1", NAME);
    assert_eq!(edge.ask(&carried).await.status, 200);
    for request in [&carried, &renamed] {
        assert_eq!(edge.ask(request).await.status, 429, "{request}");
    }
    assert_eq!(edge.ask(SIGN_IN).await.status, 200);
}

#[tokio::test]
async fn a_refusal_of_a_service_does_not_name_another_limit() {
    let stub =
        Stub::start(|_| Reaction::Say(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}".to_vec())).await;
    let edge = Edge::before(&stub).await;
    let answer = edge.get("/v1/orchestrator/runs").await;
    assert_eq!((answer.status, answer.header("ratelimit"), answer.header("ratelimit-policy")), (429, None, None));
}

#[tokio::test]
async fn sign_ins_at_once_make_no_more_accounts_than_one_after_the_other() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::with(&stub, &[("LIMIT_NEW_ACCOUNTS", "2")]).await;
    let mut asking = Vec::new();
    for asked in 1..=5 {
        let mut raw = edge.connect().await;
        raw.send("POST /v1/auth HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
        asking.push(raw);
        ensemble_testkit::eventually(crate::raw::SOON, async || stub.count() == asked).await;
    }
    let refused = stub.seen().iter().filter(|seen| seen.header("x-internal-no-new-account").is_some()).count();
    assert_eq!(refused, 3);
}

#[tokio::test]
async fn a_sign_in_that_makes_no_account_takes_no_place() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("LIMIT_NEW_ACCOUNTS", "1")]).await;
    for _ in 0..3 {
        edge.ask("POST /v1/auth HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
        assert_eq!(stub.last().header("x-internal-no-new-account"), None);
    }
}

#[tokio::test]
async fn a_path_counts_alike_however_it_is_written() {
    let stub = Stub::echo().await;
    let edge = limited(&stub, &[("LIMIT_SIGN_IN", "3"), ("LIMIT_PUBLIC_LINK", "3")]).await;
    for paths in [
        ["/v1/auth/challenge", "/v1/auth/%63hallenge", "/v1/%61uth/challenge", "/v1/auth/challeng%65"],
        ["/v1/public-sessions/t", "/v1/public%2Dsessions/t", "/v1/%70ublic-sessions/t", "/v1/public-session%73/t"],
    ] {
        for (at, path) in paths.into_iter().enumerate() {
            let answer = edge.get(path).await;
            assert_eq!(answer.status, if at < 3 { 200 } else { 429 }, "{path}");
        }
    }
}
