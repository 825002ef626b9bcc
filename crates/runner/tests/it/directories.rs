//! The working directory of a task.

use std::os::unix::fs::PermissionsExt;

use ensemble_types::leases::{FinishStatus, Lease};

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, RunnerProcess, SOON, ScriptAgent, config};

fn working_in(directory: &std::path::Path, prompt: &str) -> Lease {
    Lease { working_directory: Some(directory.display().to_string()), ..task(prompt) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_in_its_working_directory_below_a_root() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let inside = state.path().join("my project");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("file"), "").unwrap();
    let lease = server.enqueue(working_in(&inside, &format!("pwd\n{DONE}")));
    completed(&server.finished(lease, SOON).await);
    assert_eq!(server.recorded(lease).output, format!("{}\n", inside.canonicalize().unwrap().display()));

    for (directory, wanted) in [
        (inside.join("missing"), "WORKING_DIRECTORY_NOT_FOUND"),
        (inside.join("file"), "WORKING_DIRECTORY_NOT_A_DIRECTORY"),
        ("/".into(), "WORKING_DIRECTORY_NOT_ALLOWED"),
        (inside.join("../.."), "WORKING_DIRECTORY_INVALID"),
    ] {
        let finish = server.finished(server.enqueue(working_in(&directory, DONE)), SOON).await;
        assert_eq!((finish.status, code(&finish)), (FinishStatus::Refused, wanted));
        let message = finish.error.unwrap().message.into_string();
        assert!(message.contains(&directory.display().to_string()), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_run_without_a_directory_share_one() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let first = task(format!("echo shared > note\n{DONE}"));
    let second = Lease { run_id: first.run_id, ..task(format!("cat note\n{DONE}")) };
    completed(&server.finished(server.enqueue(first), SOON).await);
    let id = server.enqueue(second);
    completed(&server.finished(id, SOON).await);
    assert_eq!(server.recorded(id).output, "shared\n");
}

/// Root can read everything, so the runner of this test runs as an unprivileged user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_directory_is_reported() {
    const UNPRIVILEGED: u32 = 65_534;
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let as_user = nix::unistd::geteuid().is_root().then_some(UNPRIVILEGED);
    std::fs::set_permissions(state.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let secret = state.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o000)).unwrap();
    let _runner = RunnerProcess::start_as(&server, &agent, state.path(), serde_json::json!({}), as_user);
    let finish = server.finished(server.enqueue(working_in(&secret, DONE)), SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Refused, "WORKING_DIRECTORY_NOT_READABLE"));
    let finish = server.finished(server.enqueue(working_in(&secret.join("below"), DONE)), SOON).await;
    assert_eq!(code(&finish), "WORKING_DIRECTORY_NOT_READABLE");
}
