//! Much output, odd output.

use std::time::Duration;

use serde_json::json;

use crate::support::orchestrator::{completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config, eventually};

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_mebibytes_pass_through_flat_memory() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let small = server.enqueue(task(format!("head -c {MIB} /dev/zero | tr '\\0' x | fold -w 1000; echo\n{DONE}")));
    completed(&server.finished(small, SOON).await);
    let before = runner.peak_memory();
    // Half in lines, half as one line that never ends.
    let half = 50 * MIB;
    let script = format!(
        "head -c {half} /dev/zero | tr '\\0' y | fold -w 1000; echo; head -c {half} /dev/zero | tr '\\0' z; echo\n{DONE}"
    );
    let large = server.enqueue(task(script));
    completed(&server.finished(large, Duration::from_secs(120)).await);
    let grown = runner.peak_memory().saturating_sub(before);
    assert!(server.heard(large).output_bytes >= 2 * half, "{}", server.heard(large).output_bytes);
    println!("memory grew by {} MiB to {} MiB", grown / MIB, runner.peak_memory() / MIB);
    assert!(grown < 48 * MIB, "memory grew by {} MiB", grown / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_has_to_wait_when_too_much_is_unsent() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.max_unsent_bytes = MIB;
    let _runner = Runner::start(config);
    let lease = server.enqueue(task(format!(
        "echo ready; sleep 0.3; head -c {} /dev/zero | tr '\\0' x | fold -w 1000; echo\n{DONE}",
        16 * MIB
    )));
    server.says(lease, "ready").await;
    server.fail_with(Some(ensemble_types::problem::Code::Unavailable));
    let folder = state.path().join(format!("state/attempts/{lease}"));
    let size =
        || -> u64 { std::fs::read_dir(&folder).unwrap().flatten().map(|f| f.metadata().map_or(0, |m| m.len())).sum() };
    eventually("the spool to fill", SOON, || (size() >= MIB).then_some(())).await;
    assert!(size() < 3 * MIB);
    server.fail_with(None);
    completed(&server.finished(lease, SOON).await);
    assert!(server.heard(lease).output_bytes > 16 * MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_text_and_nul_arrive_as_replacements() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    // An emoji of four bytes in two writes, then what is no UTF-8, then U+0000.
    let script = format!("printf '\\xf0\\x9f'; sleep 0.2; printf '\\x98\\x80\\n'; printf 'a\\xffb\\000c\\n'\n{DONE}");
    let lease = server.enqueue(task(script));
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.heard(lease).output, "😀\na\u{fffd}b\u{fffd}c\n");
}
