//! Plays a small made-up session in the terminal, to see the screen: `cargo run -p ensemble-screen --example show`.
//!
//! A prompt runs a turn: a text that grows, a tool, and a request for a permission. "ask" in it asks a question, "long" asks
//! about a long text. The argument `reader` shows it to a person who may only read.

#![expect(clippy::unwrap_used, reason = "an example")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::frame;
use ensemble_protocol::transcript::view::{Author, Incoming, View};
use ensemble_protocol::transcript::words::*;
use ensemble_screen::{About, Action, Connection, Event, Level, Look, Me, Screen, Terminal};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

const TICK: Duration = Duration::from_millis(150);

/// What the machine does next.
enum Step {
    Says(Content),
    /// A text of this part has grown to this.
    Grows(u32, String),
}

struct Play {
    view: View,
    me: Me,
    ben: UserId,
    seq: u64,
    n: u64,
    turns: u32,
    steps: VecDeque<Step>,
    is_open: bool,
}

fn main() {
    let me = Me { user: UserId::generate(), key: "mine".to_owned() };
    let (view, ben, steps) = (View::default(), UserId::generate(), VecDeque::new());
    let mut play = Play { view, me, ben, seq: 0, n: 0, turns: 0, steps, is_open: false };
    play.begin();
    let level = if std::env::args().any(|one| one == "reader") { Level::Read } else { Level::Owner };
    let mut screen = Screen::new(Look::of(|name| std::env::var_os(name)?.into_string().ok()));
    let mut terminal = Terminal::open().unwrap();
    let me = play.me.clone();
    loop {
        let name = |_| "Ben".to_owned();
        let (title, connection) = ("Fix the parser", Connection::Online);
        let about =
            About { title, connection, level, me: &me, owner: me.user, name: &name, home: "", now: Instant::now() };
        terminal.draw(|frame| screen.draw(frame, &play.view, &about)).unwrap();
        if !crossterm::event::poll(TICK).unwrap() {
            play.step();
            continue;
        }
        let event: Event = crossterm::event::read().unwrap();
        let about = About { now: Instant::now(), ..about };
        match screen.event(event, &play.view, &about) {
            Some(Action::Leave) => return,
            Some(action) => play.act(action),
            None => {}
        }
    }
}

impl Play {
    fn message(&mut self, author: Author, n: Option<u64>, content: Content) -> String {
        self.seq += 1;
        let at = Timestamp::from_unix_seconds(1_800_000_000).plus(Duration::from_secs(self.seq));
        let list = KnownList { version: 1, digest: String::new() };
        let local_id = format!("m{}", self.seq);
        let message = Ok(Message { local_id: local_id.clone(), at, list, n, content });
        self.view.message(Incoming { seq: self.seq, author, digest: local_id.clone(), message });
        local_id
    }

    fn host(&mut self, content: Content) {
        self.n += 1;
        let n = self.n;
        self.message(Author::Host, Some(n), content);
    }

    fn person(&mut self, user: UserId, content: Content) {
        let key = if user == self.me.user { "mine" } else { "ben's" };
        let id = self.message(Author::Person { user, key: key.to_owned(), removed_in: None }, None, content);
        let (key, outcome) = (key.to_owned(), ReceiptOutcome::Done);
        self.steps.push_front(Step::Says(Content::Receipt(Receipt {
            command_id: id,
            key,
            outcome,
            code: None,
            text: None,
        })));
    }

    fn begin(&mut self) {
        self.host(state(Phase::Idle, Mode::Ask));
        let entries = ["Read the parser", "Write a failing test", "Fix it", "Run all tests"];
        let statuses = [PlanStatus::Completed, PlanStatus::InProgress, PlanStatus::Pending, PlanStatus::Pending];
        let entries = entries.iter().zip(statuses).map(|(content, status)| PlanEntry {
            content: (*content).to_owned(),
            priority: PlanPriority::Medium,
            status,
        });
        self.host(Content::Plan(Plan { entries: entries.collect() }));
        let ben = self.ben;
        let text = "The parser loses the last line when a file has no newline at its end.\nCan you fix it?";
        self.person(ben, prompt(text));
        self.turn("fix it");
    }

    /// The steps of a turn.
    fn turn(&mut self, text: &str) {
        self.turns += 1;
        let id = format!("t{}", self.turns);
        self.steps.push_back(Step::Says(turn(&id, TurnState::Started)));
        self.steps.push_back(Step::Says(state(Phase::Working, Mode::Ask)));
        let thought = "The reader splits at newlines, so the rest is dropped. I should look at `Lines::next` first.";
        self.steps.push_back(Step::Says(Content::Thought(part(&id, 0, thought))));
        let says = "I'll look at how lines are read. There are **two places** where the end of a file matters:\n\n- \
                    `Lines::next` drops what is after the last newline\n- the test files all end with one, so that \
                    no test could notice it\n\n```rust\nlet rest = self.text.get(at..)?;\n```";
        let ends: Vec<usize> = says.char_indices().map(|(at, _)| at).step_by(12).skip(1).collect();
        self.steps.extend(ends.iter().map(|end| Step::Grows(1, says[..*end].to_owned())));
        self.steps.push_back(Step::Says(Content::Text(part(&id, 1, says))));
        self.steps.push_back(Step::Says(tool(&id, "a", "Read src/parser/lines.rs", ToolStatus::Completed, None)));
        let diff = Diff {
            path: "src/parser/lines.rs".to_owned(),
            old_text: Some("fn next(&mut self) -> Option<&str> {\n    let at = self.find('\\n')?;\n    self.cut(at)\n}\n".into()),
            new_text: "fn next(&mut self) -> Option<&str> {\n    match self.find('\\n') {\n        Some(at) => self.cut(at),\n        None => self.rest(),\n    }\n}\n".into(),
            line: None,
            cut: None,
        };
        let content = Some(vec![ToolContent::Diff(diff)]);
        self.steps.push_back(Step::Says(tool(&id, "b", "Edit src/parser/lines.rs", ToolStatus::Completed, content)));
        let command = "cargo test -p parser";
        self.steps.push_back(Step::Says(tool(&id, "c", command, ToolStatus::InProgress, None)));
        for count in 1..8 {
            let lines: Vec<String> = (0..count).map(|line| format!("test parser::lines::case_{line} ... ok")).collect();
            self.steps.push_back(Step::Grows(7, lines.join("\n")));
        }
        let terminal = Terminal_ {
            terminal_id: "x".into(),
            output: "test a ... ok\ntest b ... FAILED\n".into(),
            cut: None,
            exit_status: Some(ExitStatus { exit_code: Some(101), signal: None }),
        };
        let content = Some(vec![ToolContent::Terminal(terminal)]);
        self.steps.push_back(Step::Says(tool(&id, "c", command, ToolStatus::Failed, content)));
        self.steps.push_back(Step::Says(state(Phase::Waiting, Mode::Ask)));
        let asks = if text.contains("ask") { question(&id) } else { permission(&id, text.contains("long")) };
        self.steps.push_back(Step::Says(asks));
    }

    fn step(&mut self) {
        if self.is_open {
            return;
        }
        match self.steps.pop_front() {
            Some(Step::Says(content)) => {
                self.is_open = matches!(content, Content::Permission(_) | Content::Question(_));
                self.host(content);
            }
            Some(Step::Grows(part, text)) => {
                drop(self.view.frame(&frame(&format!("t{}", self.turns), part, &text)));
            }
            None => {}
        }
    }

    fn act(&mut self, action: Action) {
        let me = self.me.user;
        match action {
            Action::Prompt { text, .. } => {
                assert!(text != "panic", "the terminal must be as it was");
                self.person(me, prompt(&text));
                self.turn(&text);
            }
            Action::Answer { request_id, digest, option_id, answers, message } => {
                let answer =
                    Answer { request_id: request_id.clone(), digest, option_id: option_id.clone(), answers, message };
                self.person(me, Content::Answer(answer));
                let outcome = if option_id.is_some() { Outcome::Selected } else { Outcome::Answered };
                self.is_open = false;
                let by = Some(me);
                let resolved = Resolved { request_id, outcome, option_id, by, reason: None };
                self.steps.push_back(Step::Says(Content::Resolved(resolved)));
                self.end(StopReason::EndTurn);
            }
            Action::Interrupt => {
                self.steps.clear();
                self.is_open = false;
                self.person(me, Content::Control(Control::Interrupt));
                for request_id in self.view.open().map(|card| card.request_id.clone()).collect::<Vec<_>>() {
                    let reason = Some("interrupted".to_owned());
                    let resolved =
                        Resolved { request_id, outcome: Outcome::Withdrawn, option_id: None, by: None, reason };
                    self.steps.push_back(Step::Says(Content::Resolved(resolved)));
                }
                self.end(StopReason::Cancelled);
            }
            Action::SetMode { mode, seen } => {
                self.person(me, Content::Control(Control::SetMode(SetMode { mode: mode.clone(), seen })));
                self.steps.push_back(Step::Says(state(Phase::Idle, mode)));
            }
            Action::Stop => self.steps.push_back(Step::Says(state(Phase::Ended, Mode::Ask))),
            _ => {}
        }
    }

    fn end(&mut self, reason: StopReason) {
        let Content::Turn(mut turn) = turn(&format!("t{}", self.turns), TurnState::Ended) else { return };
        turn.stop_reason = Some(reason);
        self.steps.push_back(Step::Says(Content::Turn(turn)));
        self.steps.push_back(Step::Says(state(Phase::Idle, Mode::Ask)));
    }
}

use ensemble_protocol::transcript::body::Terminal as Terminal_;

fn prompt(text: &str) -> Content {
    Content::Prompt(Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None })
}

fn part(turn: &str, part: u32, text: &str) -> TextPart {
    let (turn_id, text) = (turn.to_owned(), text.to_owned());
    TextPart { turn_id, part, of: None, text, interrupted: false, parent_tool_call_id: None }
}

fn turn(id: &str, state: TurnState) -> Content {
    let (turn_id, cause) = (id.to_owned(), Cause::Prompt);
    Content::Turn(Turn {
        turn_id,
        state,
        cause,
        prompt_id: None,
        text: None,
        stop_reason: None,
        usage: None,
        cost_usd: None,
    })
}

fn tool(turn: &str, id: &str, title: &str, status: ToolStatus, content: Option<Vec<ToolContent>>) -> Content {
    Content::ToolCall(Box::new(ToolCall {
        tool_call_id: format!("{turn}{id}"),
        turn_id: turn.to_owned(),
        part: Some(7),
        title: Some(title.to_owned()),
        status: Some(status),
        content,
        ..ToolCall::default()
    }))
}

fn permission(turn: &str, is_long: bool) -> Content {
    let option = |id: &str, name: &str, kind| PermissionOption { option_id: id.into(), name: name.into(), kind };
    let command =
        "cargo test --workspace --no-fail-fast && git commit -am 'parser: Keep the last line'\nin /home/ann/parser";
    let detail = if is_long { (1..200).map(|line| format!("echo {line}\n")).collect() } else { command.to_owned() };
    let options = vec![
        option("once", "Allow once", OptionKind::AllowOnce),
        option(
            "always",
            "Always allow `cargo test` in this project (.claude/settings.local.json)",
            OptionKind::AllowAlways,
        ),
        option("no", "Deny", OptionKind::RejectOnce),
    ];
    let (request_id, title) = (format!("r{turn}"), "Run a command".to_owned());
    let permission =
        Permission { request_id, tool_call_id: None, title, detail, cut: None, content: Vec::new(), options };
    Content::Permission(Box::new(permission))
}

fn question(turn: &str) -> Content {
    let option = |label: &str, about: &str| QuestionOption { label: label.into(), description: Some(about.into()) };
    let first = QuestionItem {
        id: "q1".into(),
        text: "How should the end of a file be treated?".into(),
        header: Some("End of file".into()),
        options: Some(vec![
            option("As a line", "the rest is one more line"),
            option("As an error", "the file is refused"),
        ]),
        multiple: false,
    };
    let second = QuestionItem {
        id: "q2".into(),
        text: "Which tests shall I write?".into(),
        header: None,
        options: Some(vec![
            option("Unit", "next to the code"),
            option("Fuzz", "with random files"),
            option("None", ""),
        ]),
        multiple: true,
    };
    let questions = vec![first, second];
    Content::Question(Question { request_id: format!("q{turn}"), tool_call_id: None, questions })
}

fn state(phase: Phase, mode: Mode) -> Content {
    let command = |name: &str, about: &str| SlashCommand { name: name.into(), description: about.into(), hint: None };
    let choice = |id: &str, name: &str| Choice { id: id.into(), name: name.into() };
    Content::State(Box::new(State {
        phase,
        agent: "claude".into(),
        mode,
        model: Some("claude-sonnet-4-5".into()),
        modes: ["ask", "edit", "plan"].map(|mode| choice(mode, mode)).to_vec(),
        models: vec![choice("claude-sonnet-4-5", "Sonnet 4.5"), choice("claude-opus-4-5", "Opus 4.5")],
        commands: vec![command("compact", "make the conversation shorter"), command("review", "review a pull request")],
        steers: true,
        does: Vec::new(),
        directory: "~/parser".into(),
        branch: Some("main".into()),
        provider_session_id: None,
        context: Some(ContextUse { used: 68_000, size: 200_000 }),
        cost_usd: Some(0.42),
        still_running: Vec::new(),
        queue: Vec::new(),
        access: Vec::new(),
        key_epoch: 1,
    }))
}
