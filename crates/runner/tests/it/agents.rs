//! The three real coding agents, each through every kind of ending. Only the model behind them is a stand-in.

use std::time::Duration;

use ensemble_runner::provider::Permission;
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::runs::Provider;

use crate::support::clis::Bench;
use crate::support::orchestrator::{code, completed};
use crate::support::{SOON, eventually, processes};

macro_rules! each_agent {
    ($($test:ident),* $(,)?) => {
        mod claude { $(each_agent!(@ $test Claude);)* }
        mod codex { $(each_agent!(@ $test Codex);)* }
        mod gemini { $(each_agent!(@ $test Gemini);)* }
    };
    (@ $test:ident $provider:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test(super::Bench::new(super::Provider::$provider)).await;
        }
    };
}

each_agent!(
    succeeds_and_goes_on,
    reports_a_model_error,
    reports_a_refusal,
    crashes,
    is_cancelled,
    times_out,
    uses_tools,
    takes_every_permission_mode,
);

async fn succeeds_and_goes_on(bench: Bench) {
    let first = bench.task("Say it. [[split]] [[say Grüße 😀, all is well]]");
    let run = first.run_id;
    let id = bench.server.enqueue(first);
    let finish = bench.server.finished(id, SOON).await;
    completed(&finish);
    assert_eq!(finish.output_summary.as_deref(), Some("Grüße 😀, all is well"));
    assert_eq!(finish.exit_code, Some(0));
    let usage = finish.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(10), Some(5)));
    assert!(bench.server.heard(id).output.contains("Grüße 😀, all is well"));

    // The same session, then one that does not exist.
    let session = finish.provider_session_id.unwrap().into_string();
    let second = Lease { run_id: run, resume: Some(session.clone()), ..bench.task("And again, please.") };
    let finish = bench.server.finished(bench.server.enqueue(second), SOON).await;
    completed(&finish);
    assert_eq!(finish.provider_session_id.as_deref(), Some(session.as_str()));
    let said = bench.model.heard().pop().unwrap().said;
    assert!(said.iter().any(|text| text.contains("Say it.")), "the model sees the conversation so far: {said:?}");
    let unknown = Some("01a1fc01-5875-78e0-a04a-994fc6424f00".to_owned());
    let third = Lease { run_id: run, resume: unknown, ..bench.task("Afresh.") };
    completed(&bench.server.finished(bench.server.enqueue(third), SOON).await);
}

async fn reports_a_model_error(bench: Bench) {
    let finish = bench.server.finished(bench.server.enqueue(bench.task("[[fail 400]]")), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "MODEL_ERROR"), "{finish:?}");
    assert!(finish.error.unwrap().message.contains("the stand-in was told to fail"));
}

async fn reports_a_refusal(bench: Bench) {
    let finish = bench.server.finished(bench.server.enqueue(bench.task("[[refuse]]")), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "REFUSED"), "{finish:?}");
    assert!(!finish.error.unwrap().message.is_empty());

    let late = bench.server.finished(bench.server.enqueue(bench.task("[[refuse-late]]")), SOON).await;
    if bench.provider == Provider::Gemini {
        // It says success, and nothing else that it prints says otherwise. Should this change, the runner can too.
        completed(&late);
        assert_eq!(late.output_summary.as_deref(), Some("I begin"));
    } else {
        assert_eq!((late.status, code(&late)), (FinishStatus::Failed, "REFUSED"), "{late:?}");
    }
}

async fn crashes(bench: Bench) {
    let lease = bench.server.enqueue(bench.task("crash please [[hang]]"));
    bench.asked("crash please").await;
    processes::kill_outright(processes::program(lease).unwrap());
    let finish = bench.server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "CRASHED"), "{finish:?}");
    assert!(processes::of(lease).is_empty());
}

async fn is_cancelled(bench: Bench) {
    let lease = bench.server.enqueue(bench.task("cancel please [[hang]]"));
    bench.asked("cancel please").await;
    bench.server.cancel(lease);
    let finish = bench.server.finished(lease, Duration::from_secs(15)).await;
    assert_eq!(finish.status, FinishStatus::Cancelled, "{finish:?}");
    assert!(processes::of(lease).is_empty());
}

async fn times_out(bench: Bench) {
    // In the middle of its work: how long a program needs to get there depends on what else the machine does.
    for timeout_ms in [4_000, 12_000, 40_000] {
        let prompt = format!("time out after {timeout_ms} please [[hang]]");
        let id = bench.server.enqueue(Lease { timeout_ms, ..bench.task(&prompt) });
        let finish = bench.server.finished(id, SOON).await;
        assert_eq!((finish.status, code(&finish)), (FinishStatus::Timeout, "TIMEOUT"), "{finish:?}");
        assert!(processes::of(id).is_empty());
        if bench.was_asked(&prompt) {
            return;
        }
    }
    panic!("{} did not ask its model anything in 40 s", bench.provider);
}

async fn takes_every_permission_mode(bench: Bench) {
    for permission in [Permission::Ask, Permission::Edit] {
        let bench = Bench::with(bench.provider, permission);
        completed(&bench.server.finished(bench.server.enqueue(bench.task("Just talk.")), SOON).await);
    }
}

/// The agent's own children are of the attempt, too: the command below starts one that wants to stay.
async fn uses_tools(bench: Bench) {
    let place = bench.home.path().join("work");
    std::fs::create_dir(&place).unwrap();
    let mut lease = bench.task("[[run echo made > made.txt; (setsid sleep 600 >/dev/null 2>&1 &); echo tool-output]]");
    lease.working_directory = Some(place.display().to_string());
    let id = bench.server.enqueue(lease);
    let finish = bench.server.finished(id, SOON).await;
    completed(&finish);
    assert!(finish.output_summary.unwrap().contains("tool-output"));
    assert_eq!(std::fs::read_to_string(place.join("made.txt")).unwrap(), "made\n");
    assert!(bench.server.heard(id).output.contains("echo made"), "people see what was run");
    eventually("everything to be gone", SOON, || processes::of(id).is_empty().then_some(())).await;
}
