//! Tasks in one directory, and tasks with worktrees.

use std::fs;
use std::path::Path;
use std::process::Command;

use ensemble_testkit::eventually;
use ensemble_types::changes::{LeaseWaitsFor, OrderOutcome};
use ensemble_types::leases::{FinishStatus, Lease, OrderKind};
use ensemble_types::runs::Isolation;

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, SOON, ScriptAgent, config};

fn git(folder: &Path, args: &[&str]) {
    let name = ["-c", "user.name=p", "-c", "user.email=p@example.com"];
    let status = Command::new("git").current_dir(folder).args(name).args(args).status().unwrap();
    assert!(status.success(), "{args:?}");
}

/// A repository with one commit.
fn repository(folder: &Path) {
    fs::create_dir(folder).unwrap();
    git(folder, &["init", "--quiet", "."]);
    fs::write(folder.join("file"), "one\n").unwrap();
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "-m", "first"]);
}

fn in_folder(folder: &Path, isolation: Isolation, script: &str) -> Lease {
    let working_directory = Some(folder.display().to_string());
    Lease { working_directory, isolation, ..task(format!("{script}\n{DONE}")) }
}

/// A script that continues when the file is there.
fn until(file: &Path) -> String {
    format!("while [ ! -e '{}' ]; do sleep 0.05; done", file.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_in_one_working_tree_take_turns_and_the_one_that_waits_takes_no_slot() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let project = state.path().join("project");
    repository(&project);
    fs::create_dir(project.join("below")).unwrap();
    let mut config = config(&server, &agent, state.path());
    config.capacity = 2;
    let _runner = Runner::start(config);
    let go = state.path().join("go");
    let first =
        server.enqueue(in_folder(&project, Isolation::None, &format!("echo 1 >> log; {}; echo 1 >> log", until(&go))));
    server.wait_for_heartbeat(first).await;
    eventually(SOON, async || project.join("log").exists()).await;
    // Its timeout is over before its turn comes, and stands still.
    let second = Lease { timeout_ms: 1_000, ..in_folder(&project.join("below"), Isolation::None, "echo 2 >> ../log") };
    let second = server.enqueue(second);
    eventually(SOON, async || server.recorded(second).waits == Some(LeaseWaitsFor::Directory)).await;
    // There are two slots, and both are in use when this one runs.
    let shared = server.enqueue(in_folder(&project, Isolation::Shared, "echo shared"));
    completed(&server.finished(shared, SOON).await);
    let before = server.recorded(second).heartbeats.len();
    // Six beats of 200 ms: longer than its timeout.
    eventually(SOON, async || server.recorded(second).heartbeats.len() > before + 6).await;
    assert_eq!(server.recorded(second).waits, Some(LeaseWaitsFor::Directory));
    fs::write(&go, "").unwrap();
    completed(&server.finished(first, SOON).await);
    let finish = server.finished(second, SOON).await;
    completed(&finish);
    assert_eq!(fs::read_to_string(project.join("log")).unwrap(), "1\n1\n2\n");
    assert_eq!(server.recorded(second).waits, None);
    assert!(!server.recorded(first).has_waited);
    let files: Vec<String> = finish.changes.unwrap().files.iter().map(|file| file.path.to_string()).collect();
    assert_eq!(files, ["log"], "what it changed itself");
    assert!(server.recorded(second).diff.contains("+2\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_can_be_cancelled_and_is_handed_back() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let folder = state.path().join("no git");
    fs::create_dir(&folder).unwrap();
    let mut runner = Runner::start(config(&server, &agent, state.path()));
    let go = state.path().join("go");
    let first = server.enqueue(in_folder(&folder, Isolation::None, &format!("touch begun; {}", until(&go))));
    eventually(SOON, async || folder.join("begun").exists()).await;
    let cancelled = server.enqueue(in_folder(&folder, Isolation::None, "touch never"));
    let handed_back = server.enqueue(in_folder(&folder, Isolation::None, "touch never"));
    for lease in [cancelled, handed_back] {
        eventually(SOON, async || server.recorded(lease).has_waited).await;
    }
    server.cancel(cancelled);
    assert_eq!(server.finished(cancelled, SOON).await.status, FinishStatus::Cancelled);
    runner.drain().begin();
    let finish = server.finished(handed_back, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Cancelled, "HANDED_BACK"));
    fs::write(&go, "").unwrap();
    completed(&server.finished(first, SOON).await);
    runner.stopped(SOON).await;
    assert!(!folder.join("never").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worktree_is_applied_and_discarded_by_orders() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let project = state.path().join("project");
    repository(&project);
    let _runner = Runner::start(config(&server, &agent, state.path()));
    // Both run at once, each in its own tree.
    let meet = state.path().join("meet");
    let [a, b] = ["a", "b"].map(|name| {
        let other = if name == "a" { "b" } else { "a" };
        let script = format!(
            "touch '{0}-{name}'; {1}; echo {name} > {name}",
            meet.display(),
            until(Path::new(&format!("{}-{other}", meet.display())))
        );
        in_folder(&project, Isolation::Worktree, &script)
    });
    for lease in [&a, &b] {
        server.enqueue(lease.clone());
    }
    for lease in [&a, &b] {
        let finish = server.finished(lease.id, SOON).await;
        completed(&finish);
        let changes = finish.changes.unwrap();
        assert!(changes.kept && changes.file_count == 1, "{changes:?}");
        assert!(server.recorded(lease.id).diff.contains("new file mode 100644"));
        assert!(!server.recorded(lease.id).has_waited);
    }
    assert!(!project.join("a").exists());
    let result = server.order(OrderKind::Apply, a.run_id, a.task_id).await;
    assert_eq!(result.outcome, OrderOutcome::Applied);
    assert_eq!(fs::read_to_string(project.join("a")).unwrap(), "a\n");
    assert!(!project.join("b").exists());
    for lease in [&a, &b] {
        let result = server.order(OrderKind::Discard, lease.run_id, lease.task_id).await;
        assert_eq!(result.outcome, OrderOutcome::Discarded);
    }
    assert!(project.join("a").exists());
    assert_eq!(fs::read_dir(state.path().join("state/worktrees")).unwrap().count(), 0);
    let gone = server.order(OrderKind::Apply, b.run_id, b.task_id).await;
    assert_eq!(gone.outcome, OrderOutcome::Lost);

    let lease = server.enqueue(in_folder(&state.path().join("."), Isolation::Worktree, "true"));
    let finish = server.finished(lease, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Refused, "WORKING_DIRECTORY_NOT_GIT"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diff_that_the_server_does_not_take_is_said_to_be_missing() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let project = state.path().join("project");
    repository(&project);
    let _runner = Runner::start(config(&server, &agent, state.path()));
    for is_taken in [true, false] {
        if !is_taken {
            server.refuse_diffs();
        }
        let lease = server.enqueue(in_folder(&project, Isolation::Worktree, "echo a > a"));
        let finish = server.finished(lease, SOON).await;
        completed(&finish);
        let changes = finish.changes.unwrap();
        assert!(changes.kept && changes.file_count == 1 && changes.partial != is_taken, "{changes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worktree_does_not_have_is_said_in_the_output() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let project = state.path().join("project");
    repository(&project);
    fs::write(project.join(".gitattributes"), "*.bin filter=lfs\n").unwrap();
    fs::write(project.join("one.bin"), "1\n").unwrap();
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "-m", "filtered"]);
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let said = "[worktree] 1 file is in its stored form in a worktree, because filters do not run there: lfs.\n";
    for (isolation, is_said) in [(Isolation::Worktree, true), (Isolation::None, false)] {
        let lease = server.enqueue(in_folder(&project, isolation, "true"));
        completed(&server.finished(lease, SOON).await);
        let output = server.recorded(lease).output;
        assert_eq!(output.starts_with(said), is_said, "{output}");
    }
}
