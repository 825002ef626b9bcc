//! Live frames: to everybody who follows the session, at once, and nowhere else.

use std::time::Duration;

use ensemble_testkit::{Api, Backend, Events, SOON, SseEvent, eventually, in_time, on_both_databases, run};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, NO_SWEEP, messages};

const LIVE: &str = "/v3/sessions/live";

/// A machine that hosts a session of its owner.
struct Host {
    owner: Client,
    machine: Api,
    session: String,
}

impl Host {
    async fn new(fixture: &Fixture) -> Self {
        let owner = fixture.client();
        let token = fixture.peers.issuer().machine(owner.id, &owner.machine);
        let machine = fixture.anonymous().with_token(&token);
        let made = machine.post("/v1/sessions", &owner.draft()).await.expect(201);
        Self { session: made["id"].as_str().unwrap().to_owned(), owner, machine }
    }

    async fn send(&self, contents: &[&str]) -> Value {
        self.machine.post(LIVE, &frames(&self.session, contents)).await.expect(200)
    }

    async fn append(&self, n: usize) {
        let message = json!({ "content": "the whole text", "localId": n.to_string(), "keyEpoch": 1 });
        self.machine.post(&messages(&self.session), &message).await.expect(201);
    }
}

fn frames(session: &str, contents: &[&str]) -> Value {
    let frames: Vec<Value> =
        contents.iter().map(|content| json!({ "sessionId": session, "content": content })).collect();
    json!({ "frames": frames })
}

async fn follow(api: &Api, session: &str) -> Events {
    Events::open(api.request("GET", &format!("{}/stream", messages(session)))).await
}

fn content(event: &SseEvent) -> String {
    assert_eq!((event.name.as_str(), event.id.as_deref()), ("live", None), "{event:?}");
    let data: Value = serde_json::from_str(&event.data).unwrap();
    data["content"].as_str().unwrap().to_owned()
}

on_both_databases! {
    async fn frames_reach_everybody_who_follows_the_session(on: Backend) {
        in_time(Duration::from_secs(20), async || {
            let fixture = Fixture::start(on).await;
            let host = Host::new(&fixture).await;
            let other = Host::new(&fixture).await;
            let guest = fixture.guest(&host.owner, &host.session, "view").await;
            let link = host.owner.api.post(&format!("/v1/sessions/{}/public-share", host.session), &json!({})).await.expect(201);
            let public = format!("/v1/public-sessions/{}", link["token"].as_str().unwrap());
            let view_token = fixture.anonymous().get(&public).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
            let request = fixture.anonymous().request("GET", &format!("{public}/stream")).header("X-View-Token", &view_token);
            let mut streams = vec![
                follow(&host.owner.api, &host.session).await,
                follow(&guest.api, &host.session).await,
                follow(&host.machine, &host.session).await,
                Events::open(request).await,
            ];
            let mut elsewhere = follow(&other.owner.api, &other.session).await;
            assert_eq!(host.send(&["one", "two"]).await, json!({ "dropped": [] }));
            let long = "x".repeat(16_384);
            host.send(&[&long]).await;
            for events in &mut streams {
                assert_eq!(content(&events.expect().await), "one");
                assert_eq!(content(&events.expect().await), "two");
                assert_eq!(content(&events.expect().await), long);
            }
            host.append(1).await;
            for events in &mut streams {
                assert_eq!(events.expect().await.id.as_deref(), Some("1"), "frames take no seq");
            }
            assert!(elsewhere.next_within(Duration::from_millis(200)).await.is_err(), "another session has no frames");
            let read = host.owner.api.get(&messages(&host.session)).await.expect(200);
            assert_eq!((&read["messages"].as_array().unwrap().len(), &read["lastSeq"]), (&1, &json!(1)));
        })
        .await;
    }

    async fn no_message_takes_a_frame_away(on: Backend) {
        in_time(Duration::from_secs(20), async || {
            let fixture = Fixture::start(on).await;
            let host = Host::new(&fixture).await;
            let mut events = follow(&host.owner.api, &host.session).await;
            for n in 1..=8 {
                let first = format!("the beginning of text {n}");
                // The message of the text before is on its way at the same time, and may be faster.
                eventually(SOON, async || host.send(&[&first]).await == json!({ "dropped": [] })).await;
                host.append(n).await;
                let mut came = [events.expect().await, events.expect().await];
                came.sort_by_key(|event| event.name.clone());
                assert_eq!(content(&came[0]), first);
                assert_eq!(came[1].id, Some(n.to_string()));
            }
        })
        .await;
    }

    async fn more_than_five_a_second_are_dropped(on: Backend) {
        in_time(Duration::from_secs(20), async || {
            let fixture = Fixture::start(on).await;
            let (host, other) = (Host::new(&fixture).await, Host::new(&fixture).await);
            let mut events = follow(&host.owner.api, &host.session).await;
            assert_eq!(host.send(&["1", "2", "3", "4", "5", "6", "7"]).await, json!({ "dropped": [host.session] }));
            assert_eq!(other.send(&["1"]).await, json!({ "dropped": [] }), "each session has its own pace");
            for expected in ["1", "2", "3", "4", "5"] {
                assert_eq!(content(&events.expect().await), expected);
            }
            eventually(SOON, async || host.send(&["late"]).await == json!({ "dropped": [] })).await;
            assert_eq!(content(&events.expect().await), "late");
        })
        .await;
    }

    async fn a_revoked_guest_gets_no_frame(on: Backend) {
        in_time(Duration::from_secs(20), async || {
            // The sweep and notifications would end the stream; frames must not pass before they do.
            let fixture = Fixture::start(on).await;
            let host = Host::new(&fixture).await;
            let guest = fixture.guest(&host.owner, &host.session, "view").await;
            let mut events = follow(&guest.api, &host.session).await;
            host.send(&["before"]).await;
            assert_eq!(content(&events.expect().await), "before");
            // Past the service, so that nothing wakes the stream.
            fixture.execute("DELETE FROM shares").await;
            host.send(&["after"]).await;
            let next = events.next_within(Duration::from_millis(500)).await;
            assert!(!matches!(&next, Ok(Some(event)) if event.name == "live"), "{next:?}");
        })
        .await;
    }

    async fn only_the_session_s_machine_sends_frames(on: Backend) {
        in_time(Duration::from_secs(20), async || {
            let fixture = Fixture::start(on).await;
            let host = Host::new(&fixture).await;
            let body = frames(&host.session, &["x"]);
            host.owner.api.post(LIVE, &body).await.problem(403, "FORBIDDEN");
            for level in ["admin", "edit", "view"] {
                fixture.guest(&host.owner, &host.session, level).await.api.post(LIVE, &body).await.problem(403, "FORBIDDEN");
            }
            fixture.client().api.post(LIVE, &body).await.problem(404, "NOT_FOUND");
            let elsewhere = fixture.peers.issuer().machine(host.owner.id, &fixture.peers.new_machine(host.owner.id));
            fixture.anonymous().with_token(&elsewhere).post(LIVE, &body).await.problem(404, "NOT_FOUND");
            let by_people = host.owner.session().await;
            // One frame for a session that is not its own, and nothing of the call is passed on.
            let mut events = follow(&host.owner.api, &host.session).await;
            let mixed = json!({ "frames": [
                { "sessionId": host.session, "content": "x" }, { "sessionId": by_people, "content": "x" },
            ]});
            host.machine.post(LIVE, &mixed).await.problem(404, "NOT_FOUND");
            host.send(&["good"]).await;
            assert_eq!(content(&events.expect().await), "good");
            for (bad, pointer) in [
                (json!({ "frames": [] }), "/frames"),
                (frames(&host.session, &["x"; 65]), "/frames"),
                (frames(&host.session, &[""]), "/frames/0/content"),
                (frames(&host.session, &["x", &"x".repeat(16_385)]), "/frames/1/content"),
            ] {
                assert_eq!(host.machine.post(LIVE, &bad).await.bad_fields(), [pointer]);
            }
            let too_long = frames(&host.session, &["x".repeat(25_000).as_str(); 64]);
            host.machine.post(LIVE, &too_long).await.problem(413, "PAYLOAD_TOO_LARGE");
        })
        .await;
    }
}

#[test]
fn a_frame_that_a_message_has_overtaken_still_comes() {
    run(async {
        let fixture = Fixture::start(Backend::Postgres).await;
        let host = Host::new(&fixture).await;
        let mut events = follow(&host.owner.api, &host.session).await;
        let mut n = 0;
        // One that a slow machine makes too old is left out.
        eventually(SOON, async || {
            n += 1;
            host.append(n).await;
            // As if it had been shared before the message, and were late: the beginning of another text.
            let late = format!(
                "INSERT INTO live_frames SELECT '{}', extract(epoch FROM created_at) * 1000000 - 1, 'late' FROM messages \
                 WHERE seq = {n}",
                host.session
            );
            fixture.execute(&late).await;
            let new = format!("new {n}");
            host.send(&[&new]).await;
            let frames = async {
                let mut frames = Vec::new();
                while frames.last() != Some(&new) {
                    let event = events.expect().await;
                    if event.name == "live" {
                        frames.push(content(&event));
                    }
                }
                frames
            };
            let came = tokio::time::timeout(Duration::from_secs(2), frames).await;
            came.is_ok_and(|frames| frames == ["late", &new])
        })
        .await;
    });
}

#[test]
fn frames_reach_streams_at_another_replica_without_waiting_for_the_disk() {
    run(async {
        let fixture = Fixture::start_with(Backend::Postgres, &[NO_SWEEP[0], ("PURGE_MS", "100")]).await;
        let there = fixture.replica_with(&NO_SWEEP).await;
        let host = Host::new(&fixture).await;
        let mut events = follow(&host.owner.api.at(&there.public_url()), &host.session).await;
        // The replica may have to connect before it is notified.
        eventually(SOON, async || {
            host.send(&["first"]).await;
            matches!(events.next_within(Duration::from_millis(300)).await, Ok(Some(_)))
        })
        .await;
        for n in 0..10 {
            let text = format!("frame {n}");
            // One that a slow machine makes too old is left out.
            eventually(SOON, async || {
                while host.send(&[&text]).await != json!({ "dropped": [] }) {}
                let came = async { while content(&events.expect().await) != text {} };
                tokio::time::timeout(Duration::from_secs(1), came).await.is_ok()
            })
            .await;
        }
        let unlogged = "SELECT count(*) FROM pg_class WHERE relname = 'live_frames' AND relpersistence = 'u'";
        assert_eq!(fixture.number(unlogged).await, 1);
        eventually(SOON, async || fixture.number("SELECT count(*) FROM live_frames").await == 0).await;
    });
}
