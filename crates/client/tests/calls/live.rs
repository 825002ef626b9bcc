//! Streams: no gaps or repetitions across broken connections, and an end when there is nothing to resume.

use std::pin::pin;

use ensemble_client::{Error, OutputOf, SessionEvent};
use ensemble_types::hints::{Hint, HintKind};
use ensemble_types::ids::{RunId, SessionId, TaskId};
use ensemble_types::refs::Ref;
use futures_util::{StreamExt, TryStreamExt};

use crate::scripted::{Reply, Server, json, problem};

const EVENTS: &str = "text/event-stream";

fn message(seq: i64) -> String {
    format!(
        "event: message\nid: {seq}\ndata: {{\"id\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"seq\":{seq},\
         \"localId\":\"l\",\"content\":\"c\",\"senderId\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"keyEpoch\":1,\
         \"createdAt\":\"2026-03-26T00:00:00.000Z\"}}\n\n"
    )
}

/// A live frame has no id, so a follower that resumes does not ask for it.
const LIVE: &str =
    "event: live\ndata: {\"sessionId\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"content\":\"new\"}\n\n";

#[tokio::test]
async fn a_follower_resumes_after_the_last_event() {
    let server = Server::start(|request, _| match request.headers.get("last-event-id").map(String::as_str) {
        Some("5") => Reply::Broken(EVENTS, format!(": hello\n\nretry: 5\n\n{}{}event: mess", message(6), message(7))),
        Some("7") => Reply::Stream(EVENTS, format!("event: session\ndata: {{\"keyEpoch\":2}}\n\n{LIVE}{}", message(8))),
        Some("8") => Reply::Nothing,
        other => panic!("Last-Event-ID {other:?}"),
    })
    .await;
    let client = server.client();
    let events = client.follow_session(SessionId::generate(), Some(5)).take(5);
    let events: Vec<_> = events.try_collect().await.unwrap();
    let seqs = events.iter().map(|event| match event {
        SessionEvent::Message(message) => message.seq,
        SessionEvent::Changed(change) => -change["keyEpoch"].as_i64().unwrap(),
        SessionEvent::Live(frame) => i64::try_from(frame.content.len()).unwrap(),
    });
    assert_eq!(seqs.collect::<Vec<_>>(), [6, 7, -2, 3, 8]);
}

#[tokio::test]
async fn each_connection_starts_its_hints_afresh() {
    const HINT: &str = "event: hint\ndata: {\"kind\":\"session\",\"id\":\"a\",\"revision\":3}\n\n";
    let server = Server::start(|_, before| match before {
        0 => Reply::Broken(EVENTS, format!("retry: 5\n\n{HINT}")),
        _ => Reply::Stream(EVENTS, format!("event: later\ndata: x\n\n{HINT}")),
    })
    .await;
    let hints: Vec<Hint> = server.client().follow_hints().take(4).try_collect().await.unwrap();
    let hint = Hint { kind: HintKind::Session, id: Some("a".to_owned()), revision: Some(3) };
    assert_eq!(hints, [Hint::ANY, hint.clone(), Hint::ANY, hint]);
}

#[tokio::test]
async fn a_stream_survives_a_rolling_restart() {
    let server = Server::start(|_, before| match before {
        0..3 => Reply::Stream(EVENTS, "event: end\nretry: 1\ndata: {\"reason\":\"draining\"}\n\n".to_owned()),
        _ => Reply::Stream(EVENTS, message(1)),
    })
    .await;
    let client = server.client();
    let mut events = pin!(client.follow_session(SessionId::generate(), Some(0)));
    assert!(matches!(events.next().await, Some(Ok(SessionEvent::Message(_)))));
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_stream_ends_when_the_reconnect_is_refused() {
    let server = Server::start(|_, before| match before {
        0 => Reply::Stream(EVENTS, format!("{}event: end\ndata: {{\"reason\":\"revoked\"}}\n\n", message(1))),
        _ => problem(404, "NOT_FOUND"),
    })
    .await;
    let client = server.client();
    let mut events = pin!(client.follow_session(SessionId::generate(), Some(0)));
    assert!(matches!(events.next().await, Some(Ok(SessionEvent::Message(_)))));
    let error = events.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::StreamEnded { reason } if reason == "revoked"), "{error:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_forbidden_stream_is_refused_at_once() {
    let server = Server::start(|_, _| problem(403, "FORBIDDEN")).await;
    let client = server.client();
    let mut events = pin!(client.follow_session(SessionId::generate(), None));
    assert!(events.next().await.unwrap().is_err());
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn output_is_followed_across_a_broken_connection() {
    let (run, task) = (RunId::generate(), TaskId::generate());
    let at = "2026-03-26T00:00:00.000Z";
    let record = format!(
        r#"{{"id":"{run}","ref":"{}","title":null,"status":"completed","cancelReason":null,"maxConcurrency":4,"spread":false,
        "summary":{{"total":1,"queued":0,"running":0,"completed":1,"failed":0,"cancelled":0}},"version":3,
        "createdAt":"{at}","updatedAt":"{at}","startedAt":null,"finishedAt":null,"tasks":[{{"id":"{task}","ref":"{}","taskKey":null,
        "title":null,"prompt":"p","provider":"codex","model":null,"workingDirectory":null,"machineId":null,
        "dependsOn":[],"status":"completed","attempt":2,"waitingFor":null,"error":null,"outputSummary":null,
        "exitCode":0,"usage":null,"providerSessionId":null,"createdAt":"{at}","startedAt":null,"finishedAt":null}}]}}"#,
        Ref::of(&run),
        Ref::of(&task),
    );
    let server = Server::start(move |request, _| {
        let range = request.headers.get("range").map(String::as_str);
        match (request.path.rsplit('/').next().unwrap(), range) {
            ("output?attempt=2&follow=true", None) => Reply::Broken("text/plain", "hello ".to_owned()),
            ("output?attempt=2&follow=true", Some("bytes=6-")) => Reply::Stream("text/plain", "wor".to_owned()),
            ("output?attempt=2", Some("bytes=9-")) => Reply::Stream("text/plain", "ld".to_owned()),
            (last, None) if *last == run.to_string() => json(200, record.clone()),
            other => panic!("{other:?}"),
        }
    })
    .await;
    let of = OutputOf { run, task, attempt: None, from: 0 };
    let chunks: Vec<_> = server.client().follow_output(of).try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"hello world");
}

/// A proxy delivers what comes by GET only when it ends.
async fn is_followed_by_post(held: &'static str) {
    let server = Server::start(move |request, _| match request.method.as_str() {
        "GET" => Reply::Held(held.to_owned()),
        _ => Reply::Stream(EVENTS, format!("retry: 5\n\n{}", message(1))),
    })
    .await;
    let client = server.client();
    let session = SessionId::generate();
    for others in 0..2 {
        let mut events = pin!(client.follow_session(session, Some(0)));
        assert!(matches!(events.next().await, Some(Ok(SessionEvent::Message(_)))));
        let methods: Vec<_> = server.seen().into_iter().map(|request| request.method).collect();
        assert_eq!(methods, ["GET", "POST", "POST"][..2 + others], "the client remembers what works");
    }
}

#[tokio::test]
async fn a_stream_whose_head_is_held_back_is_opened_by_post() {
    is_followed_by_post("").await;
}

#[tokio::test]
async fn a_stream_whose_events_are_held_back_is_opened_by_post() {
    is_followed_by_post("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
}

#[tokio::test]
async fn an_older_server_that_is_slow_is_followed_by_get() {
    let server = Server::start(|request, before| match (request.method.as_str(), before) {
        ("GET", 0) => Reply::Held(String::new()),
        ("POST", _) => problem(405, "METHOD_NOT_ALLOWED"),
        _ => Reply::Stream(EVENTS, message(1)),
    })
    .await;
    let client = server.client();
    let mut events = pin!(client.follow_session(SessionId::generate(), Some(0)));
    assert!(matches!(events.next().await, Some(Ok(SessionEvent::Message(_)))));
    assert_eq!(server.seen().len(), 3);
}
