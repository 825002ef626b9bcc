//! A voice session does not outlive the device, or the token, that began it.

use ensemble_chassis::auth::DeviceKey;
use ensemble_testkit::SOON;
use ensemble_testkit::*;
use serde_json::json;

use crate::fixture::{Fixture, Started, VOICE_KEY};
use crate::person::metadata;

/// A conversation that was begun with this token.
async fn talk(fixture: &Fixture, token: &str, user: &str, session: &str) -> Started {
    let api = Api::new(&fixture.gateway.public_url()).with_token(token);
    let body = json!({ "userId": user, "sessionId": session });
    let start = async || {
        Api::send(api.request("POST", "/v1/voice/session/start").header("x-voice-key", VOICE_KEY).json(&body)).await
    };
    let started = Started::of(&fixture.retry(start).await);
    fixture.double.join(&started.token).unwrap();
    fixture.status_becomes(&started.id, |status| status["state"] == "active").await;
    started
}

/// The agent of a session, with the token of its dispatch.
fn agent(fixture: &Fixture, started: &Started) -> Api {
    let token = metadata(fixture, started)["tools"]["token"].as_str().unwrap().to_owned();
    Api::new(&format!("{}/v1/voice/tools", fixture.gateway.public_url())).with_token(&token)
}

on_both_databases! {
    async fn a_removed_device_loses_its_conversation_and_the_agents_tools(on: Backend) {
        // Nothing but the change of the keys can end it.
        let fixture = Fixture::with(on, &[("VOICE_SWEEP_MS", "600000"), ("VOICE_MAX_SESSIONS_PER_USER", "0")]).await;
        let (alice, issuer) = (fixture.peers.new_user(), fixture.peers.issuer());
        let name = alice.to_string();
        let (stolen, kept) = (DeviceKey([1; 32]), DeviceKey([2; 32]));
        let his = talk(&fixture, &issuer.of_device(alice, stolen), &name, "session-1").await;
        let hers = talk(&fixture, &issuer.of_device(alice, kept), &name, "session-2").await;
        let agents = [agent(&fixture, &his), agent(&fixture, &hers)];
        for agent in &agents {
            agent.get("/runs.list").await.expect(200);
        }
        issuer.remove(stolen);
        fixture.ends(&his.id, "stopped", "expired").await;
        fixture.room_goes(&his.room).await;
        agents[0].get("/runs.list").await.problem(401, "UNAUTHENTICATED");
        // The owner's other device still works.
        agents[1].get("/runs.list").await.expect(200);
        assert_eq!(fixture.status(&hers.id).await["state"], "active");
    }

    async fn a_revoked_token_ends_the_conversation_that_it_began(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, issuer) = (fixture.peers.new_user(), fixture.peers.issuer());
        let (token, id) = issuer.revocable(alice);
        let started = talk(&fixture, &token, &alice.to_string(), "session-1").await;
        let claimed = fixture.talking("user-1", "session-1").await;
        issuer.revoke(id);
        fixture.ends(&started.id, "stopped", "expired").await;
        fixture.room_goes(&started.room).await;
        // An application's session has no person's token that could be refused.
        assert_eq!(fixture.status(&claimed.id).await["state"], "active");
    }

    async fn a_device_that_was_removed_while_no_gateway_ran_loses_its_conversation(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (alice, device) = (fixture.peers.new_user(), DeviceKey([1; 32]));
        let token = fixture.peers.issuer().of_device(alice, device);
        let started = talk(&fixture, &token, &alice.to_string(), "session-1").await;
        fixture.gateway.stop().await;
        fixture.peers.issuer().remove(device);
        let next = start_service::<ensemble_voice_gateway::VoiceGateway>(fixture.vars.clone()).await;
        let api = Api::new(&next.public_url()).with_token(VOICE_KEY);
        let path = format!("/v1/voice/session/{}/status", started.id);
        eventually(SOON, async || api.get(&path).await.expect(200)["endReason"] == "expired").await;
    }
}
