//! The decisions of a host, with an agent that does what a line says.

use std::time::Duration;

use ensemble_agent::{
    Abilities, Checkpoint, Command as Order, Event, PartKind, Permission as Asked, Question as Questions, Refused,
    Reply, StateChange,
};
use ensemble_protocol::transcript::body::{
    AccessGrant, Answer, Control, PermissionOption, Prompt as Wanted, QuestionItem, Receipt, Resume, SetMode,
};
use ensemble_protocol::transcript::rules::Signer;
use ensemble_protocol::transcript::words::{May, OptionKind, ReceiptCode, ReceiptOutcome, When};
use ensemble_types::devices::Role;
use ensemble_types::ids::SessionId;
use serde_json::json;

use super::*;

mod commands;
mod cost;
mod life;
mod lost;
mod old_key;
mod restored;
mod take_back;
mod tasks;

/// Does what the lines say: `ready`, `ready ID`, `turn`, `say X`, `ask`, `question`, `withdraw N`, `end`.
struct Scripted {
    resumes: Option<String>,
    asked: u64,
    has_turn: bool,
    open: Vec<String>,
    directory: String,
}

fn scripted(_: Kind, start: Start) -> Box<dyn Driver> {
    let (directory, has_turn) = (start.directory.clone(), start.checkpoint.is_some());
    Box::new(Scripted { resumes: start.resume, asked: 0, has_turn, open: Vec::new(), directory })
}

fn option(id: &str, kind: OptionKind) -> PermissionOption {
    PermissionOption { option_id: id.to_owned(), name: id.to_owned(), kind }
}

impl Driver for Scripted {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: true,
            resumes: true,
            shares_process: false,
            refuses_with_message: true,
            says_cost: true,
            lists_commands: false,
        }
    }

    fn begin(&mut self) -> Output {
        Output { lines: vec!["begin".into()], ..Output::default() }
    }

    fn line(&mut self, line: &Line) -> Output {
        let Line::Text(text) = line else { return Output::default() };
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let events = match word {
            "ready" if !rest.is_empty() => vec![Event::Ready { session_id: rest.into() }],
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
            "cost" => vec![Event::Cost(rest.parse().unwrap())],
            _ => Vec::new(),
        };
        Output { events, ..Output::default() }
    }

    fn command(&mut self, command: Order) -> Result<Output, Refused> {
        let said = match command {
            Order::Prompt(prompt) if self.has_turn && !prompt.steer => return Err(Refused::Busy),
            Order::Prompt(prompt) if prompt.text == "impossible" => return Err(Refused::Unsupported("no images")),
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
            // It refuses to plan without saying so.
            Order::SetMode(Mode::Plan) => return Ok(Output::default()),
            Order::SetMode(mode) => {
                let change = StateChange { mode: Some(mode), ..StateChange::default() };
                return Ok(Output { events: vec![Event::State(Box::new(change))], ..Output::default() });
            }
            Order::SetModel(model) => format!("model {model}"),
            Order::Stop => return Ok(Output { close: true, ..Output::default() }),
        };
        Ok(Output { lines: vec![said], ..Output::default() })
    }

    fn exited(&mut self, _: &Exit) -> Output {
        Output::default()
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        self.has_turn.then(|| serde_json::from_value(json!({"said": self.asked})).unwrap())
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
    /// At the next command.
    list_is_withheld: bool,
    key_is_missing: bool,
    /// The keys of devices that are in no list any more.
    removed: Vec<String>,
    /// How often the signer of a prompt was looked for.
    judged: usize,
}

fn room() -> Room {
    room_of(kept("/nonexistent"))
}

fn kept(directory: &str) -> Kept {
    Kept::new(SessionId::generate(), "claude".into(), directory.into(), "k".into())
}

fn room_of(kept: Kept) -> Room {
    room_by(UserId::generate(), kept)
}

fn room_by(owner: UserId, kept: Kept) -> Room {
    let now = Timestamp::from_unix_seconds(1_800_000_000);
    let list = KnownList { version: 1, digest: "d".into() };
    let setting =
        Setting { kind: Kind::Claude, driver_of: scripted, owner, list, key_epoch: 1, branch: None, as_root: false };
    // The ids of commands continue after those that were taken.
    let sent = kept.taken.len() as u64;
    let core = Core::new(kept, setting, now);
    let (said, digests, lines, starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Room {
        core,
        owner,
        now,
        sent,
        said,
        digests,
        lines,
        starts,
        closed: false,
        wants: Wants::default(),
        list_is_withheld: false,
        key_is_missing: false,
        removed: Vec::new(),
        judged: 0,
    }
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
        if let Some(asked) = effects.judge {
            self.judged += 1;
            let role = Some(Role::Linked).filter(|_| !self.removed.contains(&asked.key));
            let signer = Signer { user: asked.user, key: asked.key.clone(), role, account: "account".into() };
            self.core.judged(asked, signer, std::mem::take(&mut self.list_is_withheld));
            self.settle();
        }
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
        self.resend_at(signer, local_id, self.now, content)
    }

    /// Signed at this time.
    fn resend_at(&mut self, signer: Signer, local_id: &str, at: Timestamp, content: Content) -> Option<Receipt> {
        let list = KnownList { version: 1, digest: "d".into() };
        let message = Message { local_id: local_id.to_owned(), at, list, n: None, content };
        let before = self.said.len();
        self.core.set_time(self.now);
        self.give(i64::MAX, message, signer);
        let mut receipts = self.said[before..].iter().filter_map(|said| match &said.content {
            Content::Receipt(receipt) if receipt.command_id == local_id => Some(receipt.clone()),
            _ => None,
        });
        let receipt = receipts.next();
        assert!(receipts.next().is_none(), "one receipt");
        receipt
    }

    /// Gives the session a message that was sent under this `seq`.
    fn give(&mut self, seq: i64, message: Message, signer: Signer) {
        let list_is_withheld = std::mem::take(&mut self.list_is_withheld);
        let key_is_missing = std::mem::take(&mut self.key_is_missing);
        self.core.command(seq, Command { message, signer, epoch: 1, list_is_withheld, key_is_missing });
        self.settle();
    }

    /// By a primary device of the owner.
    fn send(&mut self, content: Content) -> Receipt {
        self.send_as(self.signer(self.owner, Role::Primary), content).unwrap()
    }

    fn prompt(&mut self, text: &str) -> Receipt {
        self.send(prompt(text))
    }

    fn grant(&mut self, user: UserId, may: May, version: u64) -> Receipt {
        let grant =
            AccessGrant { user, account: "account".into(), may, version, removed: false, key_epoch: None, key: None };
        self.send(Content::Control(Control::Access(grant)))
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
    Content::Prompt(Wanted { text: text.into(), attachments: Vec::new(), when: When::Next, directory: None })
}

#[track_caller]
fn rejected(receipt: &Receipt, code: ReceiptCode) {
    assert_eq!((&receipt.outcome, receipt.code.as_ref()), (&ReceiptOutcome::Rejected, Some(&code)), "{receipt:?}");
}
