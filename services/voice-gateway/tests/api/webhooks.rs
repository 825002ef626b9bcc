//! LiveKit's webhooks: forged, repeated, lost, late; and what the reconciler finds without them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ensemble_livekit_double::{API_KEY, API_SECRET, Leave, WebhookFaults};
use ensemble_testkit::*;
use hmac::{Hmac, Mac};
use livekit_api::access_token::AccessToken;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::stage::{Stage, TIMEOUT};

/// A token as RFC 7519 has it, which livekit's own maker would not make.
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
    async fn only_livekit_is_believed(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        let sid = stage.double.room(&talk.room).unwrap().sid;
        let body = json!({ "event": "room_finished", "id": "EV_forged", "room": { "name": talk.room, "sid": sid } }).to_string();
        let post = async |authorization: String| {
            let request = Api::new(&stage.gateway.public_url()).request("POST", "/hooks/livekit");
            Api::send(request.header("authorization", authorization).body(body.clone())).await.status
        };
        let token = |secret: &str, sha256: &str| {
            AccessToken::with_api_key(API_KEY, secret).with_sha256(sha256).to_jwt().unwrap()
        };
        assert_eq!(post(String::new()).await, 401);
        assert_eq!(post("nonsense".to_owned()).await, 401);
        assert_eq!(post(token("another-secret-of-somebody-0123456789", "AAAA")).await, 401);
        // The person's own token is signed with the same key, and names no digest.
        assert_eq!(post(talk.token.clone()).await, 401);
        assert_eq!(post(token(API_SECRET, "")).await, 401);
        assert_eq!(post(token(API_SECRET, "AAAA")).await, 401);
        let digest = STANDARD.encode(Sha256::digest(&body));
        let claims = |expires: i64| json!({ "iss": API_KEY, "nbf": 0, "exp": expires, "sha256": digest });
        let (past, future) = (1_000, 4_000_000_000);
        assert_eq!(post(signed("HS256", &claims(past), API_SECRET)).await, 401, "expired long ago");
        assert_eq!(post(signed("none", &claims(future), API_SECRET)).await, 401, "says that it is not signed");
        assert_eq!(post(unsigned(&claims(future))).await, 401, "has no signature");
        assert_eq!(stage.status(&talk.id).await["state"], "active");
        // The same by the same hand, and valid: what was refused above was refused for what is wrong with it.
        assert_eq!(post(signed("HS256", &claims(future), API_SECRET)).await, 200);
        stage.ends(&talk.id, "stopped", "room_finished").await;
    }

    async fn a_webhook_as_livekit_sends_it_is_believed(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        let sid = stage.double.room(&talk.room).unwrap().sid;
        let body = json!({ "event": "room_finished", "id": "EV_true", "room": { "name": talk.room, "sid": sid } }).to_string();
        assert_eq!(stage.double.send_raw_webhook(&body).await, 200);
        stage.ends(&talk.id, "stopped", "room_finished").await;
    }

    async fn what_is_strange_is_accepted_and_ignored(on: Backend) {
        let stage = Stage::new(on).await;
        let talk = stage.talking("user-1", "session-1").await;
        for (number, body) in [
            json!({ "event": "egress_started", "egressInfo": { "status": "NEW_STATUS" } }),
            json!({ "event": "participant_danced", "room": { "name": talk.room, "sid": "RM_x" }, "participant": { "kind": 99, "state": {} } }),
            json!({ "event": "room_finished", "room": { "name": "somebody-elses", "sid": "RM_y" } }),
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
            assert_eq!(stage.double.send_raw_webhook(&body.to_string()).await, 200, "{body}");
        }
        assert_eq!(stage.double.send_raw_webhook("not json").await, 200);
        assert_eq!(stage.status(&talk.id).await["state"], "active");
    }

    async fn repeated_and_late_webhooks_lead_to_the_same_end(on: Backend) {
        let stage = Stage::new(on).await;
        let delay = Duration::from_millis(150);
        stage.double.disturb_webhooks(WebhookFaults { lost: 0.0, doubled: 1.0, late: 0.8, delay });
        for number in 0..4 {
            let session = format!("session-{number}");
            let talk = stage.talking("user-1", &session).await;
            stage.double.leave(&talk.room, &talk.identity, Leave::HangsUp);
            stage.ends(&talk.id, "stopped", "left").await;
            stage.room_goes(&talk.room).await;
        }
    }

    async fn without_webhooks_the_reconciler_sees_it_all(on: Backend) {
        let stage = Stage::new(on).await;
        stage.double.disturb_webhooks(WebhookFaults { lost: 1.0, ..WebhookFaults::default() });
        let talk = stage.talking("user-1", "session-1").await;
        stage.double.leave(&talk.room, &talk.identity, Leave::HangsUp);
        // That it was on purpose only a webhook could tell.
        stage.ends(&talk.id, "stopped", "left").await;
        let closed = stage.talking("user-1", "session-2").await;
        stage.double.close_room(&closed.room);
        stage.ends(&closed.id, "stopped", "room_finished").await;
    }

    async fn rooms_without_a_session_are_deleted(on: Backend) {
        let stage = Stage::new(on).await;
        let started = stage.start("user-1", "session-1").await;
        stage.stop(&started.id).await;
        // An old token has brought it back; and one that never had a session.
        stage.double.open_stray_room(&started.room);
        stage.double.open_stray_room("voice_01890a5d-ac96-774b-bcce-b302099a8057");
        stage.double.open_stray_room("somebody-elses-room");
        eventually(TIMEOUT, async || stage.double.rooms().iter().all(|room| room.name == "somebody-elses-room")).await;
        assert_eq!(stage.double.rooms().len(), 1);
        assert_eq!(stage.status(&started.id).await["endReason"], "stop_requested");
    }
}
