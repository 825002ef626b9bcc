//! Agents that die without LiveKit's notice: their heartbeats stop, and they do not answer.

use ensemble_testkit::SOON;
use std::time::Duration;

use ensemble_doubles::livekit::{AgentPlan, Rpc};
use ensemble_testkit::*;
use serde_json::{Value, json};

use crate::agent::{AgentClient, agent_of};
use crate::fixture::Fixture;

const BOUND: (&str, &str) = ("VOICE_AGENT_SILENT_SECONDS", "600");
const PAST_BOUND: Duration = Duration::from_secs(601);
/// What asking an agent may take, before the next bound begins.
const QUESTION: Duration = Duration::from_secs(10);

async fn beat(agent: &AgentClient) {
    agent.api.post(&agent.events, &json!({ "type": "heartbeat" })).await.expect(200);
}

fn questions(fixture: &Fixture, room: &str) -> usize {
    fixture.double.received(room).iter().filter(|one| one.name == "voice.alive").count()
}

/// Lets time pass, and waits until the timers have done what was due: they have ended a session that no person joined.
async fn pass_and_look(fixture: &Fixture, time: Duration) {
    let empty = fixture.start("absent", "session-of-absent").await;
    fixture.pass(time).await;
    fixture.ends(&empty.id, "stopped", "room_finished").await;
}

on_both_databases! {
    async fn an_agent_that_falls_silent_is_replaced_although_livekit_lists_it(on: Backend) {
        let fixture = Fixture::with(on, &[BOUND]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        beat(&agent_of(&fixture, &talk)).await;
        fixture.double.plan_agents(AgentPlan { held: true, ..AgentPlan::default() });
        fixture.double.silence_agents(&talk.room);
        fixture.pass(PAST_BOUND).await;
        fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
        assert_eq!(fixture.double.room(&talk.room).map(|room| room.agents.len()), Some(1), "it is still listed");
        fixture.double.release();
        fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == true).await;
        assert_eq!(fixture.double.dispatches(&talk.room), 2);
        fixture.text(&talk.id, "to the new one").await;
        fixture.status_becomes(&talk.id, |status| status["pending"]["texts"] == 0).await;
        assert_eq!(fixture.double.texts(&talk.room), ["to the new one"]);
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
        assert!(fixture.metrics().await.contains("voice_agents_silent_total{service=\"voice-gateway\"} 1"));
    }

    async fn a_late_heartbeat_of_the_old_one_changes_nothing(on: Backend) {
        let fixture = Fixture::with(on, &[BOUND, ("VOICE_AGENT_JOIN_TIMEOUT_SECONDS", "600")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let old = agent_of(&fixture, &talk);
        beat(&old).await;
        // The next one comes late.
        fixture.double.plan_agents(AgentPlan { held: true, ..AgentPlan::default() });
        fixture.double.silence_agents(&talk.room);
        fixture.pass(PAST_BOUND).await;
        fixture.status_becomes(&talk.id, |status| status["agent"]["ready"] == false).await;
        eventually(SOON, async || fixture.double.dispatches(&talk.room) == 2).await;
        for _ in 0..10 {
            beat(&old).await;
            assert_eq!(fixture.status(&talk.id).await["agent"]["ready"], false);
        }
        fixture.double.release();
        eventually(SOON, async || {
            beat(&old).await;
            fixture.status(&talk.id).await["agent"]["ready"] == true
        })
        .await;
        // The new one sends none, so it is never asked, whatever the old one sends.
        beat(&old).await;
        let asked = questions(&fixture, &talk.room);
        pass_and_look(&fixture, PAST_BOUND).await;
        assert_eq!((fixture.double.dispatches(&talk.room), questions(&fixture, &talk.room)), (2, asked));
        assert_eq!(fixture.status(&talk.id).await["agent"]["ready"], true);
    }

    async fn an_agent_that_answers_is_left_alone(on: Backend) {
        for rpc in [Rpc::Answers, Rpc::NotRegistered] {
            let fixture = Fixture::with(on, &[BOUND]).await;
            fixture.double.plan_agents(AgentPlan { rpc, ..AgentPlan::default() });
            let talk = fixture.talking("user-1", "session-1").await;
            beat(&agent_of(&fixture, &talk)).await;
            let before = fixture.double.calls("PerformRpc");
            for asked in 1..=2 {
                fixture.pass(PAST_BOUND + QUESTION).await;
                eventually(SOON, async || fixture.double.calls("PerformRpc") >= before + asked).await;
            }
            pass_and_look(&fixture, PAST_BOUND).await;
            assert_eq!(fixture.double.dispatches(&talk.room), 1);
            assert_eq!(fixture.status(&talk.id).await["agent"]["ready"], true);
        }
    }

    async fn one_that_beats_is_not_asked_and_the_dispatch_says_how_often(on: Backend) {
        let fixture = Fixture::with(on, &[BOUND]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        assert_eq!(metadata["gateway"]["heartbeatSeconds"], 200.0);
        let agent = agent_of(&fixture, &talk);
        for _ in 0..4 {
            beat(&agent).await;
            fixture.pass(Duration::from_secs(200)).await;
        }
        beat(&agent).await;
        pass_and_look(&fixture, Duration::from_secs(200)).await;
        assert_eq!(questions(&fixture, &talk.room), 0);
    }

    async fn without_a_bound_none_are_asked_for(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_AGENT_SILENT_SECONDS", "0")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        let metadata: Value = serde_json::from_str(&fixture.double.dispatch_metadata(&talk.room).unwrap()).unwrap();
        assert!(metadata["gateway"]["heartbeatSeconds"].is_null());
        beat(&agent_of(&fixture, &talk)).await;
        fixture.double.silence_agents(&talk.room);
        pass_and_look(&fixture, PAST_BOUND).await;
        assert_eq!((fixture.double.dispatches(&talk.room), questions(&fixture, &talk.room)), (1, 0));
    }
}
