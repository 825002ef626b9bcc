//! Streams: every message is sent, and none after access has ended.

use ensemble_chassis::auth::DeviceKey;
use ensemble_testkit::{Events, SOON, eventually_some, on_both_databases};
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, NO_SWEEP, messages};

async fn follow(client: &Client, session: &str, query: &str) -> Events {
    Events::open(client.api.request("GET", &format!("{}/stream{query}", messages(session)))).await
}

fn data(event: &ensemble_testkit::SseEvent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

on_both_databases! {
    async fn a_stream_sends_missed_messages_and_then_new_ones(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.fill(&id, 450).await;
        let mut events = follow(&owner, &id, "?after=5").await;
        for seq in 6..=450 {
            let event = events.expect().await;
            assert_eq!((event.name.as_str(), event.id.as_deref()), ("message", Some(seq.to_string().as_str())));
        }
        let sent = owner.append(&id, "live", "now").await;
        assert_eq!(data(&events.expect().await), sent);
        // `Last-Event-ID` takes precedence over `after`. Without either, only new messages are sent.
        let request =
            owner.api.request("GET", &format!("{}/stream?after=0", messages(&id))).header("Last-Event-ID", "450");
        let mut resumed = Events::open(request).await;
        assert_eq!(data(&resumed.expect().await), sent);
        let mut fresh = follow(&owner, &id, "").await;
        let sent = owner.append(&id, "newest", "now").await;
        for events in [&mut events, &mut resumed, &mut fresh] {
            assert_eq!(data(&events.expect().await), sent);
        }
        let empty = owner.api.request("GET", &format!("{}/stream?after=449", messages(&id))).header("Last-Event-ID", "");
        assert_eq!(Events::open(empty).await.expect().await.id.as_deref(), Some("450"), "an empty id is as absent");
        let by_post = |query: &str| owner.api.request("POST", &format!("{}/stream{query}", messages(&id)));
        for request in [
            by_post("").json(&json!({ "after": 449 })),
            by_post("?after=449"),
            by_post("").json(&json!({ "after": 0 })).header("Last-Event-ID", "449"),
        ] {
            assert_eq!(Events::open(request).await.expect().await.id.as_deref(), Some("450"));
        }
        let bad = owner.api.request("GET", &format!("{}/stream", messages(&id))).header("Last-Event-ID", "x");
        assert_eq!(ensemble_testkit::Api::send(bad).await.bad_fields().len(), 1);
    }

    async fn a_stream_sends_changes_of_the_session(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let guest = fixture.guest(&owner, &id, "view").await;
        let path = format!("/v1/sessions/{id}");
        let mut events = follow(&guest, &id, "").await;
        for (change, field, value) in [
            (json!({ "metadata": "m2" }), "metadata", json!("m2")),
            (json!({ "agentState": "a1" }), "agentState", json!("a1")),
            (json!({ "status": "ended" }), "status", json!("ended")),
            (json!({ "encryptionKey": "k2", "expectedKeyEpoch": 1 }), "keyEpoch", json!(2)),
        ] {
            owner.api.patch(&path, &change).await.expect(200);
            let event = events.expect().await;
            assert_eq!((event.name.as_str(), event.id.as_deref()), ("session", None));
            let session = data(&event);
            assert_eq!(
                (&session[field], &session["accessLevel"], &session["encryptionKey"]),
                (&value, &json!("view"), &json!(null))
            );
        }
        // A heartbeat is not a change.
        owner.api.patch(&path, &json!({ "heartbeat": {} })).await.expect(200);
        owner.append(&id, "a", "x").await;
        assert_eq!(events.expect().await.name, "message");
    }

    async fn long_events_arrive_whole_and_in_order(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let mut events = follow(&owner, &id, "").await;
        // Each is longer than one piece; together they are more than the service keeps of long events.
        let mut sent = Vec::new();
        for at in 0..24 {
            let content = format!("{at}").repeat(1_000_000 / format!("{at}").len());
            sent.push(owner.append(&id, &format!("long-{at}"), &content).await);
            sent.push(owner.append(&id, &format!("short-{at}"), "x").await);
        }
        let state = "s".repeat(1_000_000);
        owner.api.patch(&format!("/v1/sessions/{id}"), &json!({ "agentState": state })).await.expect(200);
        let mut from_the_start = follow(&owner, &id, "?after=0").await;
        for message in &sent {
            assert_eq!(&data(&from_the_start.expect().await), message);
        }
        // The change is sent with the step that notices it.
        let mut received = Vec::new();
        for _ in 0..=sent.len() {
            received.push(events.expect().await);
        }
        let (sessions, messages): (Vec<_>, Vec<_>) = received.iter().partition(|event| event.name == "session");
        assert!(messages.into_iter().map(data).eq(sent), "all messages in order");
        assert_eq!(data(sessions[0])["agentState"].as_str(), Some(state.as_str()));
    }

    async fn a_stream_ends_when_access_ends(on: Backend) {
        let fixture = Fixture::start_with(on, &NO_SWEEP).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}");
        for end in ["share", "token", "device", "session"] {
            let guest = fixture.guest(&owner, &id, "view").await;
            let (token, token_id) = fixture.peers.issuer().revocable(guest.id);
            let device = DeviceKey([7; 32]);
            let token = if end == "device" { fixture.peers.issuer().of_device(guest.id, device) } else { token };
            let guest = Client { api: guest.api.with_token(&token), ..guest };
            let mut events = follow(&guest, &id, "").await;
            owner.append(&id, &format!("before {end}"), "x").await;
            assert_eq!(events.expect().await.name, "message");
            let reason = match end {
                "share" => {
                    owner.api.delete(&format!("{path}/shares/{}", guest.id)).await.expect(200);
                    "access_revoked"
                }
                "token" => {
                    fixture.peers.issuer().revoke(token_id);
                    "token_revoked"
                }
                "device" => {
                    fixture.peers.issuer().remove(device);
                    "token_revoked"
                }
                _ => {
                    owner.api.delete(&path).await.expect(200);
                    "session_deleted"
                }
            };
            let last = events.expect().await;
            assert_eq!((last.name.as_str(), data(&last)), ("end", json!({ "reason": reason })));
            assert_eq!(last.retry.is_none(), end == "session", "{reason}");
            assert_eq!(events.next_within(SOON).await, Ok(None));
        }
    }

    async fn an_expired_token_ends_the_stream(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        // On a slow machine a token may expire before it is used.
        let mut events = eventually_some(SOON, async || {
            // Services accept clocks that differ by thirty seconds.
            let token = fixture.peers.issuer().expiring(owner.id, -28);
            let brief = Client { api: owner.api.with_token(&token), ..owner.clone() };
            Some(follow(&brief, &id, "").await).filter(|events| events.status == 200)
        })
        .await;
        let last = events.expect().await;
        assert_eq!((last.name.as_str(), data(&last)), ("end", json!({ "reason": "token_expired" })));
    }

    async fn a_drain_ends_streams_with_a_reason(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let mut events = follow(&owner, &id, "").await;
        let stopped = tokio::spawn(fixture.service.stop());
        let last = events.expect().await;
        assert_eq!((last.name.as_str(), data(&last)), ("end", json!({ "reason": "draining" })));
        assert!(stopped.await.unwrap());
    }

    async fn a_public_stream_requires_a_view_token(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let link =
            owner.api.post(&format!("/v1/sessions/{id}/public-share"), &json!({ "maxUses": 1 })).await.expect(201);
        let path = format!("/v1/public-sessions/{}", link["token"].as_str().unwrap());
        let anonymous = fixture.anonymous();
        let without = anonymous.get(&format!("{path}/stream")).await.problem(400, "INVALID_ARGUMENT");
        assert!(without["detail"].as_str().unwrap().contains("`X-View-Token`"), "{without}");
        let token = anonymous.get(&path).await.expect(200)["viewToken"].as_str().unwrap().to_owned();
        let mut events =
            Events::open(anonymous.request("GET", &format!("{path}/stream?after=0")).header("X-View-Token", &token))
                .await;
        assert_eq!(events.status, 200);
        owner.append(&id, "a", "x").await;
        let message = data(&events.expect().await);
        assert_eq!((&message["seq"], &message["content"]), (&json!(1), &json!("x")));
        assert!(message.get("senderId").is_none() && message.get("localId").is_none());
        owner.api.patch(&format!("/v1/sessions/{id}"), &json!({ "metadata": "m2" })).await.expect(200);
        let session = events.expect().await;
        assert_eq!((session.name.as_str(), &data(&session)["metadata"]), ("session", &json!("m2")));
        owner.api.delete(&format!("/v1/sessions/{id}/public-share")).await.expect(200);
        let last = events.expect().await;
        assert_eq!((data(&last), last.retry), (json!({ "reason": "link_ended" }), None));
    }
}
