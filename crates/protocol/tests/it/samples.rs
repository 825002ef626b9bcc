//! Messages of every type, as the schema, the vectors and the reader in JavaScript check them.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;
use ensemble_types::time::Timestamp;

const DIGEST: &str = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

fn id(text: &str) -> String {
    text.to_owned()
}

fn grant(may: May, version: u64) -> AccessGrant {
    let user = "01890a5d-ac96-774b-bcce-b302099a8059".parse().unwrap();
    AccessGrant { user, account: id(DIGEST), may, version, removed: false, key_epoch: None, key: None }
}

fn text() -> TextPart {
    let (text, parent_tool_call_id) = (id("Grüße 😀\n\"quoted\" \\ and \u{202e}turned"), None);
    TextPart { turn_id: id("t1"), part: 0, of: None, text, interrupted: false, parent_tool_call_id }
}

fn turn(state: TurnState) -> Turn {
    Turn {
        turn_id: id("t1"),
        state,
        cause: Cause::Prompt,
        prompt_id: Some(id("p1")),
        text: None,
        stop_reason: None,
        usage: None,
        cost_usd: None,
    }
}

fn diff(old_text: Option<&str>) -> ToolContent {
    let (path, line, old_text) = (id("/home/ann/a.txt"), old_text.map(|_| 31), old_text.map(id));
    ToolContent::Diff(Diff { path, old_text, new_text: id("one\n"), line, cut: None })
}

fn tool_call() -> ToolCall {
    ToolCall {
        tool_call_id: id("c1"),
        turn_id: id("t1"),
        part: Some(1),
        title: Some(id("touch a")),
        kind: Some(ToolKind::Execute),
        status: Some(ToolStatus::InProgress),
        locations: Some(vec![Location { path: id("/home/ann/a.txt"), line: Some(3) }]),
        content: None,
        parent_tool_call_id: Some(id("c0")),
    }
}

fn permission() -> Permission {
    let option =
        |id: &str, name: &str, kind| PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind };
    Permission {
        request_id: id("r1"),
        tool_call_id: Some(id("c1")),
        title: id("touch a"),
        detail: id("Bash\ncommand: touch a\\u{202e}"),
        cut: None,
        content: vec![diff(Some("zero\n"))],
        options: vec![
            option("allow", "Allow once", OptionKind::AllowOnce),
            option("always-0", "Always allow Bash(touch *): for this session", OptionKind::AllowAlways),
            option("reject", "Reject", OptionKind::RejectOnce),
        ],
    }
}

fn question() -> Question {
    let option = |label: &str| QuestionOption { label: id(label), description: Some(id("a database")) };
    let choice = QuestionItem {
        id: id("0"),
        text: id("Which database?"),
        header: Some(id("Database")),
        options: Some(vec![option("PostgreSQL"), option("SQLite")]),
        multiple: true,
    };
    let free = QuestionItem { id: id("1"), text: id("Why?"), header: None, options: None, multiple: false };
    Question { request_id: id("r2"), tool_call_id: None, questions: vec![choice, free] }
}

fn state() -> State {
    State {
        phase: Phase::Waiting,
        agent: id("claude"),
        mode: Mode::Ask,
        model: Some(id("opus")),
        modes: vec![Choice { id: id("ask"), name: id("ask") }],
        models: vec![Choice { id: id("opus"), name: id("Opus") }],
        commands: vec![SlashCommand {
            name: id("verify"),
            description: id("Runs the tests"),
            hint: Some(id("[file]")),
        }],
        steers: true,
        does: vec![id("look.git")],
        directory: id("/home/ann"),
        branch: Some(id("main")),
        provider_session_id: Some(id("01890a5d-ac96-774b-bcce-b302099a8060")),
        context: Some(ContextUse { used: 10, size: 200_000 }),
        cost_usd: Some(0.25),
        still_running: vec![id("npm start")],
        queue: vec![id("p2")],
        access: vec![grant(May::Approve, 3)],
        key_epoch: 1,
    }
}

fn contents() -> Vec<Content> {
    let image = Attachment::Image { mime_type: id("image/png"), data: id("iVBORw0KGgo=") };
    let resource = Resource { uri: id("file:///notes.txt"), mime_type: Some(id("text/plain")), text: id("plum") };
    let usage = Usage { input_tokens: 20, output_tokens: 5, cached_read_tokens: Some(10), ..Usage::default() };
    let ended = Turn {
        stop_reason: Some(StopReason::EndTurn),
        usage: Some(usage),
        cost_usd: Some(0.011),
        ..turn(TurnState::Ended)
    };
    let terminal = ToolContent::Terminal(Terminal {
        terminal_id: id("c1"),
        output: id("made\n"),
        cut: Some(9),
        exit_status: Some(ExitStatus { exit_code: Some(0), signal: None }),
    });
    let done = ToolCall {
        tool_call_id: id("c1"),
        turn_id: id("t1"),
        status: Some(ToolStatus::Completed),
        content: Some(vec![ToolContent::text("done"), diff(None), terminal]),
        ..ToolCall::default()
    };
    let entry = PlanEntry { content: id("Measure"), priority: PlanPriority::High, status: PlanStatus::Pending };
    let cut = Permission { cut: Some(7), content: Vec::new(), ..permission() };
    let answers = BTreeMap::from([(id("0"), vec![id("SQLite")])]);
    let answer = Answer { request_id: id("r1"), digest: id(DIGEST), option_id: None, answers: None, message: None };
    let receipt = Receipt {
        command_id: id("p1"),
        key: id(DIGEST),
        outcome: ReceiptOutcome::Rejected,
        code: Some(ReceiptCode::Stale),
        text: Some(id("The command is too old. Send it again.")),
    };
    let taken_back = Receipt { code: Some(ReceiptCode::TakenBack), text: None, ..receipt.clone() };
    let resolved = Resolved {
        request_id: id("r1"),
        outcome: Outcome::Selected,
        option_id: Some(id("allow")),
        by: Some("01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap()),
        reason: None,
    };
    let withdrawn = Resolved {
        outcome: Outcome::Withdrawn,
        option_id: None,
        by: None,
        reason: Some(id("agent restarted")),
        ..resolved.clone()
    };
    vec![
        Content::Prompt(Prompt { text: id("go"), attachments: Vec::new(), when: When::Next, directory: None }),
        Content::Prompt(Prompt {
            text: id("look"),
            attachments: vec![image, Attachment::Resource { resource }],
            when: When::Now,
            directory: Some(id("/home/me/work")),
        }),
        Content::Turn(turn(TurnState::Started)),
        Content::Turn(ended),
        Content::Text(text()),
        Content::Thought(TextPart { part: 2, of: Some(1), interrupted: true, ..text() }),
        Content::ToolCall(Box::new(tool_call())),
        Content::ToolCall(Box::new(done)),
        Content::Plan(Plan { entries: vec![entry] }),
        Content::Permission(Box::new(permission())),
        Content::Permission(Box::new(cut)),
        Content::Question(question()),
        Content::Answer(Answer { option_id: Some(id("allow")), message: Some(id("gently")), ..answer.clone() }),
        Content::Answer(Answer { request_id: id("r2"), answers: Some(answers), ..answer }),
        Content::Resolved(resolved),
        Content::Resolved(withdrawn),
        Content::Control(Control::Interrupt),
        Content::Control(Control::SetMode(SetMode { mode: Mode::Plan, seen: Mode::Ask })),
        Content::Control(Control::SetModel(SetModel { model: id("opus") })),
        Content::Control(Control::Stop),
        Content::Control(Control::Resume(Resume::default())),
        Content::Control(Control::Resume(Resume { directory: Some(id("/home/me/work")) })),
        Content::Control(Control::Access(grant(May::Nothing, 4))),
        Content::Receipt(Receipt { outcome: ReceiptOutcome::Queued, code: None, text: None, ..receipt.clone() }),
        Content::Receipt(receipt),
        Content::State(Box::new(state())),
        Content::Error(Failure {
            code: ErrorCode::Quota,
            text: id("The limit is reached."),
            retry_at: Some(Timestamp::from_unix_seconds(1_800_000_000)),
        }),
        Content::Control(Control::TakeBack(TakeBack { local_id: id("m0"), key: id(DIGEST) })),
        Content::Receipt(taken_back),
    ]
}

/// One message of each kind, the host's with their count.
pub(crate) fn messages() -> Vec<Message> {
    let mut n = 0;
    let with_head = |(place, content): (usize, Content)| {
        let is_host = content.writer() == Writer::Host;
        n += u64::from(is_host);
        Message {
            local_id: format!("m{place}"),
            at: Timestamp::from_unix_seconds(1_790_000_000 + i64::try_from(place).unwrap()),
            list: KnownList { version: 3, digest: id(DIGEST) },
            n: is_host.then_some(n),
            content,
        }
    };
    contents().into_iter().enumerate().map(with_head).collect()
}
