//! Stopping a runner.

use std::time::Duration;

use ensemble_testkit::{eventually, eventually_some};
use ensemble_types::leases::FinishStatus;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config, processes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_runner_finishes_its_attempts_and_takes_no_new_work() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease =
        server.enqueue(task(format!("echo ready; while [ ! -e {} ]; do sleep 0.05; done\n{DONE}", gate.display())));
    server.wait_for_output(lease, "ready").await;
    runner.drain().begin();
    eventually_some(SOON, async || {
        server.machine_beats().last().filter(|activity| activity["runner"]["draining"] == true).map(|_| ())
    })
    .await;
    let beats = server.recorded(lease).heartbeats.len();
    let late = server.enqueue(task(DONE));
    eventually(SOON, async || server.recorded(lease).heartbeats.len() > beats + 1).await;
    std::fs::write(&gate, "").unwrap();
    runner.stopped(SOON).await;
    completed(&server.finished(lease, SOON).await);
    assert!(server.recorded(late).heartbeats.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_outlast_the_grace_period_are_handed_back() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.timing.drain_grace = Duration::from_millis(300);
    let mut runner = Runner::start(config);
    let lease = server.enqueue(task("echo ready; exec sleep 600"));
    server.wait_for_output(lease, "ready").await;
    runner.drain().begin();
    runner.stopped(SOON).await;
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Cancelled, "HANDED_BACK"));
    assert!(processes::of(lease).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_signal_hands_back_at_once_and_the_exit_is_clean() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let lease = server.enqueue(task("echo ready; exec sleep 600"));
    server.wait_for_output(lease, "ready").await;
    runner.signal(Signal::SIGINT);
    eventually_some(SOON, async || {
        server.machine_beats().last().filter(|activity| activity["runner"]["draining"] == true).map(|_| ())
    })
    .await;
    assert!(!processes::of(lease).is_empty());
    runner.signal(Signal::SIGTERM);
    let status = eventually_some(SOON, async || runner.child.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(code(&server.finished(lease, SOON).await), "HANDED_BACK");
}
