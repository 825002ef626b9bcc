//! Every event in every state: what may follow, what is refused, and that an ended session stays ended.

use std::time::Duration;

use super::*;

const RULES: Rules = Rules {
    agent_join: Duration::from_secs(10),
    agent_gone: Duration::from_secs(1),
    agent_ask: Duration::from_secs(2),
    agent_ready: Duration::from_secs(20),
    agent_stable: Duration::from_secs(60),
    agent_silent: Duration::from_secs(6),
    max_dispatches: 3,
    human_join: Duration::from_secs(120),
    human_return: Duration::from_secs(30),
    create: Duration::from_secs(15),
    settle: Duration::from_secs(5),
    delete_retry: Duration::from_secs(2),
};

const ROOM: &str = "RM_1";
const HUMAN: &str = "PA_human";
const AGENT: &str = "PA_agent";

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_774_483_200 + second)
}

fn then(state: State, event: Event, second: i64) -> State {
    let shown = format!("{event:?} in {state:?}");
    state.next(event, at(second), &RULES).unwrap_or_else(|_| panic!("refused: {shown}"))
}

fn human_joined() -> Event {
    Event::HumanJoined { room: ROOM.into(), sid: HUMAN.into() }
}

fn human_left(on_purpose: bool) -> Event {
    Event::HumanLeft { sid: HUMAN.into(), on_purpose }
}

fn agent_joined() -> Event {
    Event::AgentJoined { room: ROOM.into(), identity: "agent-1".into(), sid: AGENT.into() }
}

fn creating() -> State {
    State::Creating { give_up_at: at(15), early_agent: None }
}

fn up() -> State {
    then(creating(), Event::RoomUp { sid: ROOM.into() }, 0)
}

fn active() -> State {
    [agent_joined(), Event::AgentReady, human_joined()].into_iter().fold(up(), |state, event| then(state, event, 1))
}

fn all_states() -> Vec<State> {
    let with_agent = then(up(), agent_joined(), 1);
    let away = then(active(), human_left(false), 2);
    let ending = then(active(), Event::StopRequested, 3);
    let over = then(ending.clone(), Event::RoomDeleted, 4);
    let failed = then(creating(), Event::StartFailed, 3);
    let early = then(creating(), agent_joined(), 1);
    vec![creating(), early, up(), with_agent, active(), away, ending, over, failed]
}

fn all_events() -> Vec<Event> {
    vec![
        Event::RoomUp { sid: ROOM.into() },
        Event::StartFailed,
        human_joined(),
        human_left(true),
        human_left(false),
        Event::HumanUnseen { sid: HUMAN.into() },
        Event::HumanOverdue,
        agent_joined(),
        Event::AgentReady,
        Event::AgentLeft { sid: AGENT.into() },
        Event::AgentUnseen { sid: AGENT.into() },
        Event::AgentBeat,
        Event::ProbeBegun,
        Event::AgentSilent { sid: AGENT.into(), expected: at(7) },
        Event::Redispatched,
        Event::WatchBegun,
        Event::AgentAsked,
        Event::AgentUnavailable,
        Event::StopRequested,
        Event::Replaced,
        Event::Expired,
        Event::RoomGone { sid: ROOM.into() },
        Event::DeleteBegun,
        Event::RoomDeleted,
    ]
}

fn rank(state: &State) -> u8 {
    match state {
        State::Creating { .. } => 0,
        State::Live(_) => 1,
        State::Ending { .. } => 2,
        State::Over { .. } => 3,
    }
}

#[test]
fn every_pair_goes_forward_or_is_refused() {
    for state in all_states() {
        for event in all_events() {
            let Ok(next) = state.clone().next(event.clone(), at(5), &RULES) else { continue };
            assert!(rank(&next) >= rank(&state), "{event:?} leads back from {state:?} to {next:?}");
            if let (Some(before), Some(after)) = (state.end(), next.end()) {
                assert_eq!(before, after, "{event:?} rewrites an end");
            }
            if let Some(active_at) = state.active_at() {
                assert_eq!(next.active_at(), Some(active_at), "{event:?} forgets when it became active");
            }
        }
    }
}

#[test]
fn an_ended_session_stays_ended() {
    let over = then(then(active(), Event::StopRequested, 3), Event::RoomDeleted, 4);
    for event in all_events() {
        assert!(over.clone().next(event.clone(), at(5), &RULES).is_err(), "{event:?}");
    }
}

#[test]
fn the_table_of_ends() {
    let reason = |state: State| state.end().map(|end| end.reason);
    for (state, event, expected) in [
        (creating(), Event::StartFailed, EndReason::StartFailed),
        (up(), Event::StartFailed, EndReason::StartFailed),
        (up(), Event::HumanOverdue, EndReason::RoomFinished),
        (up(), Event::AgentUnavailable, EndReason::AgentUnavailable),
        (active(), human_left(true), EndReason::Left),
        (then(active(), human_left(false), 2), Event::HumanOverdue, EndReason::Left),
        (then(active(), human_left(false), 2), Event::RoomGone { sid: ROOM.into() }, EndReason::Left),
        (active(), Event::RoomGone { sid: ROOM.into() }, EndReason::RoomFinished),
        (active(), Event::StopRequested, EndReason::StopRequested),
        (active(), Event::Replaced, EndReason::Replaced),
        (active(), Event::Expired, EndReason::Expired),
    ] {
        assert_eq!(reason(then(state.clone(), event.clone(), 9)), Some(expected), "{event:?} in {state:?}");
    }
}

#[test]
fn active_needs_a_person_and_an_agent_that_is_ready() {
    let with_human = then(up(), human_joined(), 1);
    assert_eq!(with_human.name(), VoiceState::Starting);
    let with_both = then(with_human, agent_joined(), 2);
    assert_eq!(with_both.name(), VoiceState::Starting);
    let active = then(with_both, Event::AgentReady, 3);
    assert_eq!((active.name(), active.active_at()), (VoiceState::Active, Some(at(3))));
}

#[test]
fn unknown_and_late_participants_change_nothing() {
    for event in [
        Event::RoomGone { sid: "RM_other".into() },
        Event::HumanJoined { room: "RM_other".into(), sid: HUMAN.into() },
        Event::HumanLeft { sid: "PA_older".into(), on_purpose: true },
        Event::AgentLeft { sid: "PA_older".into() },
        human_joined(),
        agent_joined(),
        Event::AgentReady,
        Event::StartFailed,
    ] {
        assert!(active().next(event.clone(), at(5), &RULES).is_err(), "{event:?}");
    }
}

#[test]
fn a_departure_that_is_reported_before_its_arrival_counts() {
    let departed = then(up(), human_left(true), 1);
    let ended = then(departed, human_joined(), 2);
    assert_eq!(ended.end().map(|end| end.reason), Some(EndReason::Left));
    let cut_off = then(then(up(), human_left(false), 1), human_joined(), 2);
    assert!(matches!(cut_off.live().map(|live| &live.human), Some(Human::Away { .. })));
}

#[test]
fn the_agent_may_report_before_livekit_does() {
    let spoke = then(up(), Event::AgentReady, 1);
    assert!(!spoke.live().unwrap().agent.is_ready());
    assert!(then(spoke, agent_joined(), 2).live().unwrap().agent.is_ready());
}

#[test]
fn a_webhook_that_is_faster_than_the_start_waits_for_it() {
    let early = then(creating(), agent_joined(), 1);
    assert!(early.live().is_none(), "only its start makes a session live");
    let agent_sid = |state: State| state.live().and_then(|live| live.agent.sid().cloned());
    let live = then(early.clone(), Event::RoomUp { sid: ROOM.into() }, 2);
    assert_eq!(agent_sid(live).as_deref(), Some(AGENT));
    let elsewhere = then(early.clone(), Event::RoomUp { sid: "RM_other".into() }, 2);
    assert_eq!(agent_sid(elsewhere), None);
    let left = then(early.clone(), Event::AgentLeft { sid: AGENT.into() }, 2);
    assert_eq!(agent_sid(then(left, Event::RoomUp { sid: ROOM.into() }, 3)), None);
    assert_eq!(then(early, Event::StartFailed, 3).end().map(|end| end.reason), Some(EndReason::StartFailed));
    assert!(creating().next(human_joined(), at(1), &RULES).is_err());
}

#[test]
fn an_agent_is_dispatched_again_at_most_three_times() {
    let mut state = up();
    for round in 1..=3 {
        state = then(state, Event::Redispatched, 10 * round);
    }
    assert!(state.clone().next(Event::Redispatched, at(50), &RULES).is_err());
    assert_eq!(then(state, Event::AgentUnavailable, 60).name(), VoiceState::Error);
}

#[test]
fn an_agent_that_was_ready_long_enough_resets_the_count_of_dispatches() {
    let lost = |after: i64| {
        let again = then(then(up(), Event::Redispatched, 1), agent_joined(), 2);
        let ready = then(again, Event::AgentReady, 3);
        then(ready, Event::AgentLeft { sid: AGENT.into() }, 3 + after).live().unwrap().redispatches
    };
    assert_eq!((lost(59), lost(60)), (1, 0));
}

#[test]
fn an_agent_that_never_reports_ready_counts_as_ready_in_the_end() {
    let joined = then(up(), agent_joined(), 0);
    let asked = then(joined, Event::AgentAsked, 2);
    assert!(!asked.live().unwrap().agent.is_ready());
    assert!(then(asked, Event::AgentAsked, 20).live().unwrap().agent.is_ready());
}

#[test]
fn attempts_to_delete_back_off() {
    let mut state = then(active(), Event::StopRequested, 0);
    let mut waits = Vec::new();
    for _ in 0..6 {
        state = then(state, Event::DeleteBegun, 0);
        let State::Ending { delete_at, .. } = &state else { panic!("{state:?}") };
        waits.push(delete_at.since(at(0)).as_secs());
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 32]);
    assert_eq!(then(state, Event::RoomDeleted, 1).name(), VoiceState::Stopped);
}

#[test]
fn the_late_webhook_of_a_past_arrival_changes_nothing() {
    let away = then(active(), human_left(false), 2);
    assert!(away.clone().next(human_joined(), at(3), &RULES).is_err());
    let back = then(away, Event::HumanJoined { room: ROOM.into(), sid: "PA_again".into() }, 3);
    assert!(matches!(back.live().unwrap().human, Human::Present { .. }));
    // Only missing in a list: it may appear again.
    let unseen = then(active(), Event::HumanUnseen { sid: HUMAN.into() }, 2);
    assert!(matches!(then(unseen, human_joined(), 3).live().unwrap().human, Human::Present { .. }));

    for lost in [
        then(active(), Event::AgentLeft { sid: AGENT.into() }, 2),
        then(up(), Event::AgentLeft { sid: AGENT.into() }, 2),
    ] {
        assert!(lost.next(agent_joined(), at(3), &RULES).is_err());
    }
    let unseen = then(active(), Event::AgentUnseen { sid: AGENT.into() }, 2);
    assert!(then(unseen, agent_joined(), 3).live().unwrap().agent.sid().is_some());
}

#[test]
fn only_one_of_two_watchdogs_may_check() {
    let lost = then(active(), Event::AgentLeft { sid: AGENT.into() }, 2);
    assert!(lost.clone().next(Event::WatchBegun, at(2), &RULES).is_err(), "too early");
    let begun = then(lost, Event::WatchBegun, 3);
    assert!(begun.next(Event::WatchBegun, at(3), &RULES).is_err());
}

#[test]
fn an_agent_that_fell_silent_is_lost_once_and_for_all() {
    let silent = |expected| Event::AgentSilent { sid: AGENT.into(), expected: at(expected) };
    let refused = |state: &State, event: Event, second| state.clone().next(event, at(second), &RULES).is_err();
    assert!(refused(&active(), Event::ProbeBegun, 60), "one that never sent a heartbeat is not asked");
    let beats = then(active(), Event::AgentBeat, 2);
    assert!(refused(&beats, Event::ProbeBegun, 7), "its heartbeat is not due before the 8th second");
    let asked = then(beats, Event::ProbeBegun, 8);
    assert!(refused(&asked, Event::ProbeBegun, 20), "it is asked already");
    let beats_again = then(asked.clone(), Event::AgentBeat, 9);
    assert!(refused(&beats_again, silent(24), 10), "a heartbeat came while it was asked");
    let lost = then(asked, silent(24), 10);
    let live = lost.live().unwrap();
    assert!(live.agent.is_awaited() && live.active_at.is_some());
    for late in [Event::AgentBeat, agent_joined(), Event::AgentLeft { sid: AGENT.into() }, silent(24)] {
        assert!(refused(&lost, late.clone(), 11), "{late:?}");
    }
}

#[test]
fn the_heartbeat_that_is_expected_is_the_same_after_it_was_stored() {
    let now = Timestamp::from_micros(at(2).micros() + 123_456);
    let beats = active().next(Event::AgentBeat, now, &RULES).unwrap_or_else(|_| panic!("refused"));
    let stored: State = serde_json::from_value(serde_json::to_value(&beats).unwrap()).unwrap();
    let expected = |state: &State| match state.live().map(|live| &live.agent) {
        Some(Agent::Ready { beat_by, .. }) => *beat_by,
        other => panic!("{other:?}"),
    };
    assert_eq!(expected(&beats), expected(&stored));
}
