//! Prompts that wait for their turn.

use super::*;

fn begins(prompt: &str) -> Content {
    let Content::Turn(begun) = turn(TurnState::Started) else { unreachable!() };
    Content::Turn(Turn { prompt_id: Some(prompt.to_owned()), ..begun })
}

impl Session {
    fn said(&self) -> Vec<String> {
        let said = self.view.items().filter_map(|item| match &item.shown {
            Shown::Prompt(prompt, _) => Some(format!("> {}", prompt.text)),
            Shown::Text(part) => Some(part.text.clone()),
            _ => None,
        });
        said.collect()
    }

    fn waiting(&self) -> Vec<&str> {
        self.view.waiting().map(|item| item.local_id.as_str()).collect()
    }
}

#[test]
fn a_prompt_that_has_waited_stands_where_its_turn_begins() {
    let mut session = Session::default();
    session.message(ann(), "p1", None, prompt("first"));
    session.host(receipt("p1", ReceiptOutcome::Done));
    session.host(begins("p1"));
    session.message(ann(), "p2", None, prompt("second"));
    assert_eq!(session.waiting(), ["p2"], "it is not taken yet");
    session.host(receipt("p2", ReceiptOutcome::Queued));
    session.host(text(0, "answer to the first"));
    assert_eq!(session.waiting(), ["p2"]);
    session.host(turn(TurnState::Ended));
    let changed = session.host(begins("p2"));
    session.host(text(1, "answer to the second"));
    assert_eq!(session.said(), ["> first", "answer to the first", "> second", "answer to the second"]);
    assert!(session.waiting().is_empty());
    let moved =
        session.view.items().find(|item| matches!(&item.shown, Shown::Prompt(prompt, _) if prompt.text == "second"));
    let moved = moved.unwrap();
    assert_eq!(moved.shown.taken(), Some(&Taken::Done));
    assert!(changed.items.contains(&moved.id) && session.view.item(moved.id) == Some(moved));
    assert!(session.view.items().zip(session.view.items().skip(1)).all(|(one, next)| one.id + 1 == next.id));
    session.message(ann(), "p2", None, prompt("second"));
    assert_eq!(session.last(), &Shown::Note(Note::RepeatedCommand("p2".to_owned())), "its command is still known");
}

#[test]
fn a_prompt_waits_until_it_is_rejected_or_a_turn_has_begun_without_it() {
    let mut session = Session::default();
    for id in ["p1", "p2", "p3"] {
        session.message(ann(), id, None, prompt(id));
        session.host(receipt(id, ReceiptOutcome::Queued));
    }
    assert_eq!(session.waiting(), ["p1", "p2", "p3"]);
    session.host(receipt("p2", ReceiptOutcome::Rejected));
    assert_eq!(session.waiting(), ["p1", "p3"]);
    session.message(ann(), "p4", None, prompt("p4"));
    session.host(begins("p1"));
    assert_eq!(session.waiting(), ["p3"], "the machine has never answered the last one");
}

#[test]
fn a_prompt_of_an_older_part_waits_unless_its_turn_has_begun() {
    for has_begun in [false, true] {
        let mut all = Session::default();
        let mut taken = Vec::new();
        let mut note = |session: &mut Session, author, id: &str, n: Option<u64>, content: Content| {
            let list = KnownList { version: 1, digest: String::new() };
            let at = Timestamp::from_unix_seconds(0);
            session.seq += 1;
            let message = Ok(Message { local_id: id.to_owned(), at, list, n, content });
            taken.push(Incoming { seq: session.seq, author, digest: String::new(), message });
        };
        note(&mut all, ann(), "p", None, prompt("go"));
        note(&mut all, Author::Host, "h1", Some(1), receipt("p", ReceiptOutcome::Queued));
        note(&mut all, Author::Host, "h2", Some(2), text(0, "still the turn before"));
        if has_begun {
            note(&mut all, Author::Host, "h3", Some(3), begins("p"));
        }
        let mut session = Session::default();
        for newer in taken.iter().skip(2).cloned() {
            session.view.message(newer);
        }
        session.view.older(taken.iter().take(2).cloned());
        assert_eq!(session.waiting().is_empty(), has_begun);
        let shown = session.view.items().next().unwrap().shown.taken().cloned();
        assert_eq!(shown, Some(if has_begun { Taken::Done } else { Taken::Queued }));
    }
}

#[test]
fn a_prompt_that_the_machine_has_lost_waits_no_more() {
    let mut session = Session::default();
    let state = |phase, queue: &[&str]| {
        let text = serde_json::json!({
            "phase": "idle", "agent": "claude", "mode": "ask", "directory": "/w", "keyEpoch": 1, "queue": queue,
        });
        Content::State(Box::new(State { phase, ..serde_json::from_value(text).unwrap() }))
    };
    for id in ["p1", "p2"] {
        session.message(ann(), id, None, prompt(id));
        session.host(receipt(id, ReceiptOutcome::Queued));
    }
    session.host(state(Phase::Working, &[]));
    assert_eq!(session.waiting(), ["p1", "p2"], "one that is given to the agent is in no queue");
    session.host(state(Phase::Parked, &["p2"]));
    assert_eq!(session.waiting(), ["p2"]);
    session.host(state(Phase::Ended, &[]));
    assert!(session.waiting().is_empty());
}
