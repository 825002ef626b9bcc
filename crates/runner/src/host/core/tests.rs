//! The decisions of a host, with an agent that does what a line says.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ensemble_agent::{
    Abilities, Command as Order, Event, PartKind, Permission as Asked, Question as Questions, Refused, Reply,
};
use ensemble_transcript::body::{
    AccessGrant, Answer, Control, PermissionOption, Prompt as Wanted, QuestionItem, Receipt, SetMode,
};
use ensemble_transcript::rules::Signer;
use ensemble_transcript::words::{May, OptionKind, ReceiptCode, ReceiptOutcome, When};
use ensemble_types::devices::Role;
use ensemble_types::ids::{SessionId, unique};
use serde_json::json;

use super::*;

/// Does what the lines say: `ready`, `turn`, `say X`, `ask`, `question`, `withdraw N`, `end`.
struct Scripted {
    resumes: Option<String>,
    asked: u64,
    has_turn: bool,
    open: Vec<String>,
    directory: String,
}

fn scripted(_: Kind, start: Start) -> Box<dyn Driver> {
    let directory = start.directory.clone();
    Box::new(Scripted { resumes: start.resume, asked: 0, has_turn: false, open: Vec::new(), directory })
}

fn option(id: &str, kind: OptionKind) -> PermissionOption {
    PermissionOption { option_id: id.to_owned(), name: id.to_owned(), kind }
}

impl Driver for Scripted {
    fn abilities(&self) -> Abilities {
        Abilities { steers: true, resumes: true, shares_process: false, refuses_with_message: true, says_cost: true }
    }

    fn begin(&mut self) -> Output {
        Output { lines: vec!["begin".into()], ..Output::default() }
    }

    fn line(&mut self, line: &Line) -> Output {
        let Line::Text(text) = line else { return Output::default() };
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let events = match word {
            "ready" => vec![Event::Ready { session_id: self.resumes.clone().unwrap_or_else(|| "conversation".into()) }],
            "turn" => {
                self.has_turn = true;
                vec![Event::TurnStarted(Cause::Prompt)]
            }
            "say" => vec![
                Event::Delta { part: 0, kind: PartKind::Text, text: rest.into() },
                Event::Complete {
                    part: 0,
                    of: None,
                    kind: PartKind::Text,
                    text: rest.into(),
                    interrupted: false,
                    parent: None,
                },
            ],
            "ask" => {
                self.asked += 1;
                let request = self.asked.to_string();
                self.open.push(request.clone());
                let input = json!({ "file_path": format!("{}/f", self.directory), "content": rest });
                vec![Event::Permission(Box::new(Asked {
                    request,
                    agent_request: "1".into(),
                    tool_call_id: None,
                    title: "Write f".into(),
                    detail: rest.into(),
                    cut: None,
                    content: Vec::new(),
                    options: vec![option("yes", OptionKind::AllowOnce), option("no", OptionKind::RejectOnce)],
                    input,
                }))]
            }
            "question" => {
                self.asked += 1;
                let request = self.asked.to_string();
                self.open.push(request.clone());
                let item =
                    QuestionItem { id: "q".into(), text: rest.into(), header: None, options: None, multiple: false };
                vec![Event::Question(Box::new(Questions {
                    request,
                    agent_request: "2".into(),
                    tool_call_id: None,
                    questions: vec![item],
                }))]
            }
            "withdraw" => {
                self.open.retain(|open| open != rest);
                vec![Event::Withdrawn { request: rest.into(), reason: "the agent withdrew the request" }]
            }
            "end" => {
                self.has_turn = false;
                vec![Event::TurnEnded { stop: StopReason::EndTurn, usage: None, cost_usd: Some(0.5) }]
            }
            _ => Vec::new(),
        };
        Output { events, ..Output::default() }
    }

    fn command(&mut self, command: Order) -> Result<Output, Refused> {
        let said = match command {
            Order::Prompt(prompt) if self.has_turn && !prompt.steer => return Err(Refused::Busy),
            Order::Prompt(prompt) => format!("{}{}", if prompt.steer { "steer " } else { "prompt " }, prompt.text),
            Order::Answer { request, reply } => {
                let place = self.open.iter().position(|open| *open == request).ok_or(Refused::Closed)?;
                self.open.remove(place);
                match reply {
                    Reply::Option { id, .. } => format!("answer {request} {id}"),
                    Reply::Answers(answers) => format!("answers {answers:?}"),
                    Reply::Refuse { .. } => format!("refuse {request}"),
                }
            }
            Order::Interrupt => "interrupt".into(),
            Order::SetMode(mode) => format!("mode {}", mode.as_str()),
            Order::SetModel(model) => format!("model {model}"),
            Order::Stop => return Ok(Output { close: true, ..Output::default() }),
        };
        Ok(Output { lines: vec![said], ..Output::default() })
    }

    fn exited(&mut self, _: &Exit) -> Output {
        Output::default()
    }
}

struct Room {
    core: Core,
    owner: UserId,
    now: Timestamp,
    sent: u64,
    /// All messages of the host.
    said: Vec<Message>,
    digests: Vec<String>,
    lines: Vec<String>,
    starts: Vec<Start>,
    closed: bool,
    wants: Wants,
}

fn room() -> Room {
    room_of(kept("/nonexistent"))
}

fn kept(directory: &str) -> Kept {
    Kept {
        session: SessionId::generate(),
        agent: "claude".into(),
        directory: directory.into(),
        host_key: "k".into(),
        mode: Mode::Ask,
        model: None,
        conversation: unique(),
        resume: None,
        cost_usd: None,
        n: 0,
        unsent: VecDeque::new(),
        seen: 0,
        taken: VecDeque::new(),
        lost: None,
        access: Vec::new(),
        queue: VecDeque::new(),
        turn: None,
        open: BTreeMap::new(),
        tools: Default::default(),
        process: None,
        ended: false,
    }
}

fn room_of(kept: Kept) -> Room {
    let (owner, now) = (UserId::generate(), Timestamp::from_unix_seconds(1_800_000_000));
    let list = KnownList { version: 1, digest: "d".into() };
    let setting =
        Setting { kind: Kind::Claude, driver_of: scripted, owner, list, key_epoch: 1, branch: None, as_root: false };
    let core = Core::new(kept, setting, now);
    let (said, digests, lines, starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Room { core, owner, now, sent: 0, said, digests, lines, starts, closed: false, wants: Wants::default() }
}

impl Room {
    /// Carries out what the core wants, as the session's task does.
    fn settle(&mut self) {
        let effects = self.core.take_effects();
        for change in effects.changes {
            if let Change::Say(message) = change {
                self.digests.push(digest(&message.body));
                self.said.push(Message::read(&message.body).unwrap());
            }
        }
        self.starts.extend(effects.start);
        self.lines.extend(effects.lines);
        self.closed |= effects.close;
        self.wants = effects.wants.unwrap_or(self.wants);
    }

    fn begin(&mut self) {
        self.core.begin();
        self.settle();
        self.line("ready");
    }

    fn line(&mut self, text: &str) {
        self.core.line(&Line::Text(text.to_owned()));
        self.settle();
    }

    fn exit(&mut self) {
        self.core.exited(&Exit::default());
        self.settle();
    }

    fn signer(&self, user: UserId, role: Role) -> Signer {
        Signer { user, key: format!("key of {user}"), role: Some(role), account: "account".into() }
    }

    fn send_as(&mut self, signer: Signer, content: Content) -> Option<Receipt> {
        self.sent += 1;
        let local_id = format!("c{}", self.sent);
        self.resend(signer, &local_id, content)
    }

    fn resend(&mut self, signer: Signer, local_id: &str, content: Content) -> Option<Receipt> {
        let list = KnownList { version: 1, digest: "d".into() };
        let message = Message { local_id: local_id.to_owned(), at: self.now, list, n: None, content };
        let before = self.said.len();
        self.core.set_time(self.now);
        self.core.command(Command { message, signer, epoch: 1 });
        self.settle();
        let mut receipts = self.said[before..].iter().filter_map(|said| match &said.content {
            Content::Receipt(receipt) if receipt.command_id == local_id => Some(receipt.clone()),
            _ => None,
        });
        let receipt = receipts.next();
        assert!(receipts.next().is_none(), "one receipt");
        receipt
    }

    /// By a primary device of the owner.
    fn send(&mut self, content: Content) -> Receipt {
        self.send_as(self.signer(self.owner, Role::Primary), content).unwrap()
    }

    fn prompt(&mut self, text: &str) -> Receipt {
        self.send(prompt(text))
    }

    fn grant(&mut self, user: UserId, may: May, version: u64) -> Receipt {
        self.send(Content::Control(Control::Access(AccessGrant { user, account: "account".into(), may, version })))
    }

    /// The newest request, with the digest that an answer names.
    fn card(&self) -> (String, String) {
        let found = self.said.iter().zip(&self.digests).rev().find_map(|(said, digest)| match &said.content {
            Content::Permission(permission) => Some((permission.request_id.clone(), digest.clone())),
            Content::Question(question) => Some((question.request_id.clone(), digest.clone())),
            _ => None,
        });
        found.unwrap()
    }

    fn answer(&self, option: &str) -> Content {
        let (request_id, digest) = self.card();
        let option_id = Some(option.to_owned());
        Content::Answer(Answer { request_id, digest, option_id, answers: None, message: None })
    }

    fn state(&self) -> &State {
        let states = self.said.iter().rev().find_map(|said| match &said.content {
            Content::State(state) => Some(state),
            _ => None,
        });
        states.unwrap()
    }

    fn types(&self) -> String {
        let types = self.said.iter().filter(|said| !matches!(said.content, Content::State(_)));
        types.map(|said| said.content.type_name()).collect::<Vec<_>>().join(" ")
    }
}

fn prompt(text: &str) -> Content {
    Content::Prompt(Wanted { text: text.into(), attachments: Vec::new(), when: When::Next })
}

#[track_caller]
fn rejected(receipt: &Receipt, code: ReceiptCode) {
    assert_eq!((&receipt.outcome, receipt.code.as_ref()), (&ReceiptOutcome::Rejected, Some(&code)), "{receipt:?}");
}

#[test]
fn a_prompt_waits_until_the_agent_is_ready_and_its_turn_names_it() {
    let mut room = room();
    room.core.begin();
    room.settle();
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Queued);
    assert_eq!((room.lines.join(","), room.state().queue.len()), ("begin".to_owned(), 1));
    room.line("ready");
    assert_eq!(room.lines.join(","), "begin,prompt one");
    assert_eq!(room.core.kept.queue.len(), 1, "it is kept until its turn has begun");
    room.line("turn");
    assert!(room.core.kept.queue.is_empty() && room.state().queue.is_empty());
    let Content::Turn(turn) =
        &room.said.iter().rev().find(|said| matches!(said.content, Content::Turn(_))).unwrap().content
    else {
        unreachable!()
    };
    assert_eq!(turn.prompt_id.as_deref(), Some("c1"));
    room.line("say hello");
    room.line("end");
    assert_eq!((room.wants.kind, room.state().cost_usd), (AttentionKind::Finished, Some(0.5)));
    assert_eq!(room.types(), "receipt turn text turn");
    let counts: Vec<u64> = room.said.iter().map(|said| said.n.unwrap()).collect();
    assert_eq!(counts, (1..=counts.len() as u64).collect::<Vec<_>>(), "no gap");
}

#[test]
fn prompts_are_done_one_after_the_other_and_steered_ones_at_once() {
    let mut room = room();
    room.begin();
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Done);
    room.line("turn");
    assert_eq!(room.prompt("two").outcome, ReceiptOutcome::Queued);
    assert_eq!(room.prompt("three").outcome, ReceiptOutcome::Queued);
    assert_eq!(room.state().queue, ["c2", "c3"]);
    let steer = Content::Prompt(Wanted { text: "left".into(), attachments: Vec::new(), when: When::Now });
    assert_eq!(room.send(steer).outcome, ReceiptOutcome::Done);
    room.line("end");
    room.line("turn");
    room.line("end");
    assert_eq!(room.lines, ["begin", "prompt one", "steer left", "prompt two", "prompt three"]);
}

#[test]
fn the_first_answer_counts_and_only_for_what_was_shown() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    assert_eq!(
        (room.wants.kind, room.wants.open, &room.state().phase),
        (AttentionKind::Permission, 1, &Phase::Waiting)
    );
    let (request_id, _) = room.card();
    let other = Answer {
        request_id,
        digest: digest("another body"),
        option_id: Some("yes".into()),
        answers: None,
        message: None,
    };
    rejected(&room.send(Content::Answer(other)), ReceiptCode::Superseded);
    rejected(&room.send(room.answer("maybe")), ReceiptCode::Unsupported);
    let good = room.answer("yes");
    assert_eq!(room.send(good.clone()).outcome, ReceiptOutcome::Done);
    assert_eq!(room.lines.last().unwrap(), "answer 1 yes");
    assert_eq!(room.wants.kind, AttentionKind::None);
    rejected(&room.send(good), ReceiptCode::Superseded);
    let resolved = room.said.iter().find_map(|said| match &said.content {
        Content::Resolved(resolved) => Some(resolved.clone()),
        _ => None,
    });
    assert_eq!(resolved.unwrap().by, Some(room.owner));
    room.line("question why?");
    assert_eq!(room.wants.kind, AttentionKind::Question);
    room.line("withdraw 2");
    assert_eq!(room.wants.kind, AttentionKind::None);
}

#[test]
fn what_people_may_not_do_is_not_done() {
    let mut room = room();
    room.begin();
    let guest = UserId::generate();
    let by = |room: &Room, role| room.signer(guest, role);
    let stranger = by(&room, Role::Primary);
    rejected(&room.send_as(stranger.clone(), prompt("x")).unwrap(), ReceiptCode::NotAllowed);
    let machine = by(&room, Role::Machine);
    rejected(&room.send_as(machine, prompt("x")).unwrap(), ReceiptCode::UnknownKey);
    assert_eq!(room.grant(guest, May::Prompt, 1).outcome, ReceiptOutcome::Done);
    assert_eq!(room.state().access.len(), 1, "every client sees that the machine has it");
    assert_eq!(room.send_as(stranger.clone(), prompt("y")).unwrap().outcome, ReceiptOutcome::Done);
    let other_account = Signer { account: "another account".into(), ..stranger.clone() };
    rejected(&room.send_as(other_account, prompt("x")).unwrap(), ReceiptCode::NotAllowed);
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    rejected(&room.send_as(stranger.clone(), answer).unwrap(), ReceiptCode::NotAllowed);
    let stop = Content::Control(Control::Stop);
    rejected(&room.send_as(stranger.clone(), stop).unwrap(), ReceiptCode::NotAllowed);
    let linked = room.signer(room.owner, Role::Linked);
    let bypass = Content::Control(Control::SetMode(SetMode { mode: Mode::Bypass, seen: Mode::Ask }));
    rejected(&room.send_as(linked, bypass.clone()).unwrap(), ReceiptCode::NotAllowed);
    assert_eq!(room.send(bypass).outcome, ReceiptOutcome::Done);
    assert_eq!(room.grant(guest, May::Nothing, 2).outcome, ReceiptOutcome::Done);
    rejected(&room.grant(guest, May::Prompt, 1), ReceiptCode::Superseded);
    rejected(&room.send_as(stranger, prompt("z")).unwrap(), ReceiptCode::NotAllowed);
    assert!(!room.lines.iter().any(|line| line.contains('x') || line.contains('z')), "{:?}", room.lines);
}

#[test]
fn a_command_is_taken_once_and_not_late() {
    let mut room = room();
    room.begin();
    let owner = room.signer(room.owner, Role::Primary);
    room.resend(owner.clone(), "a", prompt("one"));
    rejected(&room.resend(owner.clone(), "a", prompt("one")).unwrap(), ReceiptCode::Repeated);
    // A host that starts again remembers it.
    let mut later = room_of(room.core.kept.clone());
    later.owner = room.owner;
    later.core.rules = Rules::kept(
        room.owner,
        Access::default(),
        Memory::of_taken(later.core.kept.taken.iter().cloned().map(Into::into), None),
    );
    rejected(&later.resend(owner.clone(), "a", prompt("one")).unwrap(), ReceiptCode::Repeated);
    // The server kept it back for two days.
    let (list, at) = (KnownList { version: 1, digest: "d".into() }, room.now);
    let message = Message { local_id: "b".into(), at, list, n: None, content: prompt("late") };
    room.core.set_time(at.plus(Duration::from_secs(2 * 86_400)));
    room.core.command(Command { message, signer: owner, epoch: 1 });
    room.settle();
    assert!(!room.lines.iter().any(|line| line.contains("late")));
}

#[test]
fn an_interrupt_closes_what_is_open() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    assert_eq!(room.send(Content::Control(Control::Interrupt)).outcome, ReceiptOutcome::Done);
    rejected(&room.send(answer), ReceiptCode::Superseded);
    assert_eq!(room.lines.last().unwrap(), "interrupt");
    assert!(room.core.is_interrupting());
    room.line("end");
    assert!(!room.core.is_interrupting());
}

#[test]
fn an_agent_that_dies_is_started_again_by_the_next_prompt_with_its_conversation() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    room.exit();
    assert_eq!(room.state().phase, Phase::Parked);
    assert_eq!((room.wants.kind, room.core.kept.open.len()), (AttentionKind::Failed, 0));
    rejected(&room.send(answer), ReceiptCode::Superseded);
    room.prompt("go on");
    assert_eq!(room.starts.len(), 2);
    assert_eq!(room.starts[1].resume.as_deref(), Some("conversation"));
    room.line("ready");
    assert_eq!(room.lines.last().unwrap(), "prompt go on");
}

#[test]
fn an_agent_that_never_becomes_ready_is_not_started_for_ever() {
    let mut room = room();
    room.core.begin();
    room.settle();
    room.prompt("one");
    for _ in 0..10 {
        room.exit();
    }
    assert_eq!(room.starts.len(), usize::try_from(MOST_CRASHES).unwrap());
    assert_eq!(room.core.kept.queue.len(), 1, "the prompt is not lost");
    room.prompt("two");
    assert_eq!(room.starts.len(), usize::try_from(MOST_CRASHES).unwrap() + 1, "a person asks for it");
}

#[test]
fn a_host_that_was_killed_closes_what_was_under_way() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    room.prompt("two");
    let mut next = room_of(room.core.kept.clone());
    next.core.recover();
    next.settle();
    assert_eq!(next.types(), "resolved error turn");
    assert_eq!(next.said.first().unwrap().n, Some(room.core.kept.n + 1), "its count goes on");
    assert_eq!(next.starts.len(), 1, "a prompt waits");
    assert_eq!(next.starts[0].resume.as_deref(), Some("conversation"));
    next.line("ready");
    assert_eq!(next.lines.last().unwrap(), "prompt two");
}

#[test]
fn where_nothing_is_asked_the_owner_is_asked_about_prompts_of_guests() {
    let mut room = room();
    room.begin();
    let edit = Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask }));
    assert_eq!(room.send(edit.clone()).outcome, ReceiptOutcome::Done);
    rejected(&room.send(edit), ReceiptCode::Superseded);
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    let signer = room.signer(guest, Role::Primary);
    assert_eq!(room.send_as(signer.clone(), prompt("theirs")), None, "the owner decides first");
    assert_eq!(room.wants.kind, AttentionKind::Permission);
    let allow = room.answer("allow");
    room.send(allow);
    assert_eq!(room.lines.last().unwrap(), "prompt theirs");
    assert_eq!(room.send_as(signer.clone(), prompt("another")), None);
    let deny = room.answer("deny");
    room.send(deny);
    let last = room.said.iter().rev().find_map(|said| match &said.content {
        Content::Receipt(receipt) if receipt.key == signer.key => Some(receipt.clone()),
        _ => None,
    });
    rejected(&last.unwrap(), ReceiptCode::NotAllowed);
    assert!(!room.lines.iter().any(|line| line.contains("another")));
}

#[test]
fn a_session_that_was_stopped_takes_prompts_again_when_it_is_resumed() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    assert_eq!(room.send(Content::Control(Control::Stop)).outcome, ReceiptOutcome::Done);
    assert!(room.closed && room.core.kept.queue.is_empty());
    room.exit();
    assert_eq!(room.state().phase, Phase::Ended);
    rejected(&room.prompt("three"), ReceiptCode::Superseded);
    assert_eq!(room.send(Content::Control(Control::Resume)).outcome, ReceiptOutcome::Done);
    assert_eq!(room.starts.last().unwrap().resume.as_deref(), Some("conversation"));
    room.line("ready");
    assert_eq!(room.prompt("four").outcome, ReceiptOutcome::Done);
}

#[test]
fn a_host_that_ends_waits_for_the_turn_and_begins_no_other() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    room.core.drain();
    room.settle();
    assert!(!room.closed, "the turn goes on");
    room.line("end");
    assert!(room.closed, "and the next one does not begin");
    room.exit();
    assert!(!room.core.runs() && room.core.kept.queue.len() == 1);
}

#[test]
fn an_idle_agent_is_parked_and_one_with_work_is_not() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.core.park();
    room.settle();
    assert!(!room.closed);
    room.line("end");
    room.core.park();
    room.settle();
    assert!(room.closed);
    room.exit();
    assert_eq!((room.state().phase.clone(), room.starts.len()), (Phase::Parked, 1));
    room.prompt("two");
    assert_eq!(room.starts.len(), 2);
}

#[test]
fn a_change_of_a_file_that_is_another_one_now_is_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, "old").unwrap();
    let mut room = room_of(kept(folder.path().to_str().unwrap()));
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask new");
    let answer = room.answer("yes");
    std::fs::write(&file, "older").unwrap();
    let first = room.card().0;
    rejected(&room.send(answer), ReceiptCode::Superseded);
    let (second, _) = room.card();
    assert!(first != second && room.core.kept.open.len() == 1, "it is asked again under another id");
    let again = room.answer("yes");
    assert_eq!(room.send(again).outcome, ReceiptOutcome::Done);
    assert_eq!(room.lines.last().unwrap(), "answer 1 yes");
}

#[test]
fn the_texts_of_a_turn_are_streamed_and_end_with_it() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    assert!(!room.core.has_frames());
    room.core.take_output(Output {
        events: vec![Event::Delta { part: 0, kind: PartKind::Text, text: "hel".into() }],
        ..Output::default()
    });
    assert_eq!(room.core.frames()[0].text, "hel");
    room.line("say hello");
    assert!(!room.core.has_frames(), "the whole text is a message");
}
