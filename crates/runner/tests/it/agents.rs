//! The real coding agents with a stand-in for the model: each of the three through every kind of ending, and opencode through some.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use ensemble_runner::Config;
use ensemble_testkit::eventually;
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::runs::Permission;
use ensemble_types::runs::Provider;
use ensemble_types::time::Timestamp;

use crate::support::clis::Fixture;
use crate::support::orchestrator::{code, completed};
use crate::support::{SOON, processes};

macro_rules! each_agent {
    ($fixture:ident: $($test:ident),* $(,)?) => {
        mod $fixture {
            mod claude { $(each_agent!(@ $fixture $test Claude);)* }
            mod codex { $(each_agent!(@ $fixture $test Codex);)* }
            mod gemini { $(each_agent!(@ $fixture $test Gemini);)* }
        }
    };
    (@ $fixture:ident $test:ident $provider:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::super::$test(super::super::Fixture::$fixture(super::super::Provider::$provider)).await;
        }
    };
}

each_agent!(with_relaunch: crashes, is_cancelled, times_out);

each_agent!(
    new:
    succeeds_and_resumes,
    continues_with_a_message,
    reports_a_model_error,
    reports_a_refusal,
    tells_that_its_limit_is_reached,
    keeps_the_limit_of_cost,
    uses_tools,
    takes_every_permission_mode,
    says_what_it_was_refused,
    shows_text_while_it_comes,
    is_offered_when_signed_in,
);

macro_rules! opencode {
    ($($test:ident),* $(,)?) => {
        mod opencode {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::Fixture::new("opencode".parse().unwrap())).await;
            })*
        }
    };
}

opencode!(
    is_cancelled,
    succeeds_and_resumes,
    continues_with_a_message,
    reports_a_model_error,
    uses_tools,
    takes_every_permission_mode,
    says_what_it_was_refused,
    shows_text_while_it_comes,
);

async fn succeeds_and_resumes(fixture: Fixture) {
    let first = fixture.task("Say it. [[split]] [[say Grüße 😀, all is well]]");
    let run = first.run_id;
    let id = fixture.server.enqueue(first);
    let finish = fixture.server.finished(id, SOON).await;
    completed(&finish);
    assert_eq!(finish.output_summary.as_deref(), Some("Grüße 😀, all is well"));
    assert_eq!(finish.exit_code, Some(0));
    let usage = finish.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(10), Some(5)));
    assert!(fixture.server.recorded(id).output.contains("Grüße 😀, all is well"));

    // Resume the same session, then one that does not exist.
    let session = finish.provider_session_id.unwrap().into_string();
    let second = Lease { run_id: run, resume: Some(session.clone()), ..fixture.task("And again, please.") };
    let finish = fixture.server.finished(fixture.server.enqueue(second), SOON).await;
    completed(&finish);
    assert_eq!(finish.provider_session_id.as_deref(), Some(session.as_str()));
    let said = fixture.model.requests().pop().unwrap().user_messages;
    assert!(said.iter().any(|text| text.contains("Say it.")), "the model sees the conversation so far: {said:?}");
    let unknown = Some("01a1fc01-5875-78e0-a04a-994fc6424f00".to_owned());
    let third = Lease { run_id: run, resume: unknown, ..fixture.task("Afresh.") };
    completed(&fixture.server.finished(fixture.server.enqueue(third), SOON).await);
}

async fn continues_with_a_message(fixture: Fixture) {
    let first = fixture.task("Remember the word plum.");
    let run = first.run_id;
    let finish = fixture.server.finished(fixture.server.enqueue(first), SOON).await;
    completed(&finish);
    let session = finish.provider_session_id.unwrap().into_string();
    let more =
        |resume: Option<String>| Lease { run_id: run, resume, follow_up: true, ..fixture.task("Which word was it?") };
    let finish = fixture.server.finished(fixture.server.enqueue(more(Some(session.clone()))), SOON).await;
    completed(&finish);
    assert_eq!(finish.provider_session_id.as_deref(), Some(session.as_str()));
    let said = fixture.model.requests().pop().unwrap().user_messages;
    assert!(said.iter().any(|text| text.contains("the word plum")), "the same conversation: {said:?}");
    let last = said.last().unwrap();
    assert!(last.contains("Which word was it?"), "{said:?}");
    assert!(!said.iter().any(|text| text.contains("You were interrupted")), "the text alone: {said:?}");

    // Without the conversation nothing is said.
    let before = fixture.model.requests().len();
    let unknown = Some("01a1fc01-5875-78e0-a04a-994fc6424f00".to_owned());
    for lease in [more(unknown), more(None)] {
        let lost = fixture.server.finished(fixture.server.enqueue(lease), SOON).await;
        assert_eq!((lost.status, code(&lost)), (FinishStatus::Failed, "SESSION_LOST"), "{lost:?}");
    }
    let asked: Vec<_> = fixture.model.requests().into_iter().skip(before).flat_map(|one| one.user_messages).collect();
    assert!(!asked.iter().any(|text| text.contains("Which word was it?")), "{asked:?}");
}

async fn reports_a_model_error(fixture: Fixture) {
    let finish = fixture.server.finished(fixture.server.enqueue(fixture.task("[[fail 400]]")), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "MODEL_ERROR"), "{finish:?}");
    assert!(finish.error.unwrap().message.contains("the stand-in was asked to fail"));
}

async fn reports_a_refusal(fixture: Fixture) {
    let finish = fixture.server.finished(fixture.server.enqueue(fixture.task("[[refuse]]")), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "REFUSED"), "{finish:?}");
    assert!(!finish.error.unwrap().message.is_empty());

    let late = fixture.server.finished(fixture.server.enqueue(fixture.task("[[refuse-late]]")), SOON).await;
    if fixture.provider == Provider::Gemini {
        // Gemini reports success, and its output contains no sign of the refusal.
        completed(&late);
        assert_eq!(late.output_summary.as_deref(), Some("I begin"));
    } else {
        assert_eq!((late.status, code(&late)), (FinishStatus::Failed, "REFUSED"), "{late:?}");
    }
}

async fn tells_that_its_limit_is_reached(fixture: Fixture) {
    let first = fixture.task("Count the plums. [[limit 7200]]");
    let run = first.run_id;
    let finish = fixture.server.finished(fixture.server.enqueue(first), SOON).await;
    let at_limit = (FinishStatus::Quota, "PROVIDER_LIMIT_REACHED");
    assert_eq!((finish.status, code(&finish)), at_limit, "{finish:?}");
    // Only a subscription of claude says when.
    assert_eq!(finish.resume_at, None);
    let session = finish.provider_session_id.unwrap().into_string();

    // The next attempt resumes the same conversation.
    let second =
        Lease { run_id: run, resume: Some(session.clone()), ..fixture.task("Count the plums. [[limit 7200]]") };
    let finish = fixture.server.finished(fixture.server.enqueue(second), SOON).await;
    assert_eq!((finish.status, code(&finish)), at_limit, "{finish:?}");
    let said = fixture.model.requests().pop().unwrap().user_messages.join("\n");
    assert!(said.contains("Count the plums."), "{said}");

    // What the model or a command says is no limit.
    for text in [
        "You’ve hit your usage limit. Try again at 4:55 AM.",
        r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've hit your limit"}"#,
        r#"{"type":"turn.failed","error":{"message":"You've hit your usage limit."}}"#,
    ] {
        let said =
            fixture.server.finished(fixture.server.enqueue(fixture.task(&format!("[[say {text}]]"))), SOON).await;
        completed(&said);
        let printed = fixture.task(&format!("[[run echo '{}']]", text.replace('\'', "")));
        completed(&fixture.server.finished(fixture.server.enqueue(printed), SOON).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_of_claude_says_when_its_limit_ends() {
    let fixture = Fixture::configured(Provider::Claude, Permission::Edit, |claude| {
        claude.env.remove("ANTHROPIC_API_KEY");
        claude.env.insert("CLAUDE_CODE_OAUTH_TOKEN".to_owned(), "sk-ant-oat01-stand-in".to_owned());
    });
    for (seconds, expected) in [(7_200, 7_200), (30 * 86_400, (7 * 24 - 1) * 3_600)] {
        let task = fixture.task(&format!("[[limit {seconds}]]"));
        let before = now();
        let finish = fixture.server.finished(fixture.server.enqueue(task), SOON).await;
        assert_eq!(finish.status, FinishStatus::Quota, "{finish:?}");
        let wait = finish.resume_at.unwrap().since(before).as_secs();
        assert!((expected - 5..expected + 60).contains(&wait), "{wait}");
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(0).plus(UNIX_EPOCH.elapsed().unwrap())
}

async fn keeps_the_limit_of_cost(fixture: Fixture) {
    let bounded = |prompt: &str, max: f64| Lease { max_cost_usd: Some(max), ..fixture.task(prompt) };
    let ended = async |lease: Lease| fixture.server.finished(fixture.server.enqueue(lease), SOON).await;
    completed(&ended(bounded("Just talk.", 1.0)).await);
    for prompt in ["Just talk.", "[[run echo one]]"] {
        let finish = ended(bounded(prompt, 0.00001)).await;
        if fixture.provider == Provider::Claude {
            assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "COST_LIMIT_REACHED"), "{finish:?}");
            assert!(finish.usage.unwrap().cost_usd.unwrap() > 0.00001);
        } else {
            // It does not say what it costs.
            completed(&finish);
            assert_eq!(finish.usage.unwrap().cost_usd, None);
        }
    }
    let spent = ended(bounded("Just talk.", 0.0)).await;
    assert_eq!((spent.status, code(&spent)), (FinishStatus::Failed, "COST_LIMIT_REACHED"), "{spent:?}");
}

async fn crashes(fixture: Fixture) {
    let lease = fixture.server.enqueue(fixture.task("crash please [[hang]]"));
    fixture.wait_for_question("crash please").await;
    processes::kill(processes::program(lease).unwrap());
    let finish = fixture.server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "CRASHED"), "{finish:?}");
    assert!(processes::of(lease).is_empty());
}

async fn is_cancelled(fixture: Fixture) {
    let lease = fixture.server.enqueue(fixture.task("cancel please [[hang]]"));
    fixture.wait_for_question("cancel please").await;
    fixture.server.cancel(lease);
    let finish = fixture.server.finished(lease, SOON).await;
    assert_eq!(finish.status, FinishStatus::Cancelled, "{finish:?}");
    assert!(processes::of(lease).is_empty());
}

async fn times_out(fixture: Fixture) {
    // The timeout should hit a working agent. How long its start takes depends on the load of the machine.
    for timeout_ms in [4_000, 12_000, 40_000] {
        let prompt = format!("time out after {timeout_ms} please [[hang]]");
        let id = fixture.server.enqueue(Lease { timeout_ms, ..fixture.task(&prompt) });
        let finish = fixture.server.finished(id, SOON).await;
        assert_eq!((finish.status, code(&finish)), (FinishStatus::Timeout, "TIMEOUT"), "{finish:?}");
        assert!(processes::of(id).is_empty());
        if fixture.was_asked(&prompt) {
            return;
        }
    }
    panic!("{} did not ask its model anything in 40 s", fixture.provider);
}

async fn takes_every_permission_mode(fixture: Fixture) {
    for permission in [Permission::Ask, Permission::Edit] {
        let fixture = Fixture::with(fixture.provider, permission);
        completed(&fixture.server.finished(fixture.server.enqueue(fixture.task("Just talk.")), SOON).await);
    }
}

/// A command that needs a person's permission, when no person is there to give it.
async fn says_what_it_was_refused(fixture: Fixture) {
    let fixture = Fixture::with(fixture.provider, Permission::Edit);
    let id = fixture.server.enqueue(fixture.task("[[run python3 -c 'print(1)' > made]]"));
    let finish = fixture.server.finished(id, SOON).await;
    completed(&finish);
    assert_eq!(finish.permission, Some(Permission::Edit));
    match (fixture.provider, finish.permission_denials) {
        // Codex runs commands in a sandbox and asks for none of them.
        (Provider::Codex, denials) => assert_eq!(denials, None),
        (_, denials) => {
            let denials = denials.unwrap();
            assert_eq!((denials.count, denials.denials.len()), (1, 1));
            assert!(denials.denials[0].summary.contains("python3 -c"), "{denials:?}");
        }
    }
}

async fn shows_text_while_it_comes(fixture: Fixture) {
    let id = fixture.server.enqueue(fixture.task("[[hang]]"));
    fixture.server.wait_for_output(id, "I begin").await;
    assert!(fixture.server.recorded(id).finishes.is_empty());
    fixture.server.cancel(id);
    fixture.server.finished(id, SOON).await;
}

/// The agent's child processes belong to the attempt: the command below starts one that would outlive it.
async fn uses_tools(fixture: Fixture) {
    let place = fixture.home.path().join("work");
    std::fs::create_dir(&place).unwrap();
    let mut lease =
        fixture.task("[[run echo made > made.txt; (setsid sleep 600 >/dev/null 2>&1 &); echo tool-output]]");
    lease.working_directory = Some(place.display().to_string());
    let id = fixture.server.enqueue(lease);
    let finish = fixture.server.finished(id, SOON).await;
    completed(&finish);
    assert!(finish.output_summary.unwrap().contains("tool-output"));
    assert_eq!(std::fs::read_to_string(place.join("made.txt")).unwrap(), "made\n");
    let output = fixture.server.recorded(id).output;
    assert!(output.contains("echo made"), "people see what was run: {output}");
    // Gemini does not say over its wire what a command has printed.
    let is_result = |line: &str| line.starts_with("  │ ") && line.contains("tool-output");
    assert!(fixture.provider == Provider::Gemini || output.lines().any(is_result), "and its result: {output}");
    assert_eq!(output.matches("The command gave").count(), 1, "streamed text is shown once: {output}");
    eventually(SOON, async || processes::of(id).is_empty()).await;
}

async fn is_offered_when_signed_in(fixture: Fixture) {
    let offer = async |config: &Config| {
        let offers = ensemble_runner::offers(config).await;
        offers.into_iter().find(|offer| offer.provider == fixture.provider).unwrap()
    };
    let offered = offer(&fixture.config).await;
    assert!(offered.program.is_ok() && offered.version.is_some(), "{offered:?}");
    // Codex has another model here, which has its own sign-in.
    let expected = Some(true).filter(|_| fixture.provider != Provider::Codex);
    assert_eq!(offered.signed_in, expected);

    let (mut config, home) = (fixture.config.clone(), tempfile::tempdir().unwrap());
    let entry = config.providers.get_mut(&fixture.provider).unwrap();
    let path = home.path().to_str().unwrap().to_owned();
    entry.env = BTreeMap::from([("HOME".to_owned(), path), ("OPENAI_API_KEY".to_owned(), "unused".to_owned())]);
    entry.args.clear();
    entry.pass_env = vec!["PATH".to_owned()];
    let missing = offer(&config).await;
    let why = missing.program.unwrap_err();
    assert_eq!((why.code, missing.signed_in), ("PROVIDER_NOT_SIGNED_IN", Some(false)));
    assert!(why.reason.contains("not signed in: run `"), "{why:?}");
    assert!(missing.version.is_some());

    let key = match fixture.provider {
        Provider::Claude => "ANTHROPIC_API_KEY",
        Provider::Codex => "CODEX_API_KEY",
        Provider::Gemini | Provider::Other(_) => "GEMINI_API_KEY",
    };
    config.providers.get_mut(&fixture.provider).unwrap().env.insert(key.to_owned(), "stand-in".to_owned());
    assert_eq!(offer(&config).await.signed_in, Some(true));
}
