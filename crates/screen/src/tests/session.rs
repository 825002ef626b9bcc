//! A session whose messages a test writes, and the screen that shows it.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::view::{Author, Incoming, View};
use ensemble_protocol::transcript::words::*;
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;

use crate::{About, Action, Connection, Level, Look, Me, Screen};

pub(super) struct Session {
    pub(super) view: View,
    pub(super) screen: Screen,
    terminal: Terminal<TestBackend>,
    pub(super) me: Me,
    pub(super) ben: UserId,
    pub(super) level: Level,
    pub(super) connection: Connection,
    pub(super) title: String,
    pub(super) name: String,
    now: Instant,
    seq: u64,
    n: u64,
}

impl Session {
    pub(super) fn new(width: u16, height: u16) -> Self {
        let me = Me { user: UserId::generate(), key: "mine".to_owned() };
        Self {
            view: View::default(),
            screen: Screen::new(Look { colour: true, unicode: true }),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            me,
            ben: UserId::generate(),
            level: Level::Owner,
            connection: Connection::Online,
            title: "Fix it".to_owned(),
            name: "Ben".to_owned(),
            now: Instant::now(),
            seq: 0,
            n: 0,
        }
    }

    fn message(&mut self, author: Author, local_id: &str, n: Option<u64>, content: Content) {
        self.seq += 1;
        let at = Timestamp::from_unix_seconds(0).plus(Duration::from_secs(self.seq));
        let list = KnownList { version: 1, digest: String::new() };
        let message = Ok(Message { local_id: local_id.to_owned(), at, list, n, content });
        let digest = format!("digest-{}", self.seq);
        self.view.message(Incoming { seq: self.seq, author, digest, message });
    }

    pub(super) fn host(&mut self, content: Content) {
        self.n += 1;
        let n = self.n;
        self.message(Author::Host, &format!("h{n}"), Some(n), content);
    }

    pub(super) fn mine(&mut self, id: &str, content: Content) {
        let author = Author::Person { user: self.me.user, key: self.me.key.clone(), removed_in: None };
        self.message(author, id, None, content);
    }

    pub(super) fn bens(&mut self, id: &str, content: Content) {
        let author = Author::Person { user: self.ben, key: "bens".to_owned(), removed_in: None };
        self.message(author, id, None, content);
    }

    pub(super) fn receipt(&mut self, id: &str, key: &str, outcome: ReceiptOutcome, code: Option<ReceiptCode>) {
        let (command_id, key) = (id.to_owned(), key.to_owned());
        self.host(Content::Receipt(Receipt { command_id, key, outcome, code, text: None }));
    }

    pub(super) fn frame(&mut self, part: u32, offset: u64, text: &str) {
        let frame = ensemble_protocol::transcript::Frame {
            turn_id: "t".to_owned(),
            part,
            offset,
            text: text.to_owned(),
            thought: false,
        };
        assert!(self.view.frame(&frame).live);
    }

    pub(super) fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
    }

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn about<T>(&mut self, call: impl FnOnce(&mut Screen, &View, &mut Terminal<TestBackend>, &About<'_>) -> T) -> T {
        let name = |_| self.name.clone();
        let (level, connection, now) = (self.level, self.connection, self.now);
        let owner = if level == Level::Owner { self.me.user } else { self.ben };
        let about =
            About { title: &self.title, connection, level, me: &self.me, owner, name: &name, home: "/home/ann", now };
        call(&mut self.screen, &self.view, &mut self.terminal, &about)
    }

    pub(super) fn draw(&mut self) -> Buffer {
        self.about(|screen, view, terminal, about| {
            terminal.draw(|frame| screen.draw(frame, view, about)).unwrap();
            terminal.backend().buffer().clone()
        })
    }

    /// The lines of the screen that are not empty, without the spaces at their ends.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let buffer = self.draw();
        let rows = buffer.content().chunks(usize::from(buffer.area.width));
        let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        text.map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
    }

    pub(super) fn text(&mut self) -> String {
        self.lines().join("\n")
    }

    /// The rows from this one to the rule above the text field, or to the end.
    pub(super) fn from(&mut self, begin: &str) -> Vec<String> {
        let lines = self.lines();
        let at = lines.iter().position(|line| line.trim_start().starts_with(begin));
        let Some(at) = at else { panic!("no line begins with {begin}:\n{}", lines.join("\n")) };
        lines[at..].iter().take_while(|line| **line == lines[at] || !line.starts_with(" ─")).cloned().collect()
    }

    pub(super) fn event(&mut self, event: Event) -> Option<Action> {
        self.about(|screen, view, _, about| screen.event(event, view, about))
    }

    pub(super) fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Action> {
        self.event(Event::Key(KeyEvent::new(code, modifiers)))
    }

    /// Presses a key, and waits until a digit counts.
    pub(super) fn key(&mut self, code: KeyCode) -> Option<Action> {
        let action = self.press(code, KeyModifiers::NONE);
        if self.screen.due_at().is_none() {
            return action;
        }
        self.wait(250);
        self.due()
    }

    /// What a digit wants by now.
    pub(super) fn due(&mut self) -> Option<Action> {
        self.about(|screen, view, _, about| screen.due(view, about))
    }

    pub(super) fn ctrl(&mut self, letter: char) -> Option<Action> {
        self.press(KeyCode::Char(letter), KeyModifiers::CONTROL)
    }

    /// Types letters. None of them may do anything else.
    pub(super) fn types(&mut self, text: &str) {
        for letter in text.chars() {
            assert_eq!(self.press(KeyCode::Char(letter), KeyModifiers::NONE), None, "{letter}");
        }
    }

    /// What the terminal is to say after this frame.
    pub(super) fn call(&mut self) -> crate::Call {
        self.about(|screen, view, _, about| screen.call(view, about))
    }

    /// Draws a card, and waits until it takes keys.
    pub(super) fn settle(&mut self) {
        self.draw();
        self.wait(1_501);
    }
}

pub(super) fn prompt(text: &str) -> Content {
    Content::Prompt(Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None })
}

pub(super) fn text(part: u32, text: &str) -> Content {
    Content::Text(part_of(part, text))
}

pub(super) fn part_of(part: u32, text: &str) -> TextPart {
    let (turn_id, text) = ("t".to_owned(), text.to_owned());
    TextPart { turn_id, part, of: None, text, interrupted: false, parent_tool_call_id: None }
}

pub(super) fn turn(state: TurnState, stop_reason: Option<StopReason>) -> Content {
    let (turn_id, cause) = ("t".to_owned(), Cause::Prompt);
    Content::Turn(Turn { turn_id, state, cause, prompt_id: None, text: None, stop_reason, usage: None, cost_usd: None })
}

pub(super) fn tool(title: &str, status: ToolStatus, content: Vec<ToolContent>) -> Content {
    Content::ToolCall(Box::new(ToolCall {
        tool_call_id: "c".to_owned(),
        turn_id: "t".to_owned(),
        part: Some(7),
        title: Some(title.to_owned()),
        status: Some(status),
        content: Some(content),
        ..ToolCall::default()
    }))
}

pub(super) fn diff() -> ToolContent {
    ToolContent::Diff(Diff {
        path: "a.rs".to_owned(),
        old_text: Some("one\ntwo\nthree\n".to_owned()),
        new_text: "one\n2\nthree\n".to_owned(),
        line: None,
        cut: None,
    })
}

pub(super) fn option(id: &str, name: &str, kind: OptionKind) -> PermissionOption {
    PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind }
}

pub(super) fn permission(id: &str, detail: &str) -> Permission {
    Permission {
        request_id: id.to_owned(),
        tool_call_id: None,
        title: "Run a command".to_owned(),
        detail: detail.to_owned(),
        cut: None,
        content: Vec::new(),
        options: vec![
            option("once", "Allow once", OptionKind::AllowOnce),
            option(
                "always",
                "Always allow `ls` in this project (.claude/settings.local.json)",
                OptionKind::AllowAlways,
            ),
            option("no", "Deny", OptionKind::RejectOnce),
        ],
    }
}

pub(super) fn asks(id: &str, detail: &str) -> Content {
    Content::Permission(Box::new(permission(id, detail)))
}

pub(super) fn resolved(id: &str, option: &str, by: UserId) -> Content {
    let (request_id, option_id) = (id.to_owned(), Some(option.to_owned()));
    Content::Resolved(Resolved { request_id, outcome: Outcome::Selected, option_id, by: Some(by), reason: None })
}

pub(super) fn state(phase: Phase) -> State {
    State {
        phase,
        agent: "claude".to_owned(),
        mode: Mode::Ask,
        model: Some("sonnet".to_owned()),
        modes: Vec::new(),
        models: vec![Choice { id: "opus-4".to_owned(), name: "Opus".to_owned() }],
        commands: vec![SlashCommand { name: "compact".to_owned(), description: "shorten".to_owned(), hint: None }],
        steers: false,
        does: Vec::new(),
        directory: "/home/ann/app".to_owned(),
        branch: Some("main".to_owned()),
        provider_session_id: None,
        context: Some(ContextUse { used: 68, size: 200 }),
        cost_usd: Some(0.42),
        still_running: Vec::new(),
        queue: Vec::new(),
        access: Vec::new(),
        key_epoch: 1,
    }
}

pub(super) fn is_in(phase: Phase) -> Content {
    Content::State(Box::new(state(phase)))
}
