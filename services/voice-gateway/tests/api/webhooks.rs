//! LiveKit's webhooks: forged, repeated, lost, late; and what the reconciler finds without them.

use ensemble_testkit::SOON;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ensemble_doubles::livekit::{API_KEY, API_SECRET, Leave, WebhookFaults};
use ensemble_testkit::*;
use hmac::{Hmac, Mac};
use livekit_api::access_token::AccessToken;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fixture::Fixture;

/// A token of RFC 7519 that LiveKit's library would not create.
fn signed(algorithm: &str, claims: &Value, secret: &str) -> String {
    let head = URL_SAFE_NO_PAD.encode(json!({ "alg": algorithm, "typ": "JWT" }).to_string());
    let content = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(content.as_bytes());
    format!("{content}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

fn unsigned(claims: &Value) -> String {
    let head = URL_SAFE_NO_PAD.encode(json!({ "alg": "none", "typ": "JWT" }).to_string());
    format!("{head}.{}.", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

on_both_databases! {
    async fn only_webhooks_of_livekit_are_accepted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let sid = fixture.double.room(&talk.room).unwrap().sid;
        let body = json!({ "event": "room_finished", "id": "EV_forged", "room": { "name": talk.room, "sid": sid } }).to_string();
        let post = async |authorization: String| {
            let request = Api::new(&fixture.gateway.public_url()).request("POST", "/hooks/livekit");
            Api::send(request.header("authorization", authorization).body(body.clone())).await.status
        };
        let token = |secret: &str, sha256: &str| {
            AccessToken::with_api_key(API_KEY, secret).with_sha256(sha256).to_jwt().unwrap()
        };
        assert_eq!(post(String::new()).await, 401);
        assert_eq!(post("nonsense".to_owned()).await, 401);
        assert_eq!(post(token("another-secret-0123456789-0123456789", "AAAA")).await, 401);
        // The person's own token is signed with the same key, but has no digest.
        assert_eq!(post(talk.token.clone()).await, 401);
        assert_eq!(post(token(API_SECRET, "")).await, 401);
        assert_eq!(post(token(API_SECRET, "AAAA")).await, 401);
        let digest = STANDARD.encode(Sha256::digest(&body));
        let claims = |expires: i64| json!({ "iss": API_KEY, "nbf": 0, "exp": expires, "sha256": digest });
        let (past, future) = (1_000, 4_000_000_000);
        assert_eq!(post(signed("HS256", &claims(past), API_SECRET)).await, 401, "expired long ago");
        assert_eq!(post(signed("none", &claims(future), API_SECRET)).await, 401, "claims to be unsigned");
        assert_eq!(post(unsigned(&claims(future))).await, 401, "has no signature");
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
        // A valid token of the same function, so that the ones above were refused for their faults.
        assert_eq!(post(signed("HS256", &claims(future), API_SECRET)).await, 200);
        fixture.ends(&talk.id, "stopped", "room_finished").await;
    }

    async fn a_webhook_of_livekit_is_applied(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let sid = fixture.double.room(&talk.room).unwrap().sid;
        let body = json!({ "event": "room_finished", "id": "EV_true", "room": { "name": talk.room, "sid": sid } }).to_string();
        assert_eq!(fixture.double.send_raw_webhook(&body).await, 200);
        fixture.ends(&talk.id, "stopped", "room_finished").await;
    }

    async fn unknown_events_are_accepted_and_ignored(on: Backend) {
        let fixture = Fixture::new(on).await;
        let talk = fixture.talking("user-1", "session-1").await;
        for (number, body) in [
            json!({ "event": "egress_started", "egressInfo": { "status": "NEW_STATUS" } }),
            json!({ "event": "participant_danced", "room": { "name": talk.room, "sid": "RM_x" }, "participant": { "kind": 99, "state": {} } }),
            json!({ "event": "room_finished", "room": { "name": "another-gateways-room", "sid": "RM_y" } }),
            json!({ "event": "room_finished", "room": { "name": talk.room, "sid": "RM_of_another_life" } }),
            json!({ "event": "participant_left", "room": { "name": talk.room, "sid": "RM_x" },
                    "participant": { "sid": "PA_older", "identity": talk.identity, "disconnectReason": "CLIENT_INITIATED" } }),
            json!({}),
        ]
        .into_iter()
        .enumerate()
        {
            let mut body = body;
            body["id"] = json!(format!("EV_strange_{number}"));
            assert_eq!(fixture.double.send_raw_webhook(&body.to_string()).await, 200, "{body}");
        }
        assert_eq!(fixture.double.send_raw_webhook("not json").await, 200);
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
    }

    async fn repeated_and_late_webhooks_lead_to_the_same_end(on: Backend) {
        let fixture = Fixture::new(on).await;
        let delay = Duration::from_millis(150);
        fixture.double.set_webhook_faults(WebhookFaults { lost: 0.0, doubled: 1.0, late: 0.8, delay });
        for number in 0..4 {
            let session = format!("session-{number}");
            let talk = fixture.talking("user-1", &session).await;
            fixture.double.leave(&talk.room, &talk.identity, Leave::HangsUp);
            fixture.ends(&talk.id, "stopped", "left").await;
            fixture.room_goes(&talk.room).await;
        }
    }

    async fn a_room_that_others_delete_ends_as_finished_and_not_as_left(on: Backend) {
        // The reconciler is late, so that the webhooks decide: LiveKit reports the departures first.
        let fixture = Fixture::with(on, &[("VOICE_RECONCILE_SECONDS", "600"), ("VOICE_STATUS_FRESH_MS", "600000")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.close_room(&talk.room);
        fixture.ends(&talk.id, "stopped", "room_finished").await;
    }

    async fn the_reconciler_replaces_lost_webhooks(on: Backend) {
        let fixture = Fixture::new(on).await;
        fixture.double.set_webhook_faults(WebhookFaults { lost: 1.0, ..WebhookFaults::default() });
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.leave(&talk.room, &talk.identity, Leave::HangsUp);
        // Only the webhook contains the reason of the departure.
        fixture.ends(&talk.id, "stopped", "left").await;
        let closed = fixture.talking("user-1", "session-2").await;
        fixture.double.close_room(&closed.room);
        fixture.ends(&closed.id, "stopped", "room_finished").await;
    }

    async fn rooms_without_a_session_are_deleted(on: Backend) {
        let fixture = Fixture::new(on).await;
        let started = fixture.start("user-1", "session-1").await;
        fixture.stop(&started.id).await;
        // A room that an old token has created again, and a room that never had a session.
        fixture.double.open_stray_room(&started.room);
        fixture.double.open_stray_room("voice_01890a5d-ac96-774b-bcce-b302099a8057");
        fixture.double.open_stray_room("another-gateways-room");
        eventually(SOON, async || fixture.double.rooms().iter().all(|room| room.name == "another-gateways-room")).await;
        assert_eq!(fixture.double.rooms().len(), 1);
        assert_eq!(fixture.status(&started.id).await["endReason"], "stop_requested");
    }
}
