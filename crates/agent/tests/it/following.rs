//! A turn of codex that ran on while no client was connected: nothing of it is missing, and nothing is said twice.

use ensemble_agent::{
    Attended, Checkpoint, Command, Driver, Event, Exit, Kind, Line, Output, PartKind, Prompt, Start, driver,
};
use ensemble_protocol::transcript::words::{Mode, StopReason, ToolStatus};
use serde_json::{Value, json};

fn start(checkpoint: Option<Checkpoint>) -> Start {
    Start {
        directory: "/w".to_owned(),
        session_id: "01890a5d-ac96-474b-bcce-b302099a8057".to_owned(),
        mode: Mode::Ask,
        model: None,
        resume: checkpoint.as_ref().map(|_| "s".to_owned()),
        fork: false,
        cost_before: 0.0,
        as_root: false,
        checkpoint,
        mcp_servers: Vec::new(),
        private: None,
        attended: Attended::People,
    }
}

struct Live(Box<dyn Driver>);

impl Live {
    fn new(checkpoint: Option<Checkpoint>) -> Self {
        let mut live = Self(driver(Kind::Codex, start(checkpoint)));
        live.0.begin();
        live
    }

    fn line(&mut self, message: &Value) -> Output {
        self.0.line(&Line::Text(message.to_string()))
    }

    fn notice(&mut self, method: &str, params: Value) -> Vec<Event> {
        let mut params = params;
        params["threadId"] = json!("s");
        self.line(&json!({"method": method, "params": params})).events
    }

    /// Answers the request with this method, which was written last or before.
    fn answer(&mut self, id: u64, result: Value) -> Output {
        self.line(&json!({"id": id, "result": result}))
    }
}

fn texts(events: &[Event]) -> Vec<&str> {
    let said = events.iter().filter_map(|event| match event {
        Event::Complete { text, .. } => Some(text.as_str()),
        _ => None,
    });
    said.collect()
}

/// In a turn that has said "one", runs a command, and has begun to say "two".
fn in_a_turn() -> Live {
    let mut live = Live::new(None);
    live.answer(1, json!({}));
    live.answer(2, json!({"thread": {"id": "s"}}));
    live.answer(3, json!({"data": []}));
    let prompt = Prompt { id: "p".to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false };
    live.0.command(Command::Prompt(prompt)).unwrap();
    assert!(live.0.checkpoint().is_none(), "the prompt may be done or not");
    live.answer(4, json!({"turn": {"id": "t"}}));
    live.notice("item/completed", json!({"item": {"type": "agentMessage", "id": "m1", "text": "one"}}));
    let command = json!({"type": "commandExecution", "id": "c1", "command": "make", "status": "inProgress"});
    live.notice("item/started", json!({"item": command}));
    live.notice("item/agentMessage/delta", json!({"itemId": "m2", "delta": "tw"}));
    live
}

/// Another driver that has resumed the thread.
fn resumed(checkpoint: Checkpoint) -> Live {
    let kept = serde_json::to_value(&checkpoint).unwrap();
    let mut live = Live::new(Some(serde_json::from_value(kept).unwrap()));
    live.answer(1, json!({}));
    let opened = live.answer(2, json!({"thread": {"id": "s"}}));
    assert!(opened.lines.iter().any(|line| line.contains("thread/turns/list")), "{:?}", opened.lines);
    assert!(!opened.events.iter().any(|event| matches!(event, Event::TurnStarted(_))), "it has begun before");
    live.answer(3, json!({"data": []}));
    live.answer(5, json!({"data": []}));
    live
}

#[test]
fn what_was_missed_is_said_before_what_is_new() {
    let mut live = resumed(in_a_turn().0.checkpoint().unwrap());
    // The turn continues while the list is read.
    let held = live.notice("item/completed", json!({"item": {"type": "agentMessage", "id": "m4", "text": "four"}}));
    assert!(held.is_empty());
    live.notice("item/completed", json!({"item": {"type": "agentMessage", "id": "m3", "text": "three"}}));
    assert!(live.0.checkpoint().is_none(), "what is held is known here only");
    live.answer(4, json!({"data": [{"id": "x", "status": "completed"}, {"id": "t", "status": "inProgress"}]}));
    let item = |item: Value| json!({"turnId": "t", "item": item});
    let done = json!({
        "type": "commandExecution", "id": "c1", "command": "make", "status": "completed", "aggregatedOutput": "ok", "exitCode": 0,
    });
    let page = live.answer(
        6,
        json!({"data": [item(json!({"type": "agentMessage", "id": "m1", "text": "one"})), item(done)], "nextCursor": "more"}),
    );
    assert!(page.lines[0].contains("more"), "{:?}", page.lines);
    assert!(matches!(&page.events[..], [Event::Tool(call)] if call.status == Some(ToolStatus::Completed)), "{page:?}");
    let rest = live.answer(
        7,
        json!({"data": [item(json!({"type": "agentMessage", "id": "m2", "text": "two"})),
                        item(json!({"type": "agentMessage", "id": "m3", "text": "three"}))], "nextCursor": null}),
    );
    assert_eq!(texts(&rest.events), ["two", "three", "four"]);
    let parts: Vec<u32> = rest
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Complete { part, .. } => Some(*part),
            _ => None,
        })
        .collect();
    assert_eq!(parts, [1, 2, 3], "the count continues");

    // From here on the turn is like any other, but a text whose beginning is not known is said when it is whole.
    assert!(live.notice("item/agentMessage/delta", json!({"itemId": "m5", "delta": "ve"})).is_empty());
    let whole = live.notice("item/completed", json!({"item": {"type": "agentMessage", "id": "m5", "text": "five"}}));
    assert_eq!(texts(&whole), ["five"]);
    live.notice("item/started", json!({"item": {"type": "agentMessage", "id": "m6", "text": ""}}));
    let grown = live.notice("item/agentMessage/delta", json!({"itemId": "m6", "delta": "six"}));
    assert!(matches!(&grown[..], [Event::Delta { kind: PartKind::Text, .. }]), "{grown:?}");
    let asked = live.line(&json!({"id": 9, "method": "item/commandExecution/requestApproval", "params": {
        "threadId": "s", "turnId": "t", "itemId": "c2", "command": "touch a",
    }}));
    assert!(matches!(&asked.events[..], [Event::Permission(_)]), "{asked:?}");
    let ended = live.notice("turn/completed", json!({"turn": {"id": "t", "status": "completed"}}));
    assert!(matches!(ended.last(), Some(Event::TurnEnded { stop: StopReason::EndTurn, .. })), "{ended:?}");
}

#[test]
fn a_turn_that_has_ended_meanwhile_ends() {
    // After the end the driver asks which commands still run. It ends those of an interrupted turn first.
    for (status, stop, next) in [("completed", StopReason::EndTurn, 8), ("interrupted", StopReason::Cancelled, 9)] {
        let mut live = resumed(in_a_turn().0.checkpoint().unwrap());
        live.answer(4, json!({"data": [{"id": "t", "status": status}]}));
        let item = json!({"turnId": "t", "item": {"type": "agentMessage", "id": "m2", "text": "two"}});
        let events = live.answer(6, json!({"data": [item]})).events;
        assert_eq!(texts(&events), ["two"]);
        assert!(matches!(events.last(), Some(Event::TurnEnded { stop: found, .. }) if *found == stop), "{events:?}");
        assert!(live.0.checkpoint().is_none());
        // The next one is a turn like any other.
        let prompt = Prompt { id: "q".to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false };
        live.0.command(Command::Prompt(prompt)).unwrap();
        let begun = live.answer(next, json!({"turn": {"id": "u"}})).events;
        assert!(begun.iter().any(|event| matches!(event, Event::TurnStarted(_))), "{begun:?}");
        assert_eq!(live.notice("item/agentMessage/delta", json!({"itemId": "n1", "delta": "x"})).len(), 1);
    }
}

#[test]
fn a_turn_that_the_agent_does_not_know_ends_as_an_error() {
    for answer in
        [json!({"id": 4, "result": {"data": []}}), json!({"id": 4, "error": {"code": -32600, "message": "no"}})]
    {
        let mut live = resumed(in_a_turn().0.checkpoint().unwrap());
        let events = live.line(&answer).events;
        assert!(events.iter().any(|event| matches!(event, Event::Failure { .. })), "{events:?}");
        assert!(matches!(events.last(), Some(Event::TurnEnded { stop: StopReason::Error, .. })), "{events:?}");
    }
}

#[test]
fn an_agent_that_ends_while_it_is_followed_leaves_nothing_open() {
    let mut live = resumed(in_a_turn().0.checkpoint().unwrap());
    live.notice("item/completed", json!({"item": {"type": "agentMessage", "id": "m4", "text": "four"}}));
    let events = live.0.exited(&Exit::default()).events;
    assert!(
        events.iter().any(|event| matches!(event, Event::Tool(call) if call.status == Some(ToolStatus::Interrupted)))
    );
    assert!(matches!(events.last(), Some(Event::TurnEnded { stop: StopReason::Error, .. })), "{events:?}");
}

#[test]
fn nonsense_in_place_of_a_checkpoint_is_no_turn() {
    let nonsense = serde_json::from_value(json!({"turn": 7})).unwrap();
    let mut live = Live::new(Some(nonsense));
    live.answer(1, json!({}));
    let opened = live.answer(2, json!({"thread": {"id": "s"}}));
    assert!(matches!(&opened.events[0], Event::Ready { .. }));
    assert!(!opened.lines.iter().any(|line| line.contains("turns/list")));
}
