//! Sealed tasks on a machine that hosts no sessions: nothing is run.

use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::runs::{SealedTask, TaskSession};

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, SOON, ScriptAgent, config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sealed_is_never_run_as_a_task_in_the_clear() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.roots.push(state.path().to_owned());
    let _runner = Runner::start(config);
    let made = state.path().join("made");
    // A server that sends a prompt with the seal, or a session without one, does not have it run.
    let prompt = format!("touch {}\n{DONE}", made.display());
    let sealed = Some(SealedTask::new("AQ").unwrap());
    for (sealed, session, expected) in [
        (sealed.clone(), Some(TaskSession::Start), "SESSIONS_NOT_HOSTED"),
        (None, Some(TaskSession::Start), "SESSIONS_NOT_HOSTED"),
        (sealed.clone(), Some(TaskSession::Turn), "SESSIONS_NOT_HOSTED"),
        (sealed, None, "TASK_NOT_SUPPORTED"),
    ] {
        let id = server.enqueue(Lease { sealed, session, ..task(prompt.clone()) });
        let finish = server.finished(id, SOON).await;
        assert_eq!((finish.status, code(&finish)), (FinishStatus::Refused, expected));
        assert_eq!(finish.session_id, None);
    }
    assert!(!made.exists());
    completed(&server.finished(server.enqueue(task(prompt)), SOON).await);
    assert!(made.exists(), "the same prompt in the clear");
}
