//! The output and the report of an attempt reach the server despite faults.

use ensemble_testkit::eventually;
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::problem::Code;
use serde_json::json;

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config, processes};

/// A script that runs until the file exists, so that the test decides when the attempt ends.
fn until(gate: &std::path::Path) -> String {
    format!("echo ready\nwhile [ ! -e {} ]; do sleep 0.02; done\necho late words\n{DONE}", gate.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_server_gets_everything_when_it_is_back() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.wait_for_output(lease, "ready").await;
    server.fail_with(Some(Code::Unavailable));
    std::fs::write(&gate, "").unwrap();
    let report = state.path().join(format!("state/attempts/{lease}/finish.json"));
    eventually(SOON, async || report.exists()).await;
    // Sixty attempts are five minutes at the longest pause of 5 s.
    let calls = server.calls();
    eventually(SOON, async || server.calls() > calls + 60).await;
    assert!(server.recorded(lease).finishes.is_empty());
    server.fail_with(None);
    completed(&server.finished(lease, SOON).await);
    assert!(server.recorded(lease).output.ends_with("late words\n"));
    eventually(SOON, async || !report.exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_survives_a_killed_runner() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let gate = state.path().join("gate");
    let trace = Some("00-11111111111111111111111111111111-2222222222222222-01".to_owned());
    let lease = server.enqueue(Lease { traceparent: trace.clone(), ..task(until(&gate)) });
    server.wait_for_output(lease, "ready").await;
    server.fail_with(Some(Code::Unavailable));
    std::fs::write(&gate, "").unwrap();
    let report = state.path().join(format!("state/attempts/{lease}/finish.json"));
    eventually(SOON, async || report.exists()).await;
    runner.kill();
    server.fail_with(None);
    runner.restart();
    let finish = server.finished(lease, SOON).await;
    completed(&finish);
    assert_eq!(finish.output_summary.as_deref(), Some("done"));
    let recorded = server.recorded(lease);
    assert!(recorded.output.ends_with("late words\n"), "what was not sent before is sent now");
    assert!(
        recorded.traces.iter().all(|activity| *activity == trace),
        "both runners are in one trace: {:?}",
        recorded.traces
    );
    eventually(SOON, async || !report.exists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_runner_reports_interrupted_attempts() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let init = r#"echo '{"type":"system","subtype":"init","session_id":"s-7"}'"#;
    let lease = server.enqueue(task(format!("{init}\n{}", until(&state.path().join("never")))));
    server.wait_for_output(lease, "ready").await;
    let record = state.path().join(format!("state/attempts/{lease}/attempt.json"));
    eventually(SOON, async || std::fs::read_to_string(&record).is_ok_and(|text| text.contains("s-7"))).await;
    runner.kill();
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
    // The orphan itself writes "ready": then it is in its session, and its environment can be read, as it is not while a
    // process is replaced by its program.
    let orphan = "(setsid sh -c 'echo ready; sleep 600; exit' &)";
    let lease = server.enqueue(task(format!("{orphan}\nexec sleep 600")));
    server.wait_for_output(lease, "ready").await;
    // The runner is stopped first, so that it cannot clean up after its guard.
    runner.stop();
    processes::kill(processes::guard(lease).unwrap());
    runner.kill();
    assert!(!processes::of(lease).is_empty(), "the one in a separate session is an orphan now");
    runner.restart();
    server.finished(lease, SOON).await;
    assert!(processes::of(lease).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_slept_detects_a_lost_lease() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let (kept, lost) = (state.path().join("kept"), state.path().join("lost"));
    let kept_lease = server.enqueue(task(until(&kept)));
    let lost_lease = server.enqueue(task(until(&lost)));
    server.wait_for_output(kept_lease, "ready").await;
    server.wait_for_output(lost_lease, "ready").await;
    // The runner is stopped, as on a sleeping machine. Meanwhile the server grants one of its leases to another runner.
    runner.stop();
    std::fs::write(&kept, "").unwrap();
    std::fs::write(&lost, "").unwrap();
    server.lose(lost_lease);
    runner.signal(nix::sys::signal::Signal::SIGCONT);
    completed(&server.finished(kept_lease, SOON).await);
    let folder = state.path().join(format!("state/attempts/{lost_lease}"));
    eventually(SOON, async || !folder.exists()).await;
    assert!(server.recorded(lost_lease).finishes.is_empty());
    runner.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_report_is_kept_and_not_repeated() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    // A refused heartbeat would end the attempt as lost. Only the first one is sent, while the server still accepts it.
    config.timing.lease_beat = SOON;
    let _runner = Runner::start(config);
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.wait_for_output(lease, "ready").await;
    server.fail_with(Some(Code::PayloadTooLarge));
    std::fs::write(&gate, "").unwrap();
    let folder = state.path().join(format!("state/attempts/{lease}"));
    eventually(SOON, async || folder.join("refused.json").exists()).await;
    server.fail_with(None);
    completed(&server.finished(server.enqueue(task(DONE)), SOON).await);
    assert!(server.recorded(lease).finishes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_output_gets_it_again() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(until(&gate)));
    server.wait_for_output(lease, "ready").await;
    server.forget_output();
    std::fs::write(&gate, "").unwrap();
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.recorded(lease).output, "ready\nlate words\n");
}
