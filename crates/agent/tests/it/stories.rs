//! The same story for every agent: text, permission, refusal, interrupt, change of a file, errors, death and resume.

use std::collections::BTreeMap;

use ensemble_agent::{Command, Event, Kind, Permission, Reply};
use ensemble_protocol::transcript::words::{ErrorCode, Mode, OptionKind, StopReason, ToolStatus};

use crate::live::{Live, Place, is_recorded};

macro_rules! each_agent {
    ($($test:ident),* $(,)?) => {
        mod claude { $(each_agent!(@ $test Claude);)* }
        mod newest_claude {
            $(
                #[test]
                fn $test() {
                    super::$test(super::Place::newest_claude);
                }
            )*
        }
        mod codex { $(each_agent!(@ $test Codex);)* }
        mod gemini { $(each_agent!(@ $test Gemini);)* }
        mod opencode { $(each_agent!(@ $test Opencode);)* }
    };
    (@ $test:ident $kind:ident) => {
        #[test]
        fn $test() {
            super::$test(|case| super::Place::new(super::Kind::$kind, case));
        }
    };
}

each_agent!(does_its_work, says_what_its_model_refuses, resumes_after_a_kill);

/// A part of a story, with the name of its record.
type Step = (&'static str, fn(&mut Live<'_>));

/// One process does all steps, because agents need seconds to start. While recording, each step has its own process.
fn tell(steps: &[Step], place: impl Fn(&'static str) -> Place, mut end: impl FnMut(Live<'_>)) {
    let at_once = if is_recorded() { 1 } else { steps.len() };
    for some in steps.chunks(at_once) {
        let mut place = place(some[0].0);
        let mut live = place.begin(place.start(Mode::Ask));
        for (_, step) in some {
            live.forget();
            step(&mut live);
        }
        end(live);
    }
}

fn does_its_work(place: impl Fn(&'static str) -> Place) {
    let steps: [Step; 5] = [
        ("says_a_text", says_a_text),
        ("does_what_is_allowed", does_what_is_allowed),
        ("does_not_do_what_is_refused", does_not_do_what_is_refused),
        ("shows_a_change_of_a_file", shows_a_change_of_a_file),
        ("is_interrupted", is_interrupted),
    ];
    tell(&steps, place, |live| {
        let events = live.stop();
        assert_eq!(failures(&events), [] as [&ErrorCode; 0], "{events:#?}");
    });
}

fn says_a_text(live: &mut Live<'_>) {
    live.prompt("Say it. [[split]] [[say Grüße 😀, all is well]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert_eq!(said(&live.events), "Grüße 😀, all is well");
    let grown: String = live
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Delta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(grown, "Grüße 😀, all is well");
    assert_eq!(failures(&live.events), [] as [&ErrorCode; 0], "{:#?}", live.events);
}

fn does_what_is_allowed(live: &mut Live<'_>) {
    let made = live.file("made");
    live.prompt("[[run touch made]]");
    let asked = permission(live);
    assert!(asked.detail.contains("touch made"), "{asked:#?}");
    assert!(!made.exists(), "it waits for the answer");
    live.choose(&asked.request, option(&asked, &OptionKind::AllowOnce));
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert!(made.exists(), "{:#?}", live.events);
    assert_eq!(statuses(&live.events).last(), Some(&ToolStatus::Completed));
    assert_eq!(failures(&live.events), [] as [&ErrorCode; 0], "{:#?}", live.events);
}

fn does_not_do_what_is_refused(live: &mut Live<'_>) {
    let refused = live.file("refused");
    live.prompt("[[run touch refused]]");
    let asked = permission(live);
    live.choose(&asked.request, option(&asked, &OptionKind::RejectOnce));
    live.turn_ends();
    assert!(!refused.exists());
    assert_eq!(statuses(&live.events).last(), Some(&ToolStatus::Failed));
}

fn is_interrupted(live: &mut Live<'_>) {
    live.prompt("[[hang]]");
    live.until("a text", |event| matches!(event, Event::Delta { .. }));
    live.command(Command::Interrupt);
    assert_eq!(stop(&live.turn_ends()), &StopReason::Cancelled);
    // An open request is closed by it, and the next prompt is taken.
    live.prompt("[[run touch never]]");
    let asked = permission(live);
    live.command(Command::Interrupt);
    live.until(
        "the end of the request",
        |event| matches!(event, Event::Withdrawn { request, .. } if *request == asked.request),
    );
    live.turn_ends();
    live.prompt("[[say still here]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert!(said(&live.events).ends_with("still here"), "{:#?}", live.events);
}

fn shows_a_change_of_a_file(live: &mut Live<'_>) {
    let path = live.file("a.txt");
    let tool = match live.kind() {
        Kind::Claude => format!(r#"Write {{"file_path":"{}","content":"one\n"}}"#, path.display()),
        Kind::Codex => r#"apply_patch "*** Begin Patch\n*** Add File: a.txt\n+one\n*** End Patch""#.to_owned(),
        Kind::Gemini => format!(r#"write_file {{"file_path":"{}","content":"one\n"}}"#, path.display()),
        _ => format!(r#"write {{"filePath":"{}","content":"one\n"}}"#, path.display()),
    };
    live.prompt(&format!("[[tool {tool}]]"));
    let asked = permission(live);
    assert!(asked.detail.contains("a.txt") && asked.detail.contains("one"), "{asked:#?}");
    live.choose(&asked.request, option(&asked, &OptionKind::AllowOnce));
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "one\n");
    let has_diff =
        live.events.iter().any(|event| match event {
            Event::Tool(call) => call.content.iter().flatten().any(
                |one| matches!(one, ensemble_protocol::transcript::body::ToolContent::Diff(diff) if diff.new_text == "one\n"),
            ),
            _ => false,
        });
    assert!(has_diff, "{:#?}", live.events);
}

fn says_what_its_model_refuses(place: impl Fn(&'static str) -> Place) {
    let steps: [Step; 2] = [
        ("says_that_it_is_signed_out", says_that_it_is_signed_out),
        ("says_that_the_limit_is_reached", says_that_the_limit_is_reached),
    ];
    tell(&steps, place, |live| drop(live.kill()));
}

fn says_that_it_is_signed_out(live: &mut Live<'_>) {
    live.prompt("[[fail 401]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::Error);
    // opencode passes on the text of the answer, and not its status.
    let code = if live.kind() == Kind::Opencode { ErrorCode::Unknown } else { ErrorCode::Login };
    assert_eq!(failures(&live.events), [&code], "{:#?}", live.events);
}

fn says_that_the_limit_is_reached(live: &mut Live<'_>) {
    // opencode tries again for more than half a minute and says nothing.
    if live.kind() == Kind::Opencode {
        return;
    }
    live.prompt("[[limit 7200]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::Limit);
    assert_eq!(failures(&live.events), [&ErrorCode::Quota], "{:#?}", live.events);
}

fn resumes_after_a_kill(place: impl Fn(&'static str) -> Place) {
    let mut place = place("resumes_after_a_kill");
    let kind = place.kind;
    let start = place.start(Mode::Ask);
    let mut live = place.begin(start.clone());
    live.prompt("Remember the word plum. [[say I do]]");
    live.turn_ends();
    let session = live.events.iter().find_map(|event| match event {
        Event::Ready { session_id } => Some(session_id.clone()),
        _ => None,
    });
    live.prompt("[[run touch made]]");
    let asked = permission(&mut live);
    if kind == Kind::Claude {
        live.until_stored("the word plum");
    }
    let events = live.kill();
    let is_withdrawn = |event: &Event| matches!(event, Event::Withdrawn { request, .. } if *request == asked.request);
    assert!(events.iter().any(is_withdrawn), "{events:#?}");
    assert_eq!(failures(&events), [&ErrorCode::Crashed]);
    assert_eq!(statuses(&events).last(), Some(&ToolStatus::Interrupted));
    assert_eq!(
        stop(events.iter().rev().find(|event| matches!(event, Event::TurnEnded { .. })).unwrap()),
        &StopReason::Error
    );

    let again = ensemble_agent::Start { resume: session, ..start };
    let mut live = place.spawn(again);
    let opened = live.until("ready", |event| matches!(event, Event::Ready { .. } | Event::ResumeFailed(_)));
    // gemini may not have written down a conversation that was made over ACP, and then says that it does not find it.
    if matches!(opened, Event::ResumeFailed(_)) {
        assert_eq!(kind, Kind::Gemini);
        live.kill();
        return;
    }
    live.prompt("Which word was it? [[say plum]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert_eq!(said(&live.events), "plum", "what was said before is not said again");
    live.kill();
    let asked_for: Vec<String> = place.model.requests().into_iter().flat_map(|one| one.user_messages).collect();
    assert!(asked_for.iter().filter(|text| text.contains("Which word")).count() > 0);
    let last = place.model.requests().pop().unwrap().user_messages.join("\n");
    assert!(last.contains("the word plum"), "the model sees the conversation so far: {last}");
}

#[test]
fn claude_asks_a_question() {
    let mut place = Place::new(Kind::Claude, "asks_a_question");
    let mut live = place.begin(place.start(Mode::Ask));
    let options = r#"[{"label":"PostgreSQL","description":"big"},{"label":"SQLite","description":"small"}]"#;
    let question =
        format!(r#"{{"question":"Which database?","header":"Database","options":{options},"multiSelect":false}}"#);
    live.prompt(&format!(r#"[[tool AskUserQuestion {{"questions":[{question} ]}}]]"#));
    let Event::Question(asked) = live.until("a question", |event| matches!(event, Event::Question(_))) else {
        panic!()
    };
    assert_eq!(asked.questions[0].text, "Which database?");
    let answers = BTreeMap::from([(asked.questions[0].id.clone(), vec!["SQLite".to_owned()])]);
    live.command(Command::Answer { request: asked.request, reply: Reply::Answers(answers) });
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    live.stop();
    let results = place.model.requests().pop().unwrap().tool_results.concat();
    assert!(results.contains("SQLite"), "{results}");
}

#[test]
fn claude_keeps_a_plan_and_asks_for_it() {
    let mut place = Place::new(Kind::Claude, "keeps_a_plan");
    let mut live = place.begin(place.start(Mode::Plan));
    live.prompt(r#"[[tool TaskCreate {"subject":"Measure","description":"first","activeForm":"Measuring"}]]"#);
    live.until("a plan", |event| matches!(event, Event::Plan(plan) if plan.entries[0].content == "Measure"));
    live.turn_ends();
    live.prompt(r##"[[tool ExitPlanMode {"plan":"# Measure twice"}]]"##);
    let asked = permission(&mut live);
    assert!(asked.detail.contains("# Measure twice"), "{asked:#?}");
    live.choose(&asked.request, option(&asked, &OptionKind::AllowOnce));
    live.until("another mode", |event| matches!(event, Event::State(change) if change.mode == Some(Mode::Ask)));
    live.turn_ends();
    live.stop();
}

#[test]
fn codex_is_steered() {
    let mut place = Place::new(Kind::Codex, "is_steered");
    let mut live = place.begin(place.start(Mode::Ask));
    live.prompt("[[hang]]");
    live.until("a text", |event| matches!(event, Event::Delta { .. }));
    live.steer("[[say as you like]]");
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    assert!(said(&live.events).ends_with("as you like"), "{:#?}", live.events);
    let turns = live.events.iter().filter(|event| matches!(event, Event::TurnStarted(_))).count();
    assert_eq!(turns, 1, "it is the same turn");
    live.stop();
}

#[test]
fn claude_is_steered() {
    let mut place = Place::new(Kind::Claude, "is_steered");
    let mut live = place.begin(place.start(Mode::Ask));
    live.prompt("[[run touch made]]");
    let asked = permission(&mut live);
    live.steer("[[say as you like]]");
    live.choose(&asked.request, option(&asked, &OptionKind::AllowOnce));
    assert_eq!(stop(&live.turn_ends()), &StopReason::EndTurn);
    // The model gets the text with the result of the tool, and the stand-in repeats it.
    assert!(said(&live.events).contains("as you like"), "{:#?}", live.events);
    assert_eq!(live.events.iter().filter(|event| matches!(event, Event::Taken(_))).count(), 2);
    live.stop();
}

#[test]
fn claude_in_plan_mode_asks_before_a_command() {
    let mut place = Place::new(Kind::Claude, "asks_in_plan_mode");
    let made = place.file("made");
    let mut live = place.begin(place.start(Mode::Ask));
    live.command(Command::SetMode(Mode::Plan));
    live.until("the mode", |event| matches!(event, Event::State(change) if change.mode == Some(Mode::Plan)));
    live.prompt("[[run touch made]]");
    let asked = permission(&mut live);
    live.choose(&asked.request, option(&asked, &OptionKind::RejectOnce));
    live.turn_ends();
    assert!(!made.exists());
    live.stop();
}

fn permission(live: &mut Live<'_>) -> Permission {
    match live.until("a permission request", |event| matches!(event, Event::Permission(_))) {
        Event::Permission(asked) => *asked,
        _ => unreachable!(),
    }
}

pub(crate) fn option<'a>(asked: &'a Permission, kind: &OptionKind) -> &'a str {
    let found = asked.options.iter().find(|option| option.kind == *kind);
    &found.unwrap_or_else(|| panic!("no such option: {asked:#?}")).option_id
}

pub(crate) fn stop(event: &Event) -> &StopReason {
    match event {
        Event::TurnEnded { stop, .. } => stop,
        other => panic!("{other:?}"),
    }
}

fn said(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Complete { kind: ensemble_agent::PartKind::Text, text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn statuses(events: &[Event]) -> Vec<ToolStatus> {
    let calls = events.iter().filter_map(|event| match event {
        Event::Tool(call) => call.status.clone(),
        _ => None,
    });
    calls.collect()
}

fn failures(events: &[Event]) -> Vec<&ErrorCode> {
    let found = events.iter().filter_map(|event| match event {
        Event::Failure { code, .. } => Some(code),
        _ => None,
    });
    found.collect()
}
