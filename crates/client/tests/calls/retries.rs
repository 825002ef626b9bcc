//! Which failed calls are repeated, which are not, and how problems are reported.

use std::time::{Duration, Instant};

use ensemble_client::{Client, Error, HeldLease, NoConnection, Retry};
use ensemble_types::ids::{LeaseId, MachineId, RunId, SessionId};
use ensemble_types::leases::{LeaseHeartbeat, LeaseRequest};
use ensemble_types::links::CreateLink;
use ensemble_types::machines::RegisterMachine;
use ensemble_types::problem::{Code, Problem};
use ensemble_types::runs::Provider;
use ensemble_types::text::Blob;
use futures_util::TryStreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scripted::{Reply, Server, json, problem, problem_body, quick};

const MACHINE: &str = r#"{"id":"m","ref":"j6gkbf94","metadata":"x","metadataVersion":1,"encryptionKey":"x","daemonState":null,
    "daemonStateVersion":0,"activity":null,"online":false,"lastActiveAt":null,
    "createdAt":"2026-03-26T00:00:00.000Z","updatedAt":"2026-03-26T00:00:00.000Z"}"#;

fn machine_id() -> MachineId {
    "m".parse().unwrap()
}

#[tokio::test]
async fn a_read_is_retried_until_the_service_is_back() {
    let server = Server::start(|_, before| match before {
        0 => problem(503, "UNAVAILABLE"),
        1 => Reply::Nothing,
        2 => Reply::Broken("application/json", "{".to_owned()),
        3 => Reply::Json(502, "text/html", "<h1>bad gateway</h1>".to_owned()),
        _ => json(200, MACHINE),
    })
    .await;
    let machine = server.client().machine(&machine_id()).await.unwrap();
    assert_eq!((machine.id, server.seen().len()), (machine_id(), 5));
}

#[tokio::test]
async fn a_creation_is_repeated_under_the_same_key() {
    let server = Server::start(|_, before| if before < 2 { Reply::Nothing } else { json(201, MACHINE) }).await;
    let request = RegisterMachine {
        metadata: Blob::new("x").unwrap(),
        encryption_key: Blob::new("x").unwrap(),
        content_epoch: None,
        id: None,
    };
    let (_, created) = server.client().register_machine(&request).await.unwrap();
    assert!(created);
    let keys: Vec<_> = server.seen().iter().map(|request| request.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0] && (16..=128).contains(&key.len())), "{keys:?}");
}

#[tokio::test]
async fn a_call_that_is_not_idempotent_is_sent_once() {
    let server = Server::start(|_, _| problem(503, "UNAVAILABLE")).await;
    let client = server.client();
    let error = client.retry_run(RunId::generate()).await.unwrap_err();
    assert!(error.is(Code::Unavailable));
    let error = client.create_link(SessionId::generate(), &CreateLink::default()).await.map(drop).unwrap_err();
    assert!(error.is(Code::Unavailable));
    let wants = LeaseRequest {
        machine_id: machine_id(),
        providers: vec![Provider::Codex],
        capacity: 1,
        slots: None,
        wait_ms: 0,
        taken_orders: Vec::new(),
    };
    assert!(client.lease(&wants).await.is_err());
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_rate_limited_call_waits_for_retry_after() {
    let server = Server::start(|_, before| match before {
        0 => {
            let body = problem_body(429, "RATE_LIMITED");
            Reply::With(429, "application/problem+json", ("retry-after", "1"), body)
        }
        _ => json(200, r#"{"leases":[]}"#),
    })
    .await;
    let began = Instant::now();
    let wants = LeaseRequest {
        machine_id: machine_id(),
        providers: vec![Provider::Codex],
        capacity: 1,
        slots: None,
        wait_ms: 0,
        taken_orders: Vec::new(),
    };
    assert!(server.client().lease(&wants).await.unwrap().leases.is_empty());
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn an_unreachable_server_is_reported_within_the_deadline() {
    // All of the attempts would take hours.
    let retry = Retry { attempts: 1_000_000, deadline: Duration::from_millis(300), ..quick() };
    // No program of a test listens there, as one may on a port that has just become free.
    let client = Client::builder("http://127.0.0.1:1").retry(retry).build().unwrap();
    let began = Instant::now();
    let error = client.machine(&machine_id()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { why: NoConnection::Refused, .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_failed_connection_names_its_reason() {
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_url = format!("https://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        // A server without TLS cannot parse the request, and says so.
        let (mut connection, _) = plain.accept().await.unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        connection.read_to_end(&mut Vec::new()).await
    });
    for (url, expected) in
        [("http://nosuch.invalid".to_owned(), NoConnection::UnknownHost), (plain_url, NoConnection::NotTls)]
    {
        let client = Client::builder(&url).retry(Retry::never()).build().unwrap();
        match client.version().await.unwrap_err() {
            Error::Unreachable { why, .. } => assert_eq!(why, expected, "{url}"),
            other => panic!("{url}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_respond_causes_a_timeout() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let builder = Client::builder(url).retry(Retry { attempts: 2, ..quick() });
    let client = builder.answer_within(Duration::from_millis(50)).build().unwrap();
    let lease = HeldLease { id: LeaseId::generate(), fence: 1, traceparent: None };
    let beat = LeaseHeartbeat { fence: 1, provider_session_id: None, waiting_for: None, session_id: None };
    let error = client.lease_heartbeat(&lease, &beat).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

#[tokio::test]
async fn a_deletion_with_a_lost_response_succeeds() {
    let server = Server::start(|_, before| if before == 0 { Reply::Nothing } else { problem(404, "NOT_FOUND") }).await;
    server.client().delete_machine(&machine_id()).await.unwrap();
    // A resource that never existed is still "not found".
    let error = server.client().delete_machine(&machine_id()).await.unwrap_err();
    assert!(error.is(Code::NotFound));
}

#[tokio::test]
async fn problems_keep_their_members() {
    let server = Server::start(|_, _| {
        let body = r#"{"type":"urn:x","title":"t","status":409,"detail":"d","code":"CONFLICT","expectedOffset":42,
            "requestId":"r","errors":[{"pointer":"/a","detail":"b"}]}"#;
        Reply::Json(409, "application/problem+json", body.to_owned())
    })
    .await;
    let error = server.client().machine(&machine_id()).await.unwrap_err();
    assert_eq!(error.expected_offset(), Some(42));
    let Error::Problem(problem) = error else { panic!("a problem") };
    assert_eq!((problem.request_id.as_str(), problem.errors[0].pointer.as_str()), ("r", "/a"));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_foreign_server_is_reported() {
    let server = Server::start(|_, _| Reply::Json(404, "text/html", "<h1>Not Found</h1>".to_owned())).await;
    let error = server.client().machine(&machine_id()).await.unwrap_err();
    assert!(matches!(error, Error::ForeignServer { status: 404, .. }), "{error:?}");
    let server = Server::start(|_, _| json(200, "{}")).await;
    let error = server.client().machine(&machine_id()).await.unwrap_err();
    assert!(matches!(error, Error::InvalidResponse { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_without_the_call_is_older_and_says_nothing_about_what_it_names() {
    let absent = serde_json::to_string(&Problem::no_such_path()).unwrap();
    let server = Server::start(move |_, attempt| match attempt {
        0 => Reply::Nothing,
        _ => Reply::Json(404, "application/problem+json", absent.clone()),
    })
    .await;
    let error = server.client().delete_machine(&machine_id()).await.unwrap_err();
    assert!(matches!(error, Error::OlderServer { .. }), "{error:?}");
    assert!(!error.is_not_found() && !error.may_pass(), "{error:?}");
    assert!(error.to_string().contains("older than this program"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_longer_than_its_kind_is_refused() {
    let server = Server::start(|request, _| {
        let padding = " ".repeat(if request.path.ends_with("/leases") { 8 << 20 } else { 5 << 20 });
        match request.path.rsplit('/').next() {
            Some("leases") => json(200, format!(r#"{padding}{{"leases":[]}}"#)),
            Some("heartbeat") => {
                json(200, format!(r#"{padding}{{"expiresAt":"2030-01-01T00:00:00.000Z","cancelRequested":false}}"#))
            }
            Some("output" | "finish") => json(200, padding),
            Some("refused") => Reply::Json(400, "application/problem+json", padding + &problem_body(400, "CONFLICT")),
            _ => json(200, format!("{padding}{MACHINE}")),
        }
    })
    .await;
    let client = Client::builder(&server.url).retry(Retry::never()).build().unwrap();
    let wants = |capacity| LeaseRequest {
        machine_id: machine_id(),
        providers: vec![Provider::Codex],
        capacity,
        slots: None,
        wait_ms: 0,
        taken_orders: Vec::new(),
    };
    let lease = HeldLease { id: LeaseId::generate(), fence: 1, traceparent: None };
    let beat = LeaseHeartbeat { fence: 1, provider_session_id: None, waiting_for: None, session_id: None };
    let finish = serde_json::from_str(r#"{"fence":1,"status":"completed"}"#).unwrap();
    for error in [
        client.lease(&wants(1)).await.map(drop).unwrap_err(),
        client.lease_heartbeat(&lease, &beat).await.map(drop).unwrap_err(),
        client.finish_lease(&lease, &finish).await.unwrap_err(),
        client.machine(&machine_id()).await.map(drop).unwrap_err(),
        client.machine(&"refused".parse().unwrap()).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ForeignServer { .. }), "{error:?}");
    }
    assert!(client.lease(&wants(2)).await.unwrap().leases.is_empty(), "two leases may be longer than one");
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let server = Server::start(|request, _| match request.path.as_str() {
        "/v1/machines" => json(200, format!(r#"{{"machines":[{MACHINE},{MACHINE}],"nextCursor":"a b&c"}}"#)),
        "/v1/machines?cursor=a+b%26c" => json(200, r#"{"machines":[],"nextCursor":"d"}"#),
        "/v1/machines?cursor=d" => json(200, format!(r#"{{"machines":[{MACHINE}],"nextCursor":null}}"#)),
        _ => problem(404, "NOT_FOUND"),
    })
    .await;
    let machines: Vec<_> = server.client().machines().try_collect().await.unwrap();
    assert_eq!((machines.len(), server.seen().len()), (3, 3));
}
