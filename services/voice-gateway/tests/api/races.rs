//! Starts that compete for one pair of user and session: which one is live in the end, and that the others stay ended.

use ensemble_testkit::SOON;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use ensemble_doubles::livekit::{AgentPlan, Fault};
use ensemble_testkit::*;
use futures_util::future::{join_all, ready};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Started};

const ROUNDS: usize = 30;
const STARTS: usize = 10;
/// Rounds at once, each for a user of its own.
const AT_ONCE: usize = 3;
/// No round begins after this time, so that a slow machine does fewer of them.
const TEST_TIME: Duration = Duration::from_secs(15);

/// The session of a room, by the room's name.
fn session_of(room: &str) -> String {
    room.trim_start_matches("voice_").to_owned()
}

fn is_open(status: &Value) -> bool {
    matches!(status["state"].as_str(), Some("starting" | "active"))
}

/// What one round left behind.
struct Round {
    winner: String,
    others: Vec<String>,
}

/// Ten starts at once for one pair, half of them at each of two replicas.
async fn round(fixture: &Fixture, replicas: &[Api; 2], number: usize) -> Round {
    let user = format!("user-{number}");
    let body = json!({ "userId": user, "sessionId": "session" });
    let starts = (0..STARTS).map(|start| replicas[start % 2].post("/v1/voice/session/start", &body));
    let answers = join_all(starts).await;
    let accepted: HashSet<String> =
        answers.iter().filter(|answer| answer.status == 200).map(|answer| Started::of(answer).id).collect();

    let is_of_user = |room: &String| {
        let metadata = fixture.double.dispatch_metadata(room);
        metadata.is_some_and(|text| serde_json::from_str::<Value>(&text).unwrap()["userId"] == user)
    };
    let created = fixture.double.created_rooms().into_iter().filter(is_of_user);
    let sessions: Vec<String> = created.map(|room| session_of(&room)).collect();
    let mut open = Vec::new();
    eventually(SOON, async || {
        open.clear();
        for id in &sessions {
            let status = fixture.status(id).await;
            if is_open(&status) {
                open.push(id.clone());
            }
        }
        open.len() <= 1
    })
    .await;
    if accepted.is_empty() {
        assert!(open.is_empty(), "round {number}: every start was refused, and {open:?} is live");
        return Round { winner: String::new(), others: sessions };
    }
    assert_eq!(open.len(), 1, "round {number}: of {accepted:?} none is live");
    let winner = open.remove(0);
    assert!(accepted.contains(&winner), "round {number}: {winner} was refused and is live");
    for id in accepted.iter().filter(|id| **id != winner) {
        assert_eq!(fixture.status(id).await["endReason"], "replaced", "round {number}");
    }
    Round { others: sessions.into_iter().filter(|id| *id != winner).collect(), winner }
}

#[test]
fn of_ten_starts_at_two_replicas_one_accepted_start_stays() {
    run(async {
        let fixture = Fixture::with(
            Backend::Postgres,
            &[
                ("VOICE_STARTS_PER_MINUTE_PER_KEY", "0"),
                ("VOICE_CREATE_TIMEOUT_MS", "200"),
                ("VOICE_BREAKER_FAILURES", "100000"),
            ],
        )
        .await;
        let replica = fixture.replica().await;
        let replicas = [fixture.api.clone(), fixture.api.at(&replica.public_url())];
        // Some rooms are created and their starts fail, so that their agents' webhooks arrive for a refused start.
        fixture.double.fail_randomly(0.3, vec![Fault::EffectWithoutAnswer(Duration::from_millis(400))], 7);
        let begun = Instant::now();
        let numbers = stream::iter(0..ROUNDS).take_while(|_| ready(begun.elapsed() < TEST_TIME));
        let rounds = numbers.map(|number| round(&fixture, &replicas, number)).buffer_unordered(AT_ONCE);
        let rounds: Vec<Round> = rounds.collect().await;
        fixture.double.clear_faults();
        for round in &rounds {
            for id in &round.others {
                assert!(!is_open(&fixture.status(id).await), "{id} came back");
            }
            if !round.winner.is_empty() {
                assert!(is_open(&fixture.status(&round.winner).await), "the winner {} was ended", round.winner);
                fixture.stop(&round.winner).await;
            }
        }
        eventually(SOON, async || fixture.double.rooms().is_empty()).await;
        assert!(rounds.iter().any(|round| !round.winner.is_empty()));
        assert!(replica.stop().await);
    });
}

on_both_databases! {
    async fn a_start_whose_caller_is_gone_replaces_nothing(on: Backend) {
        let fixture = Fixture::with(on, &[("VOICE_CREATE_TIMEOUT_MS", "3000"), ("VOICE_CREATE_GIVE_UP_MS", "2000")]).await;
        let talk = fixture.talking("user-1", "session-1").await;
        fixture.double.plan_agents(AgentPlan::default());
        fixture.double.fail_next("CreateRoom", Fault::EffectWithoutAnswer(Duration::from_millis(1_500)), 2);
        let body = json!({ "userId": "user-1", "sessionId": "session-1" });
        let request = fixture.api.request("POST", "/v1/voice/session/start").json(&body);
        let caller = tokio::spawn(Api::try_send(request));
        eventually(SOON, async || fixture.double.created_rooms().len() == 2).await;
        caller.abort();
        let abandoned = fixture.double.created_rooms().remove(1);
        // The room exists and its agent joins it, but no caller waits for the answer.
        let ended = fixture.ends(&session_of(&abandoned), "error", "start_failed").await;
        assert!(ended["activeAt"].is_null());
        fixture.room_goes(&abandoned).await;
        assert_eq!(fixture.status(&talk.id).await["state"], "active");
    }
}
