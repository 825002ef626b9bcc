//! Lines of the agents through their drivers, and what the turn makes of them.

use ensemble_agent::{Attended, Driver, Kind, Line, Start, driver};
use ensemble_protocol::transcript::words::Mode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::text::SUMMARY_BYTES;
use super::*;

/// A turn with its driver: what a runner is between them, without a process.
struct Played {
    driver: Box<dyn Driver>,
    turn: Turn,
    did: Vec<Do>,
    /// What the agent was sent.
    sent: Vec<Value>,
}

fn provider(kind: Kind) -> Provider {
    match kind {
        Kind::Claude => Provider::Claude,
        Kind::Codex => Provider::Codex,
        Kind::Gemini => Provider::Gemini,
        Kind::Opencode | Kind::Acp => "opencode".parse().unwrap(),
    }
}

fn prompt() -> Prompt {
    Prompt { id: "p".to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false }
}

impl Played {
    fn new(kind: Kind, max_cost_usd: Option<f64>) -> Self {
        let start = Start {
            directory: "/w".to_owned(),
            session_id: "s-0".to_owned(),
            mode: Mode::Edit,
            model: Some("m".to_owned()),
            resume: None,
            fork: false,
            cost_before: 0.0,
            as_root: false,
            checkpoint: None,
            mcp_servers: Vec::new(),
            private: None,
            attended: Attended::Unattended(Box::default()),
        };
        let turn = Turn::new(provider(kind), max_cost_usd, prompt());
        let mut played = Self { driver: driver(kind, start), turn, did: Vec::new(), sent: Vec::new() };
        let first = played.driver.begin();
        played.take(first);
        played
    }

    /// Ready, and with the prompt.
    fn ready(kind: Kind) -> Self {
        let mut played = Self::new(kind, None);
        let answers = match kind {
            Kind::Claude => vec![
                json!({"type": "control_response", "response": {"subtype": "success", "request_id": "host-1", "response": {}}}),
            ],
            Kind::Codex => vec![
                json!({"id": 1, "result": {}}),
                json!({"id": 2, "result": {"thread": {"id": "t-1"}}}),
                json!({"id": 4, "result": {"turn": {"id": "u-1"}}}),
            ],
            _ => vec![
                json!({"id": 1, "result": {"agentCapabilities": {}}}),
                json!({"id": 2, "result": {"sessionId": "s-1", "modes": {"availableModes": [{"id": "autoEdit"}, {"id": "build"}]}}}),
                json!({"id": 3, "result": {}}),
            ],
        };
        answers.iter().for_each(|answer| played.line(&answer.to_string()));
        assert!(played.sent.iter().any(|line| line.to_string().contains("\"go\"")), "{:?}", played.sent);
        played
    }

    fn line(&mut self, line: &str) {
        let output = self.driver.line(&Line::Text(line.to_owned()));
        self.take(output);
    }

    fn lines(mut self, lines: &[&str]) -> Self {
        lines.iter().for_each(|line| self.line(line));
        self
    }

    fn take(&mut self, output: ensemble_agent::Output) {
        self.sent.extend(output.lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        for event in output.events {
            let found = self.turn.event(event);
            if let Some(Do::Tell(command)) = &found {
                let output = self.driver.command(command.clone()).unwrap();
                self.take(output);
            }
            self.did.extend(found);
        }
    }

    fn verdict(&self, exit: Exit, stop: Option<Stop>) -> (FinishStatus, Option<String>) {
        let outcome = self.turn.verdict(Some(exit), stop, "");
        (outcome.status, outcome.error.map(|error| error.code.into_string()))
    }
}

const SUCCESS: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok"}"#;
const ERROR: &str = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 400 no"}"#;
const REFUSED: &str = r#"{"type":"result","subtype":"success","is_error":true,"result":"no","stop_reason":"refusal"}"#;
const LIMIT: &str =
    r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've hit your limit"}"#;

fn claude(lines: &[&str]) -> Played {
    Played::ready(Kind::Claude).lines(lines)
}

fn verdict(lines: &[&str], exit: Exit, stop: Option<Stop>) -> (FinishStatus, Option<String>) {
    claude(lines).verdict(exit, stop)
}

#[test]
fn both_the_exit_code_and_the_last_line_must_be_good() {
    use FinishStatus::{Completed, Failed};
    assert_eq!(verdict(&[SUCCESS], Exit::Code(0), None), (Completed, None));
    assert_eq!(claude(&[SUCCESS]).turn.verdict(None, None, "").status, Completed, "it was ended when it was done");
    for (lines, exit, code) in [
        (&[SUCCESS][..], Exit::Code(1), "PROVIDER_FAILED"),
        (&[SUCCESS], Exit::Signal(9), "CRASHED"),
        (&[ERROR], Exit::Code(0), "MODEL_ERROR"),
        (&[ERROR], Exit::Code(1), "MODEL_ERROR"),
        (&[REFUSED], Exit::Code(0), "REFUSED"),
        (&[], Exit::Code(0), "NO_RESULT"),
        (&[], Exit::Code(2), "PROVIDER_FAILED"),
        (&[], Exit::Signal(11), "CRASHED"),
        (&[], Exit::Unknown, "CRASHED"),
    ] {
        assert_eq!(verdict(lines, exit, None), (Failed, Some(code.to_owned())), "{lines:?} {exit:?}");
    }
}

#[test]
fn a_limit_is_what_the_program_gave_up_because_of() {
    let ends = |at: i64, status: &str| {
        format!(r#"{{"type":"rate_limit_event","rate_limit_info":{{"status":"{status}","resetsAt":{at}}}}}"#)
    };
    let of = |lines: &[&str]| {
        let outcome = claude(lines).turn.verdict(Some(Exit::Code(1)), None, "");
        (outcome.status, outcome.resume_at)
    };
    let at = Timestamp::from_unix_seconds;
    use FinishStatus::{Failed, Quota};
    assert_eq!(of(&[LIMIT]), (Quota, None));
    assert_eq!(of(&[&ends(1_000, "rejected"), LIMIT]), (Quota, Some(at(1_000))));
    assert_eq!(of(&[&ends(1_000, "allowed_warning"), LIMIT]), (Quota, None));
    assert_eq!(of(&[&ends(1_000, "rejected"), &ends(2_000, "allowed"), LIMIT]), (Quota, None));
    assert_eq!(of(&[&ends(1_000, "rejected"), ERROR]), (Failed, None), "it ended for another reason");
    assert_eq!(of(&[&ends(-5, "rejected"), LIMIT]).1, Some(at(0)));
    let far = of(&[&ends(i64::MAX, "rejected"), LIMIT]).1.unwrap();
    let week = Duration::from_secs(7 * 24 * 60 * 60);
    assert!(far < now().plus(week) && far > now().plus(week / 2), "{far}");
    let (retried, text) = (
        r#"{"type":"system","subtype":"api_retry","attempt":1,"error_status":429,"error":"rate_limit"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"API Error: 429 You've hit your limit"}]}}"#,
    );
    assert_eq!(verdict(&[retried, text, SUCCESS], Exit::Code(0), None), (FinishStatus::Completed, None));
    assert_eq!(verdict(&[text, ERROR], Exit::Code(1), None).1.as_deref(), Some("MODEL_ERROR"));
    let billing = r#"{"type":"assistant","error":"billing_error","message":{"content":[]}}"#;
    let credit = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":400,"result":"Credit balance is too low"}"#;
    assert_eq!(
        verdict(&[billing, credit], Exit::Code(1), None).1.as_deref(),
        Some("MODEL_ERROR"),
        "it does not end by itself"
    );
}

#[test]
fn each_program_has_its_own_sign_of_a_limit() {
    let codex = |info: Value, message: &str| {
        let turn = json!({"id": "u-1", "status": "failed", "error": {"message": message, "codexErrorInfo": info}});
        let done = json!({"method": "turn/completed", "params": {"threadId": "t-1", "turn": turn}}).to_string();
        let (status, code) = Played::ready(Kind::Codex).lines(&[&done]).verdict(Exit::Code(0), None);
        (status, code.unwrap())
    };
    use FinishStatus::{Failed, Quota};
    let limit = (Quota, "PROVIDER_LIMIT_REACHED".to_owned());
    let error = (Failed, "MODEL_ERROR".to_owned());
    assert_eq!(codex(json!("usageLimitExceeded"), "You’ve hit your usage limit."), limit);
    let failed = |status: u64| json!({"responseTooManyFailedAttempts": {"httpStatusCode": status}});
    assert_eq!(codex(failed(429), "exceeded retry limit, last status: 429 Too Many Requests"), limit);
    assert_eq!(codex(failed(500), "exceeded retry limit, last status: 500"), error);
    assert_eq!(
        codex(json!("other"), "stream error: You’ve hit your usage limit"),
        error,
        "what a model says is no limit"
    );
    assert_eq!(codex(json!("other"), "Incomplete response: content_filter").1, "REFUSED");
    assert_eq!(codex(json!("unauthorized"), "no").1, "PROVIDER_NOT_SIGNED_IN");

    let gemini = |code: i64, message: &str| {
        let answer = json!({"id": 4, "error": {"code": code, "message": message}}).to_string();
        Played::ready(Kind::Gemini).lines(&[&answer]).verdict(Exit::Code(0), None)
    };
    assert_eq!(gemini(429, "[API Error: You have exhausted your daily quota]").0, Quota);
    assert_eq!(gemini(400, "no").1.as_deref(), Some("MODEL_ERROR"));
    let done = json!({"id": 4, "result": {"stopReason": "end_turn"}}).to_string();
    let content = json!({"type": "text", "text": "hi"});
    let update = json!({"sessionId": "s-1", "update": {"sessionUpdate": "agent_message_chunk", "content": content}});
    let said = json!({"method": "session/update", "params": update}).to_string();
    let of = |lines: &[&str]| Played::ready(Kind::Gemini).lines(lines).verdict(Exit::Code(0), None);
    assert_eq!(of(&[&said, &done]).0, FinishStatus::Completed);
    assert_eq!(of(&[&done]).1.as_deref(), Some("REFUSED"), "a blocked answer is empty");
}

#[test]
fn an_agent_that_is_not_signed_in_does_not_wait_for_a_prompt() {
    let lines = [
        json!({"id": 1, "result": {}}).to_string(),
        json!({"id": 2, "error": {"code": -32000, "message": "Authentication required."}}).to_string(),
    ];
    let played = Played::new(Kind::Gemini, None).lines(&[&lines[0], &lines[1]]);
    assert_eq!(played.did, [Do::End]);
    assert_eq!(played.verdict(Exit::Code(0), None).1.as_deref(), Some("PROVIDER_NOT_SIGNED_IN"));
    assert_eq!(
        Played::new(Kind::Gemini, None).verdict(Exit::Code(41), None).1.as_deref(),
        Some("PROVIDER_NOT_SIGNED_IN")
    );
}

#[test]
fn a_task_does_not_continue_with_another_model() {
    let mut played = Played::new(Kind::Opencode, None);
    for answer in [
        json!({"id": 1, "result": {"agentCapabilities": {}}}),
        json!({"id": 2, "result": {"sessionId": "s-1", "modes": {"availableModes": [{"id": "build"}]}}}),
        json!({"id": 3, "result": {}}),
        json!({"id": 4, "error": {"code": -32602, "message": "no such model"}}),
    ] {
        played.line(&answer.to_string());
    }
    assert_eq!(played.did, [Do::End], "it gets no prompt");
    assert_eq!(played.verdict(Exit::Code(0), None).1.as_deref(), Some("MODEL_ERROR"));
}

#[test]
fn a_stop_decides_unless_the_work_was_done() {
    use FinishStatus::{Cancelled, Completed, Timeout};
    let term = Exit::Signal(15);
    assert_eq!(verdict(&[SUCCESS], Exit::Code(0), Some(Stop::Cancel)), (Completed, None));
    assert_eq!(verdict(&[], term, Some(Stop::Cancel)), (Cancelled, None));
    assert_eq!(verdict(&[ERROR], Exit::Code(143), Some(Stop::Timeout)), (Timeout, Some("TIMEOUT".to_owned())));
    assert_eq!(verdict(&[], term, Some(Stop::HandBack)), (Cancelled, Some("HANDED_BACK".to_owned())));
}

#[test]
fn a_limit_of_cost_is_a_failure_and_never_a_quota() {
    let budget = r#"{"type":"result","subtype":"error_max_budget_usd","is_error":true,"total_cost_usd":2.5}"#;
    assert_eq!(verdict(&[budget], Exit::Code(1), None), (FinishStatus::Failed, Some("COST_LIMIT_REACHED".to_owned())));
    let mut played = Played::new(Kind::Claude, Some(2.0));
    played.line(r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","total_cost_usd":2.5}"#);
    assert_eq!(played.did, [Do::TooExpensive]);
    assert_eq!(played.verdict(Exit::Code(0), None).1.as_deref(), Some("COST_LIMIT_REACHED"));
    assert_eq!(played.turn.event(Event::Cost(0.1)), Some(Do::TooExpensive), "while a turn runs");
    assert_eq!(Played::new(Kind::Claude, Some(2.0)).turn.event(Event::Cost(2.0)), None);
}

#[test]
fn what_an_agent_asks_is_refused_at_once_and_noted() {
    let mut played = Played::ready(Kind::Gemini);
    let options = json!([
        {"kind": "allow_once", "name": "Allow", "optionId": "proceed_once"},
        {"kind": "reject_once", "name": "Reject", "optionId": "cancel"},
    ]);
    let call = json!({"toolCallId": "c-1", "title": "npm test", "kind": "execute", "status": "pending"});
    let params = json!({"sessionId": "s-1", "options": options, "toolCall": call});
    played.line(&json!({"id": 9, "method": "session/request_permission", "params": params}).to_string());
    let answer = json!({"outcome": {"outcome": "selected", "optionId": "cancel"}});
    assert_eq!(played.sent.last().unwrap()["result"], answer);
    let denials = played.turn.report(Outcome::cancelled().report(1)).permission_denials.unwrap();
    assert_eq!((denials.count, &*denials.denials[0].tool, &*denials.denials[0].summary), (1, "execute", "npm test"));

    let denied = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","permission_denials":[
        {"tool_name":"Bash","tool_input":{"command":"npm test"}}]}"#;
    let denials = claude(&[denied]).turn.report(Outcome::cancelled().report(1)).permission_denials.unwrap();
    assert_eq!((&*denials.denials[0].tool, &*denials.denials[0].summary), ("Bash", "npm test"));
}

#[test]
fn what_people_read_has_texts_calls_and_results() {
    let delta = |text: &str| {
        let event = json!({"delta": {"type": "text_delta", "text": text}});
        json!({"type": "stream_event", "event": event}).to_string()
    };
    let whole = json!({"type": "assistant", "message": {"content": [
        {"type": "text", "text": "one two"},
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls\n-l"}},
    ]}});
    let result = json!({"type": "user", "message": {"content": [
        {"type": "tool_result", "tool_use_id": "c", "content": "a\nb\n"},
    ]}});
    let mut played = claude(&[&delta("one "), &delta("two"), &whole.to_string(), &result.to_string(), "no JSON"]);
    played.line(&delta("three\0"));
    played.line(r#"{"type":"result","subtype":"success","is_error":false,"result":"three","usage":{"input_tokens":3,"output_tokens":4}}"#);
    assert_eq!(played.turn.take_text(), "one two\n[execute] ls…\n  │ a\n  │ b\nno JSON\nthree\u{fffd}\n");
    assert_eq!(played.turn.take_text(), "");
    let report = played.turn.report(Outcome::cancelled().report(1));
    assert_eq!((report.output_summary.as_deref(), report.usage.unwrap().output_tokens), (Some("three"), Some(4)));
    assert_eq!(report.provider_session_id.as_deref(), Some("s-0"));
}

#[test]
fn a_line_that_is_too_long_for_a_message_is_shown_as_it_comes() {
    let mut turn = claude(&[]).turn;
    for piece in ["xx", "yy", "zz\n"] {
        turn.event(Event::Raw(piece.to_owned()));
    }
    assert_eq!(turn.take_text(), "xxyyzz\n");
}

#[test]
fn a_summary_is_truncated_between_characters() {
    let mut turn = claude(&[]).turn;
    for text in [&"😀".repeat(SUMMARY_BYTES), "more"] {
        turn.event(Event::Delta { part: 0, kind: ensemble_agent::PartKind::Text, text: text.to_owned() });
    }
    let answer = turn.report(Outcome::cancelled().report(1)).output_summary.unwrap().into_string();
    assert!(answer.len() <= SUMMARY_BYTES && answer.len() > SUMMARY_BYTES - 8 && answer.ends_with("😀…"));
}

#[test]
fn a_prompt_that_claude_takes_for_a_command_has_failed() {
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"Unknown skill: x","num_turns":0,"modelUsage":{}}"#;
    assert_eq!(verdict(&[line], Exit::Code(0), None), (FinishStatus::Failed, Some("MODEL_ERROR".to_owned())));
}

/// Values with the words of the programs in places where the programs do not use them.
fn printed() -> impl Strategy<Value = String> {
    let words = "type subtype result assistant message content text method params item update sessionUpdate error \
                 usage session_id sessionId is_error success status init system turn/completed id 😀\0";
    let word = proptest::sample::select(words.split(' ').collect::<Vec<_>>());
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    });
    prop_oneof![3 => value.prop_map(|value| value.to_string()), 1 => any::<String>()]
}

proptest! {
    #[test]
    fn any_output_can_be_read(lines in proptest::collection::vec(printed(), 0..30)) {
        for kind in [Kind::Claude, Kind::Codex, Kind::Gemini, Kind::Opencode] {
            let mut played = Played::ready(if kind == Kind::Opencode { Kind::Gemini } else { kind });
            lines.iter().for_each(|line| played.line(line));
            prop_assert!(!played.turn.take_text().contains('\0'));
            let report = played.turn.report(Outcome::cancelled().report(1));
            prop_assert!(report.output_summary.is_none_or(|answer| answer.len() <= SUMMARY_BYTES));
        }
    }
}
