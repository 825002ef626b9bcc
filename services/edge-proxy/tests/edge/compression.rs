//! What is compressed, for whom, and what never is.

use std::io::{Cursor, Read};

use serde_json::json;

use crate::Edge;
use crate::raw::Answer;
use crate::streams::{STREAM_HEAD, TEXT_HEAD, broadcast_as};
use crate::stub::{Reaction, Stub};

/// JSON of this many bytes and a few.
fn json_of(bytes: usize) -> String {
    let words = (0..).map(|n: u32| format!("word {n}, ")).scan(0, |length, word| {
        *length += word.len();
        (*length <= bytes).then_some(word)
    });
    json!({ "text": words.collect::<String>() }).to_string()
}

/// A service whose answer has these fields and this body.
async fn answering(fields: &str, body: &str) -> (Stub, Edge) {
    let answer = format!("HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n{body}", body.len());
    let stub = Stub::start(move |_| Reaction::Say(answer.clone().into_bytes())).await;
    let edge = Edge::before(&stub).await;
    (stub, edge)
}

const JSON: &str = "content-type: application/json\r\n";

async fn ask(edge: &Edge, accepted: &str) -> Answer {
    edge.ask(&format!("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n{accepted}\r\n")).await
}

fn decoded(answer: &Answer) -> String {
    let mut text = String::new();
    match answer.header("content-encoding") {
        None => text = answer.text(),
        Some("gzip") => {
            flate2::read::GzDecoder::new(Cursor::new(&answer.body)).read_to_string(&mut text).unwrap();
        }
        Some("br") => {
            brotli_decompressor::Decompressor::new(Cursor::new(&answer.body), 4096).read_to_string(&mut text).unwrap();
        }
        Some(other) => panic!("{other}"),
    }
    text
}

fn varies(answer: &Answer) -> bool {
    answer.headers.iter().any(|(name, value)| name == "vary" && value.contains("Accept-Encoding"))
}

#[tokio::test]
async fn json_comes_as_the_client_takes_it() {
    for length in [2_000, 700_000] {
        let body = json_of(length);
        let (_stub, edge) = answering(JSON, &body).await;
        for (accepted, coding) in [
            ("", None),
            ("Accept-Encoding: \r\n", None),
            ("Accept-Encoding: identity\r\n", None),
            ("Accept-Encoding: deflate, zstd\r\n", None),
            ("Accept-Encoding: gzip;q=0\r\n", None),
            ("Accept-Encoding: identity, gzip;q=0.5\r\n", None),
            ("Accept-Encoding: gzip\r\n", Some("gzip")),
            ("Accept-Encoding: GZIP\r\n", Some("gzip")),
            ("Accept-Encoding: deflate\r\nAccept-Encoding: gzip\r\n", Some("gzip")),
            ("Accept-Encoding: gzip, br;q=0.1\r\n", Some("gzip")),
            ("Accept-Encoding: br\r\n", Some("br")),
            ("Accept-Encoding: gzip, deflate, br, zstd\r\n", Some("br")),
        ] {
            let answer = ask(&edge, accepted).await;
            assert_eq!((answer.status, answer.header("content-encoding")), (200, coding), "{accepted}");
            assert_eq!(answer.header("content-length").is_some(), coding.is_none(), "{accepted}");
            assert_eq!(decoded(&answer), body, "{accepted}");
            assert_eq!(coding.is_some(), answer.body.len() < body.len() / 2, "{accepted}: {}", answer.body.len());
            assert!(varies(&answer), "a cache must know, also of what was not compressed");
        }
    }
}

#[tokio::test]
async fn what_is_short_or_no_json_or_must_not_be_changed_comes_as_it_is() {
    let long = json_of(5_000);
    for (fields, body) in [
        (JSON.to_owned(), json_of(900)),
        ("content-type: text/plain\r\n".to_owned(), long.clone()),
        ("content-type: application/problem+json\r\n".to_owned(), long.clone()),
        (String::new(), long.clone()),
        (format!("{JSON}cache-control: no-store, no-transform\r\n"), long.clone()),
        (format!("{JSON}cache-control: no-store\r\ncache-control: No-Transform\r\n"), long.clone()),
        (format!("{JSON}content-encoding: zstd\r\n"), long.clone()),
    ] {
        let (_stub, edge) = answering(&fields, &body).await;
        let answer = ask(&edge, "Accept-Encoding: gzip, br\r\n").await;
        assert_eq!(answer.text(), body, "{fields}");
        assert!(matches!(answer.header("content-encoding"), None | Some("zstd")), "{fields}");
        assert!(!varies(&answer), "{fields}");
    }
}

#[tokio::test]
async fn an_answer_of_unknown_length_is_compressed_and_one_that_breaks_off_does_not_look_complete() {
    let body = json_of(100_000);
    let (first, second) = body.split_at(40_000);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n", first.len(), second.len());
    let head = format!("HTTP/1.1 200 OK\r\n{JSON}transfer-encoding: chunked\r\n\r\n");
    for end in ["0\r\n\r\n", ""] {
        let text = format!("{head}{chunks}{end}");
        let stub = Stub::start(move |_| Reaction::SayAndClose(text.clone().into_bytes())).await;
        let edge = Edge::before(&stub).await;
        let request = "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nAccept-Encoding: gzip\r\n\r\n";
        if end.is_empty() {
            let mut raw = edge.connect().await;
            raw.send(request).await;
            assert!(!raw.until_closed().await.ends_with(b"0\r\n\r\n"));
        } else {
            assert_eq!(decoded(&edge.ask(request).await), body);
        }
    }
}

#[tokio::test]
async fn a_tag_is_weak_where_the_bytes_are_others_and_head_says_what_get_does() {
    let (_stub, edge) = answering(&format!("{JSON}etag: \"x\"\r\n"), &json_of(5_000)).await;
    for (accepted, etag, coding) in [("", "\"x\"", None), ("Accept-Encoding: gzip\r\n", "W/\"x\"", Some("gzip"))] {
        let answer = ask(&edge, accepted).await;
        assert_eq!((answer.header("etag"), answer.header("content-encoding")), (Some(etag), coding));
        let mut raw = edge.connect().await;
        for _ in 0..2 {
            raw.send(format!("HEAD /v1/sessions HTTP/1.1\r\nHost: edge\r\n{accepted}\r\n")).await;
            let head = raw.answer_to("HEAD").await;
            assert_eq!((head.header("etag"), head.header("content-encoding")), (Some(etag), coding));
            assert_eq!(head.header("content-length").is_some(), coding.is_none());
        }
    }
    let old = edge.connect().await;
    let mut old = old;
    old.send("GET /v1/sessions HTTP/1.0\r\nHost: edge\r\nAccept-Encoding: gzip\r\n\r\n").await;
    assert!(!String::from_utf8_lossy(&old.until_closed().await).contains("content-encoding"), "it knows no chunks");
}

#[tokio::test]
async fn an_event_arrives_at_once_whatever_the_client_takes() {
    const FOLLOWED_JSON: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
        x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n";
    let stub = Stub::echo().await;
    for head_of_answer in [STREAM_HEAD, TEXT_HEAD, FOLLOWED_JSON] {
        let service = broadcast_as(head_of_answer).await;
        let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &service.url)]).await;
        let mut raw = edge.connect().await;
        raw.send("GET /v3/sessions/x/messages/stream HTTP/1.1\r\nHost: edge\r\nAccept-Encoding: gzip, br\r\n\r\n")
            .await;
        let (_, headers) = raw.head().await;
        assert!(headers.iter().all(|(name, _)| name != "content-encoding"), "{headers:?}");
        for event in ["id: 1\ndata: a\n\n", ": still here\n\n"] {
            service.say.send(event).unwrap();
            assert_eq!(raw.chunk().await, event.as_bytes(), "nothing else is needed to get it out");
        }
    }
}

#[tokio::test]
async fn more_than_a_caller_may_have_compressed_at_once_comes_as_it_is() {
    let begun = format!("HTTP/1.1 200 OK\r\n{JSON}content-length: 1000000\r\n\r\n{}", json_of(5_000));
    let stub = Stub::start(move |_| Reaction::SayAndStall(begun.clone().into_bytes())).await;
    let edge = Edge::before(&stub).await;
    let is_compressed = async || {
        let mut raw = edge.connect().await;
        raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nAccept-Encoding: gzip\r\n\r\n").await;
        let (_, headers) = raw.head().await;
        (headers.iter().any(|(name, _)| name == "content-encoding"), raw)
    };
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let (is_so, raw) = is_compressed().await;
        assert!(is_so);
        waiting.push(raw);
    }
    assert!(!is_compressed().await.0);
    drop(waiting);
    ensemble_testkit::eventually(crate::raw::SOON, async || is_compressed().await.0).await;
}

#[tokio::test]
async fn the_document_is_compressed_and_not_sent_to_who_has_it() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let plain = edge.get("/openapi.json").await;
    let etag = plain.header("etag").expect("a tag").to_owned();
    assert!(etag.starts_with('"') && plain.header("cache-control") == Some("no-cache"), "{etag}");
    for coding in ["gzip", "br"] {
        let packed =
            edge.ask(&format!("GET /openapi.json HTTP/1.1\r\nHost: edge\r\nAccept-Encoding: {coding}\r\n\r\n")).await;
        assert_eq!((packed.header("content-encoding"), decoded(&packed) == plain.text()), (Some(coding), true));
        assert!(packed.body.len() < plain.body.len() / 5, "{}", packed.body.len());
        assert_eq!(packed.header("etag"), Some(format!("W/{etag}").as_str()));
    }
    for (known, status) in [
        (etag.clone(), 304),
        (format!("W/{etag}"), 304),
        (format!("\"other\", {etag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (etag.trim_matches('"').to_owned(), 200),
    ] {
        let answer =
            edge.ask(&format!("GET /openapi.json HTTP/1.1\r\nHost: edge\r\nIf-None-Match: {known}\r\n\r\n")).await;
        assert_eq!(answer.status, status, "{known}");
        let expected = if known.starts_with("W/") { &known } else { &etag };
        assert_eq!(answer.header("etag"), Some(expected.as_str()), "{known}");
        assert_eq!(answer.body.is_empty(), status == 304);
        assert!(varies(&answer));
    }
}
