//! What a screen shows after messages and frames, good ones and others.

use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::transcript::body::{KnownList, Permission, Prompt, Turn};
use crate::transcript::words::{
    Cause, Mode, OptionKind, Outcome, Phase, ReceiptCode, ReceiptOutcome, StopReason, ToolKind, TurnState, When,
};

mod removed;
mod vectors;
mod waiting;

fn ann() -> Author {
    Author::Person {
        user: "01890a5d-ac96-774b-bcce-b302099a8058".parse::<UserId>().unwrap(),
        key: "k".to_owned(),
        removed_in: None,
    }
}

/// A view and the numbers of its next messages.
#[derive(Default)]
struct Session {
    view: View,
    seq: u64,
    n: u64,
    /// The version of the list that messages name, if it is not 1.
    list: u32,
    /// If set, messages are collected here and not put into the view.
    kept: Option<Vec<Incoming>>,
}

impl Session {
    fn keeping(items: usize) -> Self {
        Self { view: View::new(Keep { items, bytes: 1 << 20 }), ..Self::default() }
    }

    fn message(&mut self, author: Author, local_id: &str, n: Option<u64>, content: Content) -> Changed {
        self.seq += 1;
        let at = Timestamp::from_unix_seconds(0).plus(Duration::from_secs(self.seq));
        let list = KnownList { version: self.list.max(1), digest: String::new() };
        let message = Ok(Message { local_id: local_id.to_owned(), at, list, n, content });
        let digest = format!("digest-{}", self.seq);
        let incoming = Incoming { seq: self.seq, author, digest, message };
        match &mut self.kept {
            Some(kept) => {
                kept.push(incoming);
                Changed::default()
            }
            None => self.view.message(incoming),
        }
    }

    fn host(&mut self, content: Content) -> Changed {
        self.n += 1;
        let n = self.n;
        self.message(Author::Host, &format!("h{n}"), Some(n), content)
    }

    fn frame(&mut self, turn: &str, part: u32, offset: u64, text: &str) -> bool {
        self.view.frame(&Frame { turn_id: turn.to_owned(), part, offset, text: text.to_owned(), thought: false }).live
    }

    fn growing(&self) -> Vec<(u32, &str)> {
        self.view.growing().map(|(part, growing)| (part, growing.text.as_str())).collect()
    }

    fn last(&self) -> &Shown {
        &self.view.items().next_back().unwrap().shown
    }
}

fn turn(state: TurnState) -> Content {
    let stop_reason = (state == TurnState::Ended).then_some(StopReason::EndTurn);
    Content::Turn(Turn {
        turn_id: "t".to_owned(),
        state,
        cause: Cause::Prompt,
        prompt_id: None,
        text: None,
        stop_reason,
        usage: None,
        cost_usd: None,
    })
}

fn text(part: u32, text: &str) -> Content {
    let text = text.to_owned();
    let turn_id = "t".to_owned();
    Content::Text(TextPart { turn_id, part, of: None, text, interrupted: false, parent_tool_call_id: None })
}

fn prompt(text: &str) -> Content {
    Content::Prompt(Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None })
}

fn permission(id: &str) -> Content {
    let option = crate::transcript::body::PermissionOption {
        option_id: "allow".to_owned(),
        name: "Allow".to_owned(),
        kind: OptionKind::AllowOnce,
    };
    Content::Permission(Box::new(Permission {
        request_id: id.to_owned(),
        tool_call_id: None,
        title: "Run a command".to_owned(),
        detail: "ls".to_owned(),
        cut: None,
        content: Vec::new(),
        options: vec![option],
    }))
}

fn receipt(id: &str, outcome: ReceiptOutcome) -> Content {
    let (command_id, key, code) = (id.to_owned(), "k".to_owned(), Some(ReceiptCode::Busy));
    Content::Receipt(Receipt { command_id, key, outcome, code, text: None })
}

fn tool(status: ToolStatus, title: Option<&str>) -> Content {
    Content::ToolCall(Box::new(ToolCall {
        tool_call_id: "c".to_owned(),
        turn_id: "t".to_owned(),
        part: Some(7),
        title: title.map(str::to_owned),
        kind: title.map(|_| ToolKind::Execute),
        status: Some(status),
        ..ToolCall::default()
    }))
}

#[test]
fn a_command_is_not_taken_until_its_receipt_comes() {
    let mut session = Session::default();
    session.message(ann(), "p1", None, prompt("go"));
    assert!(matches!(session.last(), Shown::Prompt(_, Taken::NotYet)));
    session.host(receipt("other", ReceiptOutcome::Done));
    assert!(matches!(session.last(), Shown::Prompt(_, Taken::NotYet)));
    assert_eq!(session.host(receipt("p1", ReceiptOutcome::Queued)).items, [FIRST_ID]);
    assert!(matches!(session.last(), Shown::Prompt(_, Taken::Queued)));
    session.host(receipt("p1", ReceiptOutcome::Done));
    session.host(receipt("p1", ReceiptOutcome::Rejected));
    assert!(matches!(session.last(), Shown::Prompt(_, Taken::Done)), "the first end counts");
    session.message(ann(), "p2", None, prompt("more"));
    session.host(receipt("p2", ReceiptOutcome::Rejected));
    assert!(matches!(session.last(), Shown::Prompt(_, Taken::Rejected { code: Some(ReceiptCode::Busy), .. })));
    session.message(ann(), "p2", None, prompt("more"));
    assert_eq!(session.last(), &Shown::Note(Note::RepeatedCommand("p2".to_owned())));
}

#[test]
fn a_card_is_open_until_it_is_resolved_and_opens_once() {
    let mut session = Session::default();
    session.host(permission("r1"));
    assert_eq!(session.view.open().map(|card| card.digest.as_str()).collect::<Vec<_>>(), ["digest-1"]);
    session.host(permission("r1"));
    assert_eq!(session.view.open().len(), 1, "an id is never used again");
    let resolved = |outcome| {
        let (request_id, reason) = ("r1".to_owned(), None);
        Content::Resolved(Resolved { request_id, outcome, option_id: None, by: None, reason })
    };
    assert_eq!(session.host(resolved(Outcome::Selected)).items, [FIRST_ID]);
    session.host(resolved(Outcome::Withdrawn));
    let Shown::Card(card) = &session.view.item(FIRST_ID).unwrap().shown else { panic!() };
    assert_eq!(card.resolved.as_ref().unwrap().outcome, Outcome::Selected, "the first counts");
    assert_eq!(session.view.open().len(), 0);
}

#[test]
fn an_open_card_is_kept_although_its_item_is_dropped() {
    let mut session = Session::keeping(5);
    session.host(permission("r1"));
    (0..20).for_each(|part| drop(session.host(text(part, "x"))));
    assert_eq!((session.view.items().len(), session.view.open().len()), (5, 1));
    assert_eq!(session.view.item(FIRST_ID), None);
    assert_eq!(session.view.item(FIRST_ID + 20).unwrap().id, FIRST_ID + 20);
}

#[test]
fn later_messages_of_a_tool_amend_it() {
    let mut session = Session::default();
    session.host(tool(ToolStatus::InProgress, Some("ls")));
    assert_eq!(session.host(tool(ToolStatus::Completed, None)).items, [FIRST_ID]);
    let Shown::Tool(call) = session.last() else { panic!() };
    assert_eq!((call.title.as_deref(), &call.status), (Some("ls"), &Some(ToolStatus::Completed)));
    assert_eq!(session.view.items().len(), 1);
}

#[test]
fn what_is_not_by_its_writer_is_a_note() {
    let mut session = Session::default();
    let note = |session: &Session| matches!(session.last(), Shown::Note(Note::NotSigned(_)));
    session.message(ann(), "x", Some(1), permission("r1"));
    assert!(note(&session) && session.view.open().len() == 0, "a person writes no cards");
    session.message(Author::Host, "x", Some(1), prompt("go"));
    assert!(note(&session), "the machine writes no prompts");
    for content in [permission("r2"), prompt("go"), turn(TurnState::Started)] {
        session.message(Author::Unknown("not signed by a device of Ann".to_owned()), "x", Some(1), content);
        assert!(note(&session) && session.view.open().len() == 0);
    }
    session.frame("t", 0, 0, "x");
    assert_eq!(session.growing(), []);
    session.host(Content::Newer("hologram".into()));
    assert_eq!(session.last(), &Shown::Newer("hologram".into()));
}

#[test]
fn missing_repeated_and_unreadable_messages_show() {
    let mut session = Session::default();
    session.message(Author::Host, "a", Some(41), text(0, "loaded from the middle"));
    session.message(Author::Host, "b", Some(42), text(1, "next"));
    assert_eq!(session.view.items().len(), 2);
    session.message(Author::Host, "c", Some(45), text(2, "later"));
    let shown: Vec<_> = session.view.items().map(|item| item.shown.clone()).collect();
    assert_eq!(shown[2], Shown::Note(Note::Missing { from: 43, to: 44 }));
    session.message(Author::Host, "d", Some(44), permission("r"));
    assert_eq!(session.last(), &Shown::Note(Note::Repeated(44)));
    assert_eq!(session.view.open().len(), 0);
    session.message(Author::Host, "e", None, permission("r"));
    assert!(matches!(session.last(), Shown::Note(Note::Unreadable(_))));
    let message = Message::read("{}");
    session.view.message(Incoming { seq: 99, author: Author::Host, digest: String::new(), message });
    assert!(matches!(session.last(), Shown::Note(Note::Unreadable(_))));
    let count = session.view.items().len();
    let old = Incoming { seq: 99, author: ann(), digest: String::new(), message: Message::read("{}") };
    assert_eq!(session.view.message(old), Changed::default());
    assert_eq!(session.view.items().len(), count, "a number of the server that was there is ignored");
}

#[test]
fn frames_show_the_end_of_a_text_until_it_is_whole() {
    let mut session = Session::default();
    assert!(!session.frame("t", 0, 0, "early"), "no turn runs");
    session.host(turn(TurnState::Started));
    assert!(session.frame("t", 0, 0, "hel"));
    assert!(session.frame("t", 0, 0, "hello"), "it repeats what is known");
    assert!(!session.frame("t", 0, 0, "hell"), "late");
    assert!(session.frame("t", 0, 3, "lo wörld"));
    assert!(session.frame("t", 0, 100, "after a gap"));
    assert!(session.frame("t", 1, 5, "end"), "the beginning is missing");
    assert!(!session.frame("u", 0, 0, "of another turn"));
    assert_eq!(session.growing(), [(0, "hello wörld…after a gap"), (1, "…end")]);
    session.host(text(0, "hello wörld and more"));
    assert!(!session.frame("t", 0, 200, "late"), "it never outlives the whole text");
    assert_eq!(session.growing(), [(1, "…end")]);
    assert!(session.frame("t", 7, 0, "output"));
    session.host(tool(ToolStatus::Completed, Some("ls")));
    assert_eq!(session.growing(), [(1, "…end")]);
    session.host(turn(TurnState::Ended));
    assert_eq!(session.growing(), []);
    assert!(!session.frame("t", 3, 0, "late"));
}

#[test]
fn a_new_state_and_a_new_plan_replace_the_old_ones() {
    let mut session = Session::default();
    let state = |phase| {
        let text =
            serde_json::json!({"phase": "idle", "agent": "claude", "mode": "ask", "directory": "/w", "keyEpoch": 1});
        Content::State(Box::new(State { phase, ..serde_json::from_value(text).unwrap() }))
    };
    session.host(state(Phase::Starting));
    assert!(session.host(state(Phase::Working)).state);
    assert_eq!(session.view.state().map(|state| (&state.phase, &state.mode)), Some((&Phase::Working, &Mode::Ask)));
    assert!(session.host(Content::Plan(Plan::default())).plan);
    assert_eq!((session.view.plan(), session.view.items().len()), (Some(&Plan::default()), 0));
}

#[test]
fn a_long_session_is_kept_within_its_bounds() {
    let mut session = Session { view: View::new(Keep { items: 100, bytes: 40_000 }), ..Session::default() };
    for number in 0..500_u32 {
        session.message(ann(), &number.to_string(), None, prompt(&"x".repeat(300)));
        session.host(tool_of(number));
        session.host(permission(&format!("r{number}")));
    }
    let view = &session.view;
    assert!(view.items().len() <= 100 && view.bytes <= 40_000, "{} items, {} bytes", view.items().len(), view.bytes);
    let sizes = [view.tools.len(), view.requests.len(), view.commands.len()];
    assert_eq!(sizes.iter().sum::<usize>(), view.items().len());
    assert_eq!(view.open().len(), MOST_OPEN);
    assert_eq!(view.bytes, view.items().map(|item| item.shown.size()).sum::<usize>());
}

fn tool_of(number: u32) -> Content {
    let turn_id = "t".to_owned();
    Content::ToolCall(Box::new(ToolCall { tool_call_id: number.to_string(), turn_id, ..ToolCall::default() }))
}

proptest! {
    /// Whatever is lost or late, what is shown is made of pieces of the text, and its end is the newest that came.
    #[test]
    fn frames_never_show_what_was_not_written(cuts in proptest::collection::vec((0usize..40, 1usize..12), 1..30)) {
        let whole = "the quick brown fox jumps över the läzy dog and on";
        let mut session = Session::default();
        session.host(turn(TurnState::Started));
        let mut newest = 0;
        for (from, length) in cuts {
            let Some(text) = whole.get(from..from + length) else { continue };
            session.frame("t", 0, from as u64, text);
            newest = newest.max(from + length);
        }
        for (_, shown) in session.growing() {
            let pieces: Vec<&str> = shown.split('…').collect();
            prop_assert!(pieces.iter().all(|piece| whole.contains(piece)), "{shown}");
            prop_assert!(whole[..newest].ends_with(pieces.last().unwrap()), "{shown}");
        }
    }
}

#[test]
fn older_messages_come_in_front_with_what_was_said_of_them_later() {
    let incoming = |seq: u64, author: Author, local_id: &str, n: Option<u64>, content: Content| {
        let list = KnownList { version: 1, digest: String::new() };
        let at = Timestamp::from_unix_seconds(0);
        let message = Ok(Message { local_id: local_id.to_owned(), at, list, n, content });
        Incoming { seq, author, digest: format!("digest-{seq}"), message }
    };
    let prompt =
        Content::Prompt(Prompt { text: "go".into(), attachments: Vec::new(), when: When::Next, directory: None });
    let receipt =
        Receipt { command_id: "c".into(), key: "k".into(), outcome: ReceiptOutcome::Done, code: None, text: None };
    let resolved =
        Resolved { request_id: "r1".into(), outcome: Outcome::Selected, option_id: None, by: None, reason: None };
    let older = [
        incoming(1, ann(), "c", None, prompt),
        incoming(2, Author::Host, "h1", Some(1), permission("r1")),
        incoming(3, Author::Host, "h2", Some(2), permission("r2")),
    ];
    let mut view = View::new(Keep { items: 2, bytes: 1 << 20 });
    view.message(incoming(4, Author::Host, "h3", Some(3), Content::Receipt(receipt)));
    view.message(incoming(5, Author::Host, "h4", Some(4), Content::Resolved(resolved)));
    view.message(incoming(6, Author::Host, "h5", Some(5), text(0, "new")));
    view.older(older);
    let shown: Vec<(u64, u64)> = view.items().map(|item| (item.id, item.seq)).collect();
    assert_eq!(shown, [(FIRST_ID - 3, 1), (FIRST_ID - 2, 2), (FIRST_ID - 1, 3), (FIRST_ID, 6)]);
    let Shown::Prompt(_, taken) = &view.item(FIRST_ID - 3).unwrap().shown else { panic!() };
    assert_eq!(*taken, Taken::Done);
    assert_eq!(view.open().map(|card| card.request_id.as_str()).collect::<Vec<_>>(), ["r2"]);
    // What comes next still fits in.
    view.message(incoming(7, Author::Host, "h6", Some(6), text(1, "newer")));
    assert_eq!(view.items().len(), 5);
}

#[test]
fn a_prompt_waits_until_its_turn_begins() {
    let mut session = Session::default();
    let prompt =
        Content::Prompt(Prompt { text: "go".into(), attachments: Vec::new(), when: When::Next, directory: None });
    session.message(ann(), "c", None, prompt);
    let (command_id, key) = ("c".to_owned(), "k".to_owned());
    let outcome = ReceiptOutcome::Queued;
    session.host(Content::Receipt(Receipt { command_id, key, outcome, code: None, text: None }));
    let taken = |session: &Session| match &session.view.item(FIRST_ID).unwrap().shown {
        Shown::Prompt(_, taken) => taken.clone(),
        _ => panic!(),
    };
    assert_eq!(taken(&session), Taken::Queued);
    let Content::Turn(begun) = turn(TurnState::Started) else { panic!() };
    let begun = Turn { prompt_id: Some("c".into()), ..begun };
    assert_eq!(session.host(Content::Turn(begun)).items, [FIRST_ID, FIRST_ID + 1]);
    assert_eq!(taken(&session), Taken::Done);
}

#[test]
fn the_prompt_of_a_task_is_shown_with_its_turn() {
    let mut session = Session::default();
    let Content::Turn(begun) = turn(TurnState::Started) else { panic!() };
    session.host(Content::Turn(Turn {
        cause: Cause::Task,
        prompt_id: Some("t".into()),
        text: Some("do it".into()),
        ..begun
    }));
    let shown: Vec<&Shown> = session.view.items().map(|item| &item.shown).collect();
    let [Shown::Prompt(prompt, Taken::Done), Shown::Turn(turn)] = shown.as_slice() else { panic!("{shown:?}") };
    assert_eq!((prompt.text.as_str(), turn.text.as_ref()), ("do it", None));
}
