//! What an attempt came to reaches the server, whatever happens in between.

use std::time::Duration;

use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::problem::Code;
use serde_json::json;

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config, eventually, processes};

/// Runs until the file is there, so that the test decides when the attempt ends.
fn until(gate: &std::path::Path) -> String {
    format!("echo ready\nwhile [ ! -e {} ]; do sleep 0.02; done\necho late words\n{DONE}", gate.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_at_the_end_gets_everything_when_it_is_back() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.says(lease, "ready").await;
    server.fail_with(Some(Code::Unavailable));
    std::fs::write(&gate, "").unwrap();
    let report = state.path().join(format!("state/attempts/{lease}/finish.json"));
    eventually("the report on disk", SOON, || report.exists().then_some(())).await;
    // As many failed tries as a server that is away for five minutes sees at the longest pause of 5 s.
    let calls = server.calls();
    eventually("sixty tries", SOON, || (server.calls() > calls + 60).then_some(())).await;
    assert!(server.heard(lease).finishes.is_empty());
    server.fail_with(None);
    completed(&server.finished(lease, Duration::from_secs(10)).await);
    assert!(server.heard(lease).output.ends_with("late words\n"));
    eventually("the report to leave the disk", SOON, || (!report.exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_survives_the_runner() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let gate = state.path().join("gate");
    let trace = Some("00-11111111111111111111111111111111-2222222222222222-01".to_owned());
    let lease = server.enqueue(Lease { traceparent: trace.clone(), ..task(until(&gate)) });
    server.says(lease, "ready").await;
    server.fail_with(Some(Code::Unavailable));
    std::fs::write(&gate, "").unwrap();
    let report = state.path().join(format!("state/attempts/{lease}/finish.json"));
    eventually("the report on disk", SOON, || report.exists().then_some(())).await;
    runner.kill_outright();
    server.fail_with(None);
    runner.restart();
    let finish = server.finished(lease, SOON).await;
    completed(&finish);
    assert_eq!(finish.output_summary.as_deref(), Some("done"));
    let heard = server.heard(lease);
    assert!(heard.output.ends_with("late words\n"), "what was not sent before is sent now");
    assert!(heard.traces.iter().all(|told| *told == trace), "both runners are in one trace: {:?}", heard.traces);
    eventually("the report to leave the disk", SOON, || (!report.exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_restarts_reports_what_was_interrupted() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let init = r#"echo '{"type":"system","subtype":"init","session_id":"s-7"}'"#;
    let lease = server.enqueue(task(format!("{init}\n{}", until(&state.path().join("never")))));
    server.says(lease, "ready").await;
    let record = state.path().join(format!("state/attempts/{lease}/attempt.json"));
    eventually("the session's note", SOON, || std::fs::read_to_string(&record).ok()?.contains("s-7").then_some(()))
        .await;
    runner.kill_outright();
    runner.restart();
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Cancelled, "RUNNER_STOPPED"));
    assert_eq!(finish.provider_session_id.as_deref(), Some("s-7"), "so that the next attempt can resume");
    assert!(processes::of(lease).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_of_a_killed_guard_end_with_the_next_start() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({"termGraceMs": 500}));
    let lease = server.enqueue(task("(setsid sleep 600 &)\necho ready\nexec sleep 600"));
    server.says(lease, "ready").await;
    // Both at once, so that nobody can clean up.
    runner.signal(nix::sys::signal::Signal::SIGSTOP);
    processes::kill_outright(processes::guard(lease).unwrap());
    runner.kill_outright();
    assert!(!processes::of(lease).is_empty(), "the one in a session of its own is an orphan now");
    runner.restart();
    server.finished(lease, SOON).await;
    assert!(processes::of(lease).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_laptop_that_slept_learns_that_its_lease_is_lost() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let (kept, lost) = (state.path().join("kept"), state.path().join("lost"));
    let kept_lease = server.enqueue(task(until(&kept)));
    let lost_lease = server.enqueue(task(until(&lost)));
    server.says(kept_lease, "ready").await;
    server.says(lost_lease, "ready").await;
    // Asleep: nobody runs, the server hears nothing, and grants one of the two to somebody else.
    runner.signal(nix::sys::signal::Signal::SIGSTOP);
    std::fs::write(&kept, "").unwrap();
    std::fs::write(&lost, "").unwrap();
    server.lose(lost_lease);
    runner.signal(nix::sys::signal::Signal::SIGCONT);
    completed(&server.finished(kept_lease, SOON).await);
    let folder = state.path().join(format!("state/attempts/{lost_lease}"));
    eventually("the lost attempt to be dropped", SOON, || (!folder.exists()).then_some(())).await;
    assert!(server.heard(lost_lease).finishes.is_empty());
    runner.kill_outright();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_refused_for_good_is_kept_and_not_repeated() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.says(lease, "ready").await;
    server.fail_with(Some(Code::PayloadTooLarge));
    std::fs::write(&gate, "").unwrap();
    let folder = state.path().join(format!("state/attempts/{lease}"));
    eventually("it to be set aside", SOON, || folder.join("refused.json").exists().then_some(())).await;
    server.fail_with(None);
    completed(&server.finished(server.enqueue(task(DONE)), SOON).await);
    assert!(server.heard(lease).finishes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_output_gets_it_again() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.says(lease, "ready").await;
    server.forget_output();
    std::fs::write(&gate, "").unwrap();
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.heard(lease).output, "ready\nlate words\n");
}
