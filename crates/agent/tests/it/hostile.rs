//! Agents that send nonsense: no driver fails on it, and nothing happens without a person's consent.

use std::collections::BTreeMap;

use ensemble_agent::{
    Attended, Command, Driver, Event, Exit, Kind, Line, Output, Permission, Prompt, Refused, Reply, Start, driver,
};
use ensemble_protocol::transcript::words::{Mode, OptionKind, StopReason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::replay::wires;
use crate::wire::{self, Entry};

const ALL: [Kind; 3] = [Kind::Claude, Kind::Codex, Kind::Gemini];

fn start() -> Start {
    Start {
        directory: "/w".to_owned(),
        session_id: "01890a5d-ac96-474b-bcce-b302099a8057".to_owned(),
        mode: Mode::Ask,
        model: None,
        resume: None,
        fork: false,
        cost_before: 0.0,
        as_root: false,
        checkpoint: None,
        mcp_servers: Vec::new(),
        private: None,
        attended: Attended::People,
    }
}

fn say(driver: &mut Box<dyn Driver>, message: &Value) -> Output {
    driver.line(&Line::Text(message.to_string()))
}

/// What an agent sends to ask for a command: by its id and the command.
pub(crate) type Request = fn(Value, &str) -> Value;

/// A driver with a turn that runs, and how its agent asks for `touch a` with an id.
pub(crate) fn in_a_turn(kind: Kind) -> (Box<dyn Driver>, Request) {
    let mut driver = driver(kind, start());
    driver.begin();
    let prompt =
        Command::Prompt(Prompt { id: "p".to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false });
    let answers: &[Value] = match kind {
        Kind::Claude => &[
            json!({"type": "control_response", "response": {"subtype": "success", "request_id": "host-1", "response": {}}}),
        ],
        Kind::Codex => &[
            json!({"id": 1, "result": {}}),
            json!({"id": 2, "result": {"thread": {"id": "s"}}}),
            json!({"id": 3, "result": {}}),
        ],
        _ => &[
            json!({"id": 1, "result": {"agentCapabilities": {"loadSession": true}}}),
            json!({"id": 2, "result": {"sessionId": "s", "modes": {"availableModes": [{"id": "default"}, {"id": "yolo"}]}}}),
            json!({"id": 3, "result": {}}),
        ],
    };
    answers.iter().for_each(|answer| drop(say(&mut driver, answer)));
    driver.command(prompt).unwrap();
    match kind {
        Kind::Claude => {
            say(&mut driver, &json!({"type": "system", "subtype": "init"}));
            (driver, |id, command| {
                let request = json!({"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "c", "input": {"command": command},
                "permission_suggestions": [
                    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
                    {"type": "addRules", "behavior": "allow", "destination": "userSettings", "rules": [{"toolName": "Bash"}]},
                ]});
                json!({"type": "control_request", "request_id": id, "request": request})
            })
        }
        Kind::Codex => {
            say(&mut driver, &json!({"id": 4, "result": {"turn": {"id": "t"}}}));
            (driver, |id, command| {
                let params = json!({"threadId": "s", "itemId": "c", "command": command, "proposedExecpolicyAmendment": ["touch"]});
                json!({"id": id, "method": "item/commandExecution/requestApproval", "params": params})
            })
        }
        _ => (driver, |id, command| {
            // gemini's and opencode's ids of what is for once.
            let once = ["proceed_once", "once"].map(|id| json!({"optionId": id, "name": "Yes", "kind": "allow_once"}));
            let options = json!([once[0], once[1], {"optionId": "no", "name": "No", "kind": "reject_once"}]);
            let call = json!({"toolCallId": "c", "title": command});
            json!({"id": id, "method": "session/request_permission", "params": {"sessionId": "s", "toolCall": call, "options": options}})
        }),
    }
}

fn asked(output: &Output) -> Vec<&Permission> {
    let found = output.events.iter().filter_map(|event| match event {
        Event::Permission(asked) => Some(&**asked),
        _ => None,
    });
    found.collect()
}

fn answer(request: &str, option: &str) -> Command {
    let reply = Reply::Option { id: option.to_owned(), message: None };
    Command::Answer { request: request.to_owned(), reply }
}

fn withdrawn(output: &Output) -> Vec<&str> {
    let found = output.events.iter().filter_map(|event| match event {
        Event::Withdrawn { request, .. } => Some(request.as_str()),
        _ => None,
    });
    found.collect()
}

#[test]
fn an_id_that_comes_twice_is_one_request_or_another_one() {
    for kind in ALL {
        let (mut driver, request) = in_a_turn(kind);
        let id = || if kind == Kind::Claude { json!("r") } else { json!(77) };
        let first = say(&mut driver, &request(id(), "touch a"));
        assert_eq!(asked(&first).len(), 1, "{kind:?}: {first:?}");
        let again = say(&mut driver, &request(id(), "touch a"));
        assert_eq!((asked(&again).len(), withdrawn(&again).len()), (0, 0), "{kind:?}");
        let other = say(&mut driver, &request(id(), "rm -rf b"));
        let (old, new) = (&asked(&first)[0].request, &asked(&other)[0].request);
        assert_eq!(withdrawn(&other), [old.as_str()], "{kind:?}: who agreed to the first has not agreed to the second");
        assert_ne!(old, new);
        assert_eq!(driver.command(answer(old, &allow(&first))), Err(Refused::Closed), "{kind:?}");
        let done = driver.command(answer(new, &allow(&other))).unwrap();
        assert_eq!(done.lines.len(), 1);
        assert_eq!(driver.command(answer(new, &allow(&other))), Err(Refused::Closed), "{kind:?}: once");
    }
}

fn allow(output: &Output) -> String {
    let options = &asked(output)[0].options;
    options.iter().find(|option| option.kind == OptionKind::AllowOnce).unwrap().option_id.clone()
}

#[test]
fn an_answer_after_the_end_of_a_request_is_not_passed_on() {
    for kind in ALL {
        let (mut driver, request) = in_a_turn(kind);
        let shown = say(&mut driver, &request(json!("r"), "touch a"));
        let name = asked(&shown)[0].request.clone();
        for wrong in ["", "made-up", "always-9"] {
            assert_eq!(driver.command(answer(&name, wrong)), Err(Refused::NoSuchOption), "{kind:?}");
        }
        let refused = Command::Answer { request: name.clone(), reply: Reply::Answers(BTreeMap::new()) };
        assert_eq!(driver.command(refused), Err(Refused::NoSuchOption), "{kind:?}: it is no question");
        let stopped = driver.command(Command::Interrupt).unwrap();
        assert_eq!(withdrawn(&stopped), [name.as_str()], "{kind:?}");
        assert_eq!(driver.command(answer(&name, &allow(&shown))), Err(Refused::Closed), "{kind:?}");
    }
}

#[test]
fn a_request_that_does_not_fit_can_only_be_refused() {
    for kind in ALL {
        let (mut driver, request) = in_a_turn(kind);
        let shown = say(&mut driver, &request(json!("r"), &format!("echo {}; rm -rf /", "x".repeat(300 << 10))));
        let asked = asked(&shown)[0];
        assert!(asked.cut.is_some() && asked.detail.len() <= 256 << 10, "{kind:?}");
        assert!(
            asked.options.iter().all(|option| option.kind == OptionKind::RejectOnce),
            "{kind:?}: {:?}",
            asked.options
        );
        assert_eq!(driver.command(answer(&asked.request, "allow")), Err(Refused::NoSuchOption));
        assert_eq!(driver.command(answer(&asked.request, "accept")), Err(Refused::NoSuchOption));
    }
}

#[test]
fn what_is_hidden_is_shown() {
    for kind in ALL {
        let (mut driver, request) = in_a_turn(kind);
        let shown = say(&mut driver, &request(json!("r"), "ls\u{202e}\u{200b} # \u{1b}[2K"));
        let asked = asked(&shown)[0];
        for hidden in ["\\u{202e}", "\\u{200b}", "\\u{1b}"] {
            assert!(asked.detail.contains(hidden), "{kind:?}: {}", asked.detail);
        }
        assert!(!asked.title.contains('\u{202e}'), "{kind:?}");
    }
}

#[test]
fn claude_is_sent_what_was_shown_and_only_the_chosen_offer() {
    let (mut driver, request) = in_a_turn(Kind::Claude);
    let shown = say(&mut driver, &request(json!("r"), "touch a"));
    let asked = asked(&shown)[0];
    let always: Vec<&str> =
        asked.options.iter().filter(|one| one.kind == OptionKind::AllowAlways).map(|one| one.name.as_str()).collect();
    assert_eq!(
        always,
        [
            "Allow, and change the mode to edit (acceptEdits): for this session",
            "Always allow every Bash: kept for all projects, in ~/.claude/settings.json"
        ]
    );
    let output = driver.command(answer(&asked.request, "always-1")).unwrap();
    let line: Value = serde_json::from_str(&output.lines[0]).unwrap();
    let response = &line["response"]["response"];
    assert_eq!(response["updatedInput"], json!({"command": "touch a"}));
    assert_eq!(response["updatedPermissions"].as_array().unwrap().len(), 1);
    assert_eq!(response["updatedPermissions"][0]["type"], "addRules");
}

#[test]
fn codex_cannot_change_what_it_has_not_shown() {
    let (mut driver, _) = in_a_turn(Kind::Codex);
    let request =
        json!({"id": 9, "method": "item/fileChange/requestApproval", "params": {"threadId": "s", "itemId": "x"}});
    let shown = say(&mut driver, &request);
    assert!(asked(&shown)[0].options.iter().all(|option| option.kind == OptionKind::RejectOnce));
    // The change becomes another one while a person reads.
    let item = |diff: &str| json!([{"path": "/w/a", "kind": {"type": "add"}, "diff": diff}]);
    let started = json!({"id": "y", "type": "fileChange", "changes": item("one"), "status": "inProgress"});
    say(&mut driver, &json!({"method": "item/started", "params": {"threadId": "s", "item": started}}));
    let request =
        json!({"id": 10, "method": "item/fileChange/requestApproval", "params": {"threadId": "s", "itemId": "y"}});
    let first = say(&mut driver, &request);
    let changed = json!({"method": "item/fileChange/patchUpdated", "params": {"threadId": "s", "itemId": "y", "changes": item("two")}});
    let second = say(&mut driver, &changed);
    assert_eq!(withdrawn(&second), [asked(&first)[0].request.as_str()]);
    assert!(asked(&second)[0].detail.contains("two"));
}

#[test]
fn an_unknown_request_is_answered_and_not_shown() {
    for kind in ALL {
        let (mut driver, _) = in_a_turn(kind);
        let unknown = match kind {
            Kind::Claude => json!({"type": "control_request", "request_id": "r", "request": {"subtype": "launch"}}),
            _ => json!({"id": "r", "method": "fs/write_text_file", "params": {"sessionId": "s"}}),
        };
        let output = say(&mut driver, &unknown);
        assert!(output.lines.len() == 1 && output.lines[0].contains("error"), "{kind:?}: {output:?}");
        assert!(asked(&output).is_empty());
    }
}

#[test]
fn only_one_turn_runs_and_nothing_before_the_start() {
    for kind in ALL {
        let prompt = || {
            Command::Prompt(Prompt { id: "q".to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false })
        };
        let mut fresh = driver(kind, start());
        fresh.begin();
        assert_eq!(fresh.command(prompt()), Err(Refused::NotReady), "{kind:?}");
        let (mut driver, _) = in_a_turn(kind);
        assert_eq!(driver.command(prompt()), Err(Refused::Busy), "{kind:?}");
        assert!(matches!(driver.command(Command::SetMode(Mode::of("auto"))), Err(Refused::Unsupported(_))), "{kind:?}");
        let output = driver.exited(&Exit { code: None, stderr: "killed\n".to_owned() });
        assert!(matches!(output.events.last(), Some(Event::TurnEnded { .. })), "{kind:?}: {output:?}");
        assert!(driver.command(prompt()).is_err(), "{kind:?}");
    }
}

/// Lines of real agents with something wrong in them.
fn spoiled() -> impl Strategy<Value = Vec<Value>> {
    let lines: Vec<Value> = wires()
        .iter()
        .flat_map(|path| wire::read(path))
        .filter_map(|entry| match entry {
            Entry::From(line) if line.to_string().len() < 4_000 => Some(line),
            _ => None,
        })
        .collect();
    let odd = prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!(-1)),
        Just(json!(1e300)),
        Just(json!("\u{202e}"))
    ];
    let one = (prop::sample::select(lines), any::<prop::sample::Index>(), odd, any::<bool>());
    prop::collection::vec(one, 1..25).prop_map(|lines| {
        let spoil = |(mut line, place, odd, is_spoiled): (Value, prop::sample::Index, Value, bool)| {
            if is_spoiled {
                let count = nodes(&mut line, usize::MAX, &Value::Null);
                nodes(&mut line, place.index(count), &odd);
            }
            line
        };
        lines.into_iter().map(spoil).collect()
    })
}

/// Counts the values inside of a value, and replaces the one with this number.
fn nodes(value: &mut Value, number: usize, odd: &Value) -> usize {
    let mut count = 1;
    if number == 0 {
        *value = odd.clone();
        return count;
    }
    let mut inside = |inner: &mut Value| count += nodes(inner, number.wrapping_sub(count), odd);
    match value {
        Value::Array(items) => items.iter_mut().for_each(&mut inside),
        Value::Object(fields) => fields.values_mut().for_each(&mut inside),
        _ => {}
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_line_makes_a_driver_fail(lines in spoiled()) {
        for kind in [Kind::Claude, Kind::Codex, Kind::Gemini, Kind::Opencode] {
            let (mut driver, _) = in_a_turn(if kind == Kind::Opencode { Kind::Acp } else { kind });
            let mut open = 0_i64;
            for line in &lines {
                let output = say(&mut driver, line);
                // Nothing is allowed by itself.
                for line in &output.lines {
                    prop_assert!(!line.contains(r#""behavior":"allow""#) && !line.contains(r#""outcome":"selected""#) && !line.contains("accept"), "{}", line);
                }
                for event in &output.events {
                    match event {
                        Event::Permission(_) | Event::Question(_) => open += 1,
                        Event::Withdrawn { .. } => open -= 1,
                        _ => {}
                    }
                }
            }
            let output = driver.exited(&Exit::default());
            open -= i64::try_from(withdrawn(&output).len()).unwrap();
            prop_assert_eq!(open, 0, "every request is closed in the end");
        }
    }

    #[test]
    fn no_text_makes_a_driver_fail(lines in prop::collection::vec("\\PC{0,60}|[\\[{\"}:,0-9a-z\\]]{0,60}", 0..20), bytes in any::<u64>()) {
        for kind in ALL {
            let (mut driver, _) = in_a_turn(kind);
            for line in &lines {
                prop_assert!(driver.line(&Line::Text(line.clone())).lines.is_empty());
            }
            prop_assert!(matches!(driver.line(&Line::Overlong(bytes)).events.as_slice(), [Event::Note(_)]));
        }
    }
}

#[test]
fn an_acp_turn_that_was_cancelled_is_cancelled_whatever_its_agent_says() {
    let (mut driver, _) = in_a_turn(Kind::Gemini);
    driver.command(Command::Interrupt).unwrap();
    let output = say(&mut driver, &json!({"id": 4, "result": {"stopReason": "end_turn"}}));
    let ended = output.events.iter().find_map(|event| match event {
        Event::TurnEnded { stop, .. } => Some(stop),
        _ => None,
    });
    assert_eq!(ended, Some(&StopReason::Cancelled));
}

#[test]
fn what_a_conversation_has_cost_before_is_not_counted_again() {
    let mut driver = driver(Kind::Opencode, Start { resume: Some("s".to_owned()), cost_before: 3.0, ..start() });
    driver.begin();
    say(&mut driver, &json!({"id": 1, "result": {"agentCapabilities": {"loadSession": true}}}));
    say(&mut driver, &json!({"id": 2, "result": {"modes": {"availableModes": [{"id": "build"}]}}}));
    say(&mut driver, &json!({"id": 3, "result": {}}));
    driver
        .command(Command::Prompt(Prompt {
            id: "p".to_owned(),
            text: "go".to_owned(),
            attachments: Vec::new(),
            steer: false,
        }))
        .unwrap();
    let usage =
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": {"amount": 3.25, "currency": "USD"}});
    let said = say(&mut driver, &json!({"method": "session/update", "params": {"sessionId": "s", "update": usage}}));
    assert!(said.events.contains(&Event::Cost(0.25)), "{said:?}");
}

#[test]
fn claude_is_interrupted_again_when_it_had_not_begun() {
    let (mut claude, _) = in_a_turn(Kind::Claude);
    say(&mut claude, &json!({"type": "result", "subtype": "success", "is_error": false}));
    let prompt = |id: &str| {
        Command::Prompt(Prompt { id: id.to_owned(), text: "go".to_owned(), attachments: Vec::new(), steer: false })
    };
    let interrupts = |output: &Output| output.lines.iter().filter(|line| line.contains("\"interrupt\"")).count();
    let taken = |id: &str| json!({"type": "user", "isReplay": true, "uuid": id, "message": {"content": []}});
    claude.command(prompt("q")).unwrap();
    assert_eq!(interrupts(&claude.command(Command::Interrupt).unwrap()), 1);
    assert_eq!(interrupts(&say(&mut claude, &taken("q"))), 1, "it interrupts only a turn that runs");
    say(&mut claude, &json!({"type": "result", "subtype": "error_during_execution", "is_error": false}));
    // The next prompt is another one.
    claude.command(prompt("r")).unwrap();
    assert_eq!(interrupts(&say(&mut claude, &taken("r"))), 0);
    assert_eq!(interrupts(&claude.command(Command::Interrupt).unwrap()), 1);
    assert_eq!(interrupts(&say(&mut claude, &taken("s"))), 0);
}
