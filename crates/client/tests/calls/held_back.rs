//! Behind an address that holds streams back, by GET and by POST: what they bring is polled, once each, with few requests.

use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use ensemble_client::{Client, Credential, Polls, SessionEvent};
use ensemble_types::hints::Hint;
use ensemble_types::ids::SessionId;
use futures_util::{StreamExt, TryStreamExt};

use crate::scripted::{Reply, Request, Server, json, problem, quick};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn is_stream(request: &Request) -> bool {
    request.path.ends_with("/stream") || request.path == "/v1/events"
}

/// The methods by which streams were asked for.
fn tried(server: &Server) -> Vec<String> {
    server.seen().into_iter().filter(is_stream).map(|request| request.method).collect()
}

fn client(server: &Server) -> Client {
    let often = Duration::from_millis(20);
    let builder = Client::builder(&server.url).retry(quick()).answer_within(Duration::from_secs(60));
    builder.polls(Polls { seen: often, unseen: often }).build().unwrap()
}

/// A session of which each look sees one message more, up to `last`; a page has two. From the `renamed`th look on it is another one.
fn session(first: i64, last: i64, renamed: i64) -> impl Fn(&Request) -> Reply + Send + Sync {
    let looks = Mutex::new(first);
    move |request| {
        let mut looks = looks.lock().unwrap();
        let Some(after) = request.path.split("after=").nth(1) else {
            *looks += 1;
            let (seq, metadata) = ((*looks - 1).min(last), if *looks > renamed { "new" } else { "old" });
            return json(200, format!(r#"{{"lastSeq":{seq},"updatedAt":"{looks}","metadata":"{metadata}"}}"#));
        };
        let after: i64 = after.split('&').next().unwrap().parse().unwrap();
        let newest = (*looks - 1).min(last);
        let messages: Vec<_> = (after + 1..=newest).take(2).map(message).collect();
        let has_more = after + 2 < newest;
        json(200, format!(r#"{{"messages":[{}],"hasMore":{has_more}}}"#, messages.join(",")))
    }
}

fn message(seq: i64) -> String {
    format!(
        r#"{{"id":"{ID}","seq":{seq},"localId":"l","content":"c","senderId":"{ID}","keyEpoch":1,"createdAt":"2026-03-26T00:00:00.000Z"}}"#
    )
}

fn shown(event: SessionEvent) -> String {
    match event {
        SessionEvent::Message(message) => message.seq.to_string(),
        SessionEvent::Changed(session) => session["metadata"].as_str().unwrap().to_owned(),
        SessionEvent::Live(_) => panic!("live text does not come"),
    }
}

async fn is_polled(held: &'static str) {
    let looks = session(3, 6, 9);
    let server = Server::start(move |request, _| match is_stream(request) {
        true => Reply::Held(held.to_owned()),
        false => looks(request),
    })
    .await;
    let client = client(&server);
    assert!(!client.is_held_back());
    let events = client.follow_session(SessionId::generate(), Some(0)).map_ok(shown).take(8);
    let events: Vec<_> = events.try_collect().await.unwrap();
    assert_eq!(events, ["old", "1", "2", "3", "4", "5", "6", "new"]);
    assert!(client.is_held_back());
    assert_eq!(tried(&server), ["GET", "POST"]);
    let pages = server.seen().iter().filter(|request| request.path.contains("after=")).count();
    assert!(pages <= 6, "{pages} pages: messages are read where there are newer ones");

    // Another follower knows it already, also one with another credential, and the connection is said to be there.
    let other = client.with_credential(Credential::Anonymous);
    let mut events = pin!(other.watch_session(SessionId::generate(), 5));
    assert!(events.next().await.unwrap().unwrap().is_none());
    let mut next = async || shown(events.next().await.unwrap().unwrap().unwrap());
    assert_eq!([next().await, next().await], ["new", "6"]);
    assert_eq!(tried(&server), ["GET", "POST"]);
}

#[tokio::test]
async fn a_session_whose_heads_are_held_back_is_polled() {
    is_polled("").await;
}

#[tokio::test]
async fn a_session_whose_events_are_held_back_is_polled() {
    is_polled(HEAD).await;
}

#[tokio::test]
async fn a_server_that_takes_no_post_is_polled_where_get_is_held_back() {
    for tries in 1.. {
        let looks = session(1, 1, 9);
        let server = Server::start(move |request, _| match (is_stream(request), request.method.as_str()) {
            (true, "POST") => problem(405, "METHOD_NOT_ALLOWED"),
            (true, _) => Reply::Held(String::new()),
            _ => looks(request),
        })
        .await;
        let builder = Client::builder(&server.url).retry(quick()).answer_within(Duration::from_secs(6));
        let mut events = pin!(builder.build().unwrap().follow_session(SessionId::generate(), Some(0)));
        assert_eq!(shown(events.next().await.unwrap().unwrap()), "old");
        let tried = tried(&server);
        // While the machine stands still for five seconds, POST is held back, too.
        if tried != ["GET", "POST"] || tries == 3 {
            assert_eq!(tried, ["GET", "POST", "GET"]);
            break;
        }
    }
}

#[tokio::test]
async fn a_session_that_is_gone_ends_the_polls() {
    let looks = session(1, 1, 9);
    let server = Server::start(move |request, before| match is_stream(request) {
        true => Reply::Held(String::new()),
        false if before > 6 => problem(404, "NOT_FOUND"),
        false => looks(request),
    })
    .await;
    let events = client(&server).follow_session(SessionId::generate(), Some(0));
    let error = events.map_ok(drop).try_collect::<Vec<()>>().await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
}

#[tokio::test]
async fn without_hints_anything_may_have_changed_now_and_then() {
    let server = Server::start(|request, _| match is_stream(request) {
        true => Reply::Held(HEAD.to_owned()),
        false => json(200, r#"{"sessions":[],"nextCursor":null}"#),
    })
    .await;
    let hints: Vec<_> = client(&server).follow_hints().take(3).try_collect().await.unwrap();
    assert_eq!(hints, [Hint::ANY, Hint::ANY, Hint::ANY]);
    let lists = server.seen().into_iter().filter(|request| !is_stream(request)).map(|request| request.path);
    assert_eq!(lists.collect::<Vec<_>>(), ["/v1/sessions?limit=1"; 3]);
}
