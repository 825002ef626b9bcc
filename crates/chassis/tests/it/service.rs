//! How every service behaves at its listeners: credentials before bodies, one body for all errors, an orderly end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ed25519_dalek::{Signer, SigningKey};
use ensemble_chassis::auth::{AUDIENCE_MACHINE, AUDIENCE_USER, Claims, FixedKeys, ISSUER, sign};
use ensemble_chassis::{
    Access, Caller, Clock, Created, Drain, HandlerResult, Json, KeySet, KeySource, Listeners, Path, Routes, Running,
    Service, ServiceContext, StartError, State, Vars, Worker, get, post, start,
};
use ensemble_types::ids::{SessionId, TokenId, UserId};
use ensemble_types::text::Text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

struct Notes {
    keys: Arc<FixedKeys>,
    drain: Drain,
}

#[derive(Serialize, Deserialize, ToSchema)]
struct Note {
    text: Text<1, 10>,
    count: u32,
}

async fn write(caller: Caller, Json(note): Json<Note>) -> HandlerResult<Created<Value>> {
    let body = json!({ "by": caller.user, "text": note.text, "count": note.count });
    Ok(Created { location: "/notes".to_owned(), body })
}

async fn read(Path(id): Path<SessionId>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!({ "id": id })))
}

async fn wait(notes: State<Notes>) -> HandlerResult<Json<Value>> {
    notes.drain.closing().await;
    Ok(Json(json!({ "waited": true })))
}

impl Service for Notes {
    const NAME: &'static str = "notes";
    const DEFAULT_PORT: u16 = 1;
    type Config = Arc<FixedKeys>;

    fn configure(_: &mut Vars) -> Self::Config {
        let public = signing_key().verifying_key();
        Arc::new(FixedKeys::new(KeySet::new([("k1".to_owned(), public)], [])))
    }

    fn routes() -> Routes {
        Routes::new()
            .row(post("/v1/notes").access(Access::User).body::<Note>().response::<Note>(201).handler(write))
            .row(get("/v1/notes/{id}").access(Access::Public).response::<Note>(200).handler(read))
            .row(get("/v1/wait").access(Access::Public).response::<Note>(200).handler(wait))
    }

    async fn build(keys: Self::Config, context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        Ok((Arc::new(Self { keys, drain: context.drain }), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::clone(&self.keys) as Arc<dyn KeySource>
    }
}

fn signing_key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn token(change: impl FnOnce(&mut Claims), kid: &str, key: &SigningKey) -> String {
    ensemble_chassis::auth::install_provider();
    let now = Clock::system().now().unix_seconds();
    let mut claims = Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_USER.to_owned(),
        sub: UserId::generate(),
        jti: TokenId::generate(),
        iat: now,
        exp: now + 3600,
        scope: "user".to_owned(),
        machine_id: None,
        device: None,
    };
    change(&mut claims);
    sign(&claims, kid, key).unwrap()
}

/// The same token with one more claim.
fn with_claim(token: &str, name: &str, value: Value) -> String {
    use base64::Engine as _;
    let b64 = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut parts = token.split('.');
    let (header, claims) = (parts.next().unwrap(), parts.next().unwrap());
    let mut claims: Value = serde_json::from_slice(&b64.decode(claims).unwrap()).unwrap();
    claims[name] = value;
    let signed = format!("{header}.{}", b64.encode(claims.to_string()));
    let signature = signing_key().sign(signed.as_bytes());
    format!("{signed}.{}", b64.encode(signature.to_bytes()))
}

async fn notes() -> Running {
    notes_with(&[]).await
}

async fn notes_with(more: &[(&str, &str)]) -> Running {
    let mut vars =
        vec![("INTERNAL_TOKEN", "internal"), ("DRAIN_DELAY_MS", "0"), ("WORKERS", "1"), ("BODY_TIMEOUT_MS", "60000")];
    vars.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    vars.extend_from_slice(more);
    start::<Notes>(Vars::from_pairs(vars), Listeners::loopback().unwrap(), Clock::system()).await.unwrap()
}

async fn post_note(at: &Running, token: Option<&str>, body: &str) -> (u16, Value) {
    let mut request = reqwest::Client::new()
        .post(format!("{}/v1/notes", at.public_url()))
        .header("content-type", "application/json")
        .body(body.to_owned());
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn only_a_token_of_ours_is_accepted() {
    let notes = notes().await;
    let good = token(|_| (), "k1", &signing_key());
    let body = r#"{"text":"hello","count":1}"#;
    assert_eq!(post_note(&notes, Some(&good), body).await.0, 201);

    let foreign = SigningKey::from_bytes(&[8; 32]);
    let parts: Vec<&str> = good.split('.').collect();
    let none = {
        use base64::Engine as _;
        let b64 = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        format!("{}.{}.", b64.encode(r#"{"alg":"none","typ":"at+jwt","kid":"k1"}"#), parts[1])
    };
    let hs256 = {
        use base64::Engine as _;
        let b64 = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        format!("{}.{}.{}", b64.encode(r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#), parts[1], parts[2])
    };
    let bad = [
        ("no token", None),
        ("foreign key", Some(token(|_| (), "k1", &foreign))),
        ("unknown kid", Some(token(|_| (), "../k1", &signing_key()))),
        ("issuer", Some(token(|c| c.iss = "other".to_owned(), "k1", &signing_key()))),
        ("audience", Some(token(|c| c.aud = "other".to_owned(), "k1", &signing_key()))),
        ("audience of machines", Some(token(|c| c.aud = AUDIENCE_MACHINE.to_owned(), "k1", &signing_key()))),
        ("scope", Some(token(|c| c.scope = "root".to_owned(), "k1", &signing_key()))),
        ("expired", Some(token(|c| (c.iat, c.exp) = (c.iat - 7200, c.exp - 7200), "k1", &signing_key()))),
        ("from the future", Some(token(|c| (c.iat, c.exp) = (c.iat + 600, c.exp + 600), "k1", &signing_key()))),
        ("alg none", Some(none)),
        ("HS256", Some(hs256)),
        ("cut", Some(good[..good.len() - 1].to_owned())),
        ("too long", Some(format!("{good}{}", "A".repeat(5000)))),
    ];
    for (what, token) in bad {
        let (status, problem) = post_note(&notes, token.as_deref(), body).await;
        assert_eq!((status, &problem["code"]), (401, &json!("UNAUTHENTICATED")), "{what}: {problem}");
    }
    let machine = token(
        |c| {
            c.aud = AUDIENCE_MACHINE.to_owned();
            c.scope = "machine".to_owned();
            c.machine_id = Some("m1".parse().unwrap());
        },
        "k1",
        &signing_key(),
    );
    assert_eq!(post_note(&notes, Some(&machine), body).await.0, 403);
    assert!(notes.stop().await);
}

#[tokio::test]
async fn a_token_is_refused_before_its_time() {
    let notes = notes().await;
    let now = Clock::system().now().unix_seconds();
    let good = token(|_| (), "k1", &signing_key());
    let far = [json!(now + 600), json!(i64::MAX)];
    let malformed = [json!(null), json!("0"), json!(""), json!([0]), json!(0.5), json!(1e300), json!(true)];
    for (nbf, status) in [json!(now - 600), json!(now), json!(now + 15)]
        .map(|nbf| (nbf, 201))
        .into_iter()
        .chain(far.map(|nbf| (nbf, 401)))
        .chain(malformed.map(|nbf| (nbf, 401)))
    {
        let token = with_claim(&good, "nbf", nbf.clone());
        let (found, answer) = post_note(&notes, Some(&token), r#"{"text":"hello","count":1}"#).await;
        assert_eq!(found, status, "{nbf}: {answer}");
    }
    assert!(notes.stop().await);
}

#[test]
fn a_caller_can_be_checked_again_during_a_long_answer() {
    let now = Clock::system().now();
    let caller = Caller {
        user: UserId::generate(),
        machine: None,
        device: None,
        is_recovery: false,
        token: TokenId::generate(),
        expires_at: now.plus(Duration::from_secs(60)),
    };
    assert!(caller.check(&KeySet::default(), now).is_ok());
    assert!(caller.check(&KeySet::new([], [caller.token]), now).is_err(), "revoked");
    assert!(caller.check(&KeySet::default(), now.plus(Duration::from_secs(120))).is_err(), "expired");
}

#[tokio::test]
async fn bad_input_is_a_problem_that_names_the_place() {
    let notes = notes().await;
    let token = token(|_| (), "k1", &signing_key());
    for (body, status, pointer) in [
        (r#"{"text":"","count":1}"#, 400, "/text"),
        (r#"{"text":"01234567890","count":1}"#, 400, "/text"),
        (r#"{"text":"x","count":"1"}"#, 400, "/count"),
        (r#"{"text":"x","count":1.5}"#, 400, "/count"),
        (r#"{"text":"x"}"#, 400, "/count"),
        (r#"{"text":7,"count":1}"#, 400, "/text"),
        ("[]", 400, ""),
        (r#"["x",1]"#, 400, ""),
    ] {
        let (got, problem) = post_note(&notes, Some(&token), body).await;
        assert_eq!(got, status, "{body}: {problem}");
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
        }
        assert!(problem["requestId"].as_str().is_some_and(|id| !id.is_empty()));
    }
    let client = reqwest::Client::new();
    let url = format!("{}/v1/notes", notes.public_url());
    let wrong_type = client.post(&url).bearer_auth(&token).body("{}").send().await.unwrap();
    assert_eq!(wrong_type.status(), 415);
    let wrong_method = client.delete(&url).header("x-request-id", "mine-1").send().await.unwrap();
    assert_eq!(wrong_method.status(), 405);
    assert_eq!(wrong_method.headers()["allow"], "POST");
    assert_eq!(wrong_method.headers()["x-request-id"], "mine-1");
    let malformed = client.get(format!("{}/v1/notes/no-id", notes.public_url())).send().await.unwrap();
    assert_eq!(malformed.status(), 404);
    let nowhere: Value = client.get(format!("{}/v9", notes.public_url())).send().await.unwrap().json().await.unwrap();
    assert_eq!(nowhere["code"], "NOT_FOUND");
    assert!(notes.stop().await);
}

#[tokio::test]
async fn a_body_that_stalls_or_ends_early_is_given_up() {
    let (strict, notes) = (notes_with(&[("BODY_TIMEOUT_MS", "300")]).await, notes().await);
    let token = token(|_| (), "k1", &signing_key());
    let addr = notes.public_addr;
    let head = format!(
        "POST /v1/notes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"text\""
    );
    let (stalled, strict_addr) = (head.clone(), strict.public_addr);
    let slow = tokio::task::spawn_blocking(move || exchange(strict_addr, &stalled, false)).await.unwrap();
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    let short = tokio::task::spawn_blocking(move || exchange(addr, &head, true)).await.unwrap();
    assert!(short.is_empty() || short.starts_with("HTTP/1.1 400"), "{short}");
    assert!(strict.stop().await && notes.stop().await);
}

fn exchange(addr: std::net::SocketAddr, text: &str, half_close: bool) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    if half_close {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let mut answer = Vec::new();
    let mut part = [0_u8; 1024];
    while let Ok(read) = stream.read(&mut part) {
        if read == 0 {
            break;
        }
        answer.extend_from_slice(&part[..read]);
        if answer.windows(4).any(|w| w == b"\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn draining_answers_long_polls_and_then_ends() {
    let notes = notes().await;
    let waiting = tokio::spawn(reqwest::get(format!("{}/v1/wait", notes.public_url())));
    let ready = format!("{}/readyz", notes.internal_url());
    assert_eq!(reqwest::get(&ready).await.unwrap().status(), 200);
    let begun = async {
        while notes.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), begun).await.unwrap();
    let url = format!("{}/v1/notes/{}", notes.public_url(), SessionId::generate());
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 200);
    assert!(notes.stop().await);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["connection"], "close");
    assert!(reqwest::get(&url).await.is_err(), "nothing listens any more");
}

/// When a client of the tests below stops asking.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// An answer says `Connection: close`, as a load balancer stops when readiness fails.
    Draining,
    /// Connections are refused.
    Closed,
}

/// Asks again and again. Everything must be answered.
async fn ask(url: String, keeps: bool, until: Until, answered: Arc<AtomicUsize>) {
    let client = reqwest::Client::builder().pool_max_idle_per_host(usize::from(keeps)).build().unwrap();
    loop {
        match client.get(&url).send().await {
            Ok(answer) => {
                assert_eq!(answer.status(), 200);
                let drains = answer.headers().get("connection").is_some_and(|value| value == "close");
                answer.bytes().await.unwrap();
                answered.fetch_add(1, Ordering::SeqCst);
                if drains && until == Until::Draining {
                    return;
                }
            }
            Err(error) if error.is_connect() && until == Until::Closed => return,
            Err(error) => panic!("after {} answers: {error:?}", answered.load(Ordering::SeqCst)),
        }
    }
}

async fn end_under_load(until: Until, drain_delay: &str) {
    let notes = notes_with(&[("DRAIN_DELAY_MS", drain_delay)]).await;
    let url = format!("{}/v1/notes/{}", notes.public_url(), SessionId::generate());
    let answered = Arc::new(AtomicUsize::new(0));
    // Some keep their connections, and some come with a new one each time.
    let clients: Vec<_> =
        (0..12).map(|n| tokio::spawn(ask(url.clone(), n % 2 == 0, until, Arc::clone(&answered)))).collect();
    let busy = async {
        while answered.load(Ordering::SeqCst) < 500 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), busy).await.unwrap();
    assert!(notes.stop().await, "nothing had to be cut off");
    for client in clients {
        client.await.expect("every request was answered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_a_service_ends_under_load() {
    end_under_load(Until::Draining, "1000").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_until_the_listener_closes() {
    end_under_load(Until::Closed, "0").await;
}

#[tokio::test]
async fn the_internal_listener_requires_its_token() {
    let notes = notes().await;
    let url = format!("{}/rpc/ensemble.notes.v1.Notes/Get", notes.internal_url());
    let client = reqwest::Client::new();
    assert_eq!(client.post(&url).send().await.unwrap().status(), 401);
    assert_eq!(client.post(&url).bearer_auth("wrong").send().await.unwrap().status(), 401);
    assert_eq!(client.post(&url).bearer_auth("internal").send().await.unwrap().status(), 404);
    let metrics = reqwest::get(format!("{}/metrics", notes.internal_url())).await.unwrap().text().await.unwrap();
    let commit = option_env!("BUILD_COMMIT").unwrap_or_default();
    let build = metrics.lines().find(|line| line.starts_with("ensemble_build_info{")).unwrap();
    for (label, value) in [("commit", commit), ("service", "notes"), ("version", env!("CARGO_PKG_VERSION"))] {
        assert!(build.contains(&format!("{label}=\"{value}\"")), "{build}");
    }
    for (name, kind) in [
        ("process_cpu_seconds_total", "counter"),
        ("process_resident_memory_bytes", "gauge"),
        ("process_open_fds", "gauge"),
        ("process_max_fds", "gauge"),
        ("process_threads", "gauge"),
        ("process_start_time_seconds", "gauge"),
        ("spans_sent_total", "counter"),
        ("spans_lost_total", "counter"),
    ] {
        assert!(metrics.contains(&format!("# TYPE ensemble_{name} {kind}\n")), "{name}: {metrics}");
    }
    assert!(notes.stop().await);
}
