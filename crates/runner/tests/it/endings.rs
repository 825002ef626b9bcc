//! No process of an attempt is left, however it ends.

use std::time::{Duration, Instant};

use ensemble_runner::config::Timing;
use ensemble_testkit::{eventually, eventually_some, in_time};
use ensemble_types::ids::LeaseId;
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::runs::Provider;

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config, processes};

/// A script that ignores TERM, with children that do so too: one in its group, one in its own session, one daemonised.
const STUBBORN: &str = "
    trap '' TERM INT HUP
    (trap '' TERM; while :; do sleep 1; done) &
    setsid bash -c \"trap '' TERM; while :; do sleep 1; done\" &
    (setsid bash -c \"trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & disown; exit\" &)
    echo ready
    while :; do sleep 1; done
";

async fn gone(lease: LeaseId) {
    eventually(SOON, async || processes::of(lease).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ignores_term_and_its_children_are_dead_15_s_after_the_cancel() {
    in_time(Duration::from_secs(30), async || {
        let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
        let mut config = config(&server, &agent, state.path());
        // The defaults of production.
        let Timing { lease_beat, term_grace, .. } = Timing::default();
        (config.timing.lease_beat, config.timing.term_grace) = (lease_beat, term_grace);
        let _runner = Runner::start(config);
        let lease = server.enqueue(task(STUBBORN));
        server.wait_for_output(lease, "ready").await;
        assert!(processes::of(lease).len() >= 5, "the guard, the program and its children");
        // The worst moment is the one after a heartbeat, and the first heartbeat was sent at the start.
        server.cancel(lease);
        let asked = Instant::now();
        let finish = server.finished(lease, SOON).await;
        gone(lease).await;
        let took = asked.elapsed();
        assert_eq!(finish.status, FinishStatus::Cancelled);
        assert!(took >= term_grace && took < Duration::from_secs(15), "{took:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_listens_ends_at_once() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.timing.term_grace = Duration::from_secs(600);
    let _runner = Runner::start(config);
    let lease = server.enqueue(task("echo ready; exec sleep 600"));
    server.wait_for_output(lease, "ready").await;
    server.cancel(lease);
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Cancelled, ""));
    gone(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_killed_outright_leaves_no_orphan() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    // The default of production.
    let grace = Timing::default().term_grace.as_millis();
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), serde_json::json!({"termGraceMs": grace}));
    let lease = server.enqueue(task(STUBBORN));
    server.wait_for_output(lease, "ready").await;
    assert!(processes::of(lease).len() >= 5);
    runner.kill();
    gone(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_killed_outright_takes_its_program_along() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let lease = server.enqueue(task(STUBBORN));
    server.wait_for_output(lease, "ready").await;
    processes::kill(processes::guard(lease).unwrap());
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "CRASHED"));
    gone(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_leaves_behind_is_ended_with_it() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let lease = server.enqueue(task(format!("(setsid bash -c \"trap '' TERM; while :; do sleep 1; done\" &)\n{DONE}")));
    completed(&server.finished(lease, SOON).await);
    gone(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_costs_too_much_is_ended() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    // A turn has ended, and something continues in the background.
    let turn = |version: &str, cost: &str| {
        format!(
            r#"echo '{{"type":"system","subtype":"init","session_id":"s-1","claude_code_version":"{version}"}}'
            echo '{{"type":"result","subtype":"success","is_error":false,"result":"ok","total_cost_usd":{cost}}}'
            exec sleep 600"#
        )
    };
    let bounded = |script: String| Lease { max_cost_usd: Some(2.0), ..task(script) };
    let id = server.enqueue(bounded(turn("2.1.197", "2.5")));
    let finish = server.finished(id, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "COST_LIMIT_REACHED"));
    assert_eq!(finish.usage.unwrap().cost_usd, Some(2.5));
    gone(id).await;

    // What a newer version reports includes what the session had cost before.
    let resumed = |version: &str| Lease {
        resume: Some("s-1".to_owned()),
        follow_up: true,
        resume_cost_usd: Some(1.5),
        ..bounded(turn(version, "2.5").replace("exec sleep 600", ""))
    };
    let newer = server.finished(server.enqueue(resumed("2.1.330")), SOON).await;
    completed(&newer);
    assert_eq!(newer.usage.unwrap().cost_usd, Some(1.0));
    let older = server.finished(server.enqueue(resumed("2.1.197")), SOON).await;
    assert_eq!((code(&older), older.usage.unwrap().cost_usd), ("COST_LIMIT_REACHED", Some(2.5)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_ends_the_attempt() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let mut lease = task("exec sleep 600");
    lease.timeout_ms = 1000;
    let id = server.enqueue(lease);
    let finish = server.finished(id, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Timeout, "TIMEOUT"));
    gone(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_ends_the_program_and_reports_nothing() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let lease = server.enqueue(task(STUBBORN));
    server.wait_for_output(lease, "ready").await;
    server.lose(lease);
    gone(lease).await;
    // The runner continues with other work.
    completed(&server.finished(server.enqueue(task(DONE)), SOON).await);
    assert!(server.recorded(lease).finishes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_reported_with_the_last_words() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let lease = server.enqueue(task("echo begun; echo 'out of luck' >&2; kill -SEGV $$"));
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "CRASHED"));
    let message = finish.error.unwrap().message.into_string();
    assert!(message.contains("signal 11") && message.contains("out of luck"), "{message}");
    assert!(server.recorded(lease).output.starts_with("begun\n"));

    let lease = server.enqueue(task("exit 0"));
    assert_eq!(code(&server.finished(lease, SOON).await), "NO_RESULT");
    let lease = server.enqueue(task(format!("{DONE}; exit 3")));
    let finish = server.finished(lease, SOON).await;
    assert_eq!((code(&finish), finish.exit_code), ("PROVIDER_FAILED", Some(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_cancelled_or_lost_before_its_start_is_not_started() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let trace = state.path().join("begun");
    let script = format!("touch {}\n{DONE}", trace.display());
    let (cancelled, lost) = (task(script.clone()), task(script));
    server.cancel(cancelled.id);
    server.lose(lost.id);
    let lost = server.enqueue(lost);
    let finish = server.finished(server.enqueue(cancelled), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Cancelled, ""));
    let folder = state.path().join(format!("state/attempts/{lost}"));
    eventually(SOON, async || server.queued() == 0 && !folder.exists()).await;
    assert!(server.recorded(lost).finishes.is_empty() && !trace.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_has_the_limits_of_the_configuration() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.limits.open_files = Some(123);
    let _runner = Runner::start(config);
    let lease = server.enqueue(task(format!("ulimit -n; ulimit -c; grep NoNewPrivs /proc/self/status\n{DONE}")));
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.recorded(lease).output, "123\n0\nNoNewPrivs:\t1\n");
}

/// Each process starts another in its own session and exits, so that a scan only finds processes that have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_keep_forking_are_killed() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let (runaway, trace) = (state.path().join("runaway"), state.path().join("trace"));
    let script =
        format!("trap '' TERM\necho >> {}\nsleep 0.01\nsetsid bash \"$0\" >/dev/null 2>&1 &\nexit\n", trace.display());
    std::fs::write(&runaway, script).unwrap();
    let steps = || std::fs::metadata(&trace).map_or(0, |trace| trace.len());
    let lease = server.enqueue(task(format!("bash {} & sleep 600", runaway.display())));
    eventually(SOON, async || steps() > 20).await;
    server.cancel(lease);
    let finish = server.finished(lease, SOON).await;
    assert_eq!(finish.status, FinishStatus::Cancelled);
    let last = steps();
    let until = Instant::now() + Duration::from_millis(500);
    eventually_some(SOON, async || {
        assert_eq!(steps(), last, "it is still running");
        (Instant::now() >= until).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_never_ready_is_ended() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.timing.ready_within = Duration::from_millis(300);
    config.providers.get_mut(&Provider::Claude).unwrap().env.insert("NEVER_READY".to_owned(), "1".to_owned());
    let _runner = Runner::start(config);
    let finish = server.finished(server.enqueue(task("exit 0")), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "PROVIDER_FAILED"));
    let message = finish.error.unwrap().message.into_string();
    assert!(message.contains("was not ready for the prompt"), "{message}");
}
