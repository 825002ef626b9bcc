//! Large output and invalid characters.

use std::time::Duration;

use ensemble_testkit::eventually;
use serde_json::json;

use crate::support::orchestrator::{completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config};

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat_for_a_hundred_mebibytes_of_output() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let runner = RunnerProcess::start(&server, &agent, state.path(), json!({}));
    let small = server.enqueue(task(format!("head -c {MIB} /dev/zero | tr '\\0' x | fold -w 1000; echo\n{DONE}")));
    completed(&server.finished(small, SOON).await);
    let before = runner.peak_memory();
    // The first half has lines, the second half is one line.
    let half = 50 * MIB;
    let script = format!(
        "head -c {half} /dev/zero | tr '\\0' y | fold -w 1000; echo; head -c {half} /dev/zero | tr '\\0' z; echo\n{DONE}"
    );
    let large = server.enqueue(task(script));
    completed(&server.finished(large, Duration::from_secs(120)).await);
    let grown = runner.peak_memory().saturating_sub(before);
    assert!(server.recorded(large).output_bytes >= 2 * half, "{}", server.recorded(large).output_bytes);
    println!("memory grew by {} MiB to {} MiB", grown / MIB, runner.peak_memory() / MIB);
    assert!(grown < 48 * MIB, "memory grew by {} MiB", grown / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_five_mebibytes_is_a_result() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let begin = r#"{"type":"result","subtype":"success","is_error":false,"result":""#;
    let script = format!("printf '%s' '{begin}'; head -c {} /dev/zero | tr '\\0' a; printf '\"}}\\n'", 5 * MIB);
    let finish = server.finished(server.enqueue(task(script)), SOON).await;
    completed(&finish);
    let summary = finish.output_summary.unwrap();
    assert!(summary.starts_with("aaaa") && summary.len() <= 16_384, "{} bytes", summary.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_waits_while_too_much_output_is_unsent() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.max_unsent_bytes = MIB;
    let _runner = Runner::start(config);
    let lease = server.enqueue(task(format!(
        "echo ready; sleep 0.3; head -c {} /dev/zero | tr '\\0' x | fold -w 1000; echo\n{DONE}",
        16 * MIB
    )));
    server.wait_for_output(lease, "ready").await;
    server.fail_with(Some(ensemble_types::problem::Code::Unavailable));
    let folder = state.path().join(format!("state/attempts/{lease}"));
    let size =
        || -> u64 { std::fs::read_dir(&folder).unwrap().flatten().map(|f| f.metadata().map_or(0, |m| m.len())).sum() };
    eventually(SOON, async || size() >= MIB).await;
    assert!(size() < 3 * MIB);
    server.fail_with(None);
    completed(&server.finished(lease, SOON).await);
    assert!(server.recorded(lease).output_bytes > 16 * MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bytes_and_nul_are_replaced() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    // A character of four bytes in two writes, then a byte that is not UTF-8, then U+0000.
    let script = format!("printf '\\xf0\\x9f'; sleep 0.2; printf '\\x98\\x80\\n'; printf 'a\\xffb\\000c\\n'\n{DONE}");
    let lease = server.enqueue(task(script));
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.recorded(lease).output, "😀\na\u{fffd}b\u{fffd}c\n");
}
