//! What happens to a running task when its machine, its runner or the server is interrupted. The agent is a stand-in that
//! knows its sessions: it repeats a step only in a new session.
//!
//! Leases live 6 s here instead of 30 s, heartbeats come every 2 s instead of 10 s, and a request for work is open for 3 s
//! instead of 15 s. So ten seconds stand for a minute.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ensemble_testkit::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::ensemble::{Running, User, up, up_at, wait_for_runner};

const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "0.0.0 (stand-in)"; exit 0; }
[ "$1" = "auth" ] && exit 0
read -r _
echo '{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}'
read -r _
case " $* " in
  *" --resume "*) echo resumed >> resumed ;;
  *) echo x >> steps ;;
esac
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
while [ ! -e go ]; do sleep 0.1; done
[ -e slow ] && sleep 2
echo y >> steps
echo '{"type":"result","subtype":"success","is_error":false,"result":"done"}'
"#;

const SHORT: &str = "timing: {leaseBeatMs: 2000, leaseWaitMs: 3000, drainGraceMs: 60000}\n";
const SOON: Duration = Duration::from_secs(90);
/// Longer than a lease.
const LONG: Duration = Duration::from_secs(11);

/// A user whose agent waits in the middle of its work, in the user's home directory.
struct Story {
    user: User,
    _programs: TempDir,
}

impl Story {
    fn new() -> Self {
        Self::with_leases_of("6000")
    }

    /// Where no lease is to be lost, not even on a machine that stands still for a while.
    fn with_long_leases() -> Self {
        Self::with_leases_of("30000")
    }

    fn with_leases_of(milliseconds: &'static str) -> Self {
        let programs = tempfile::tempdir().unwrap();
        let claude = programs.path().join("claude");
        fs::write(&claude, CLAUDE).unwrap();
        fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
        // A machine that stands still takes no lease away.
        let user = User::new(None)
            .with_programs(programs.path())
            .with_variable("ORCHESTRATOR_LEASE_MS", milliseconds)
            .with_variable("ORCHESTRATOR_SWEEP_LATE_MS", "1000");
        fs::create_dir_all(user.files()).unwrap();
        fs::write(user.files().join("runner.yaml"), SHORT).unwrap();
        fs::write(user.home().join("plan.yaml"), "tasks: [{key: work, prompt: x, provider: claude}]").unwrap();
        Self { user, _programs: programs }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.user.home().join(name)
    }

    /// Submits the task and waits until the agent is in the middle of it and the server knows its session.
    fn begin(&self) {
        wait_for_runner(&self.user);
        self.user.succeed(&["run", "--detach", "plan.yaml"]);
        wait(|| self.place("steps").exists() && !self.task()["providerSessionId"].is_null());
    }

    fn let_it_finish(&self) {
        fs::write(self.place("go"), "").unwrap();
    }

    fn task(&self) -> Value {
        // A server that begins again at another address has no `last`.
        let run = self.user.json(&["runs"])["runs"][0]["ref"].clone();
        self.user.json(&["show", run.as_str().unwrap()])["tasks"][0].clone()
    }

    /// Waits for the end of the task and checks that nothing failed and that no step was done twice.
    fn completes(&self, attempt: u64, resumed: bool) {
        wait(|| !["queued", "dispatching", "running"].contains(&self.task()["status"].as_str().unwrap()));
        let task = self.task();
        assert_eq!((&task["status"], &task["error"]), (&"completed".into(), &Value::Null), "{task}");
        assert_eq!(fs::read_to_string(self.place("steps")).unwrap(), "x\ny\n", "{task}");
        assert_eq!(task["attempt"], attempt, "{task}");
        assert_eq!(self.place("resumed").exists(), resumed, "{task}");
    }
}

#[track_caller]
fn wait(mut until: impl FnMut() -> bool) {
    crate::ensemble::until(SOON, "what it waits for", || if until() { Ok(()) } else { Err(()) });
}

/// Waits until this much time has passed, because the test is about time that passes.
fn pass(time: Duration) {
    let begun = Instant::now();
    wait(|| begun.elapsed() >= time);
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// The same for a whole tree, whose short-lived processes may have ended meanwhile.
fn signal_all(tree: &[u32], signal: Signal) {
    for pid in tree {
        match kill(Pid::from_raw(i32::try_from(*pid).unwrap()), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => panic!("{pid}: {error}"),
        }
    }
}

/// A process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let printed = Command::new("ps").args(["-e", "-o", "pid=,ppid="]).output().unwrap().stdout;
    let pairs: Vec<(u32, u32)> = String::from_utf8(printed)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(|word| word.parse().ok());
            words.next().flatten().zip(words.next().flatten())
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn is_online(user: &User) -> bool {
    user.json(&["machine", "list"])["machines"][0]["machine"]["online"] == true
}

fn runner(story: &Story) -> Running {
    Running::start(&story.user, &["runner"])
}

#[test]
fn a_killed_runner_that_comes_back_at_once_resumes_the_session() {
    let story = Story::new();
    let (_up, _url) = up(&story.user, &["--no-runner"]);
    let first = runner(&story);
    story.begin();
    drop(first);
    let _second = runner(&story);
    wait(|| story.place("resumed").exists());
    story.let_it_finish();
    story.completes(2, true);
}

#[test]
fn a_killed_runner_that_comes_back_late_resumes_the_session() {
    let story = Story::new();
    let (_up, _url) = up(&story.user, &["--no-runner"]);
    let first = runner(&story);
    story.begin();
    drop(first);
    wait(|| story.task()["status"] == "queued");
    let _second = runner(&story);
    wait(|| story.place("resumed").exists());
    story.let_it_finish();
    story.completes(2, true);
}

#[test]
fn a_machine_that_slept_continues_where_it_was() {
    let story = Story::new();
    let (_up, _url) = up(&story.user, &["--no-runner"]);
    let running = runner(&story);
    story.begin();
    let asleep = tree(running.pid());
    assert!(asleep.len() >= 3, "the runner, the guard and the agent: {asleep:?}");
    signal_all(&asleep, Signal::SIGSTOP);
    wait(|| story.task()["status"] == "queued");
    pass(LONG);
    signal_all(&asleep, Signal::SIGCONT);
    story.let_it_finish();
    story.completes(1, false);
}

#[test]
fn a_frozen_runner_takes_the_result_of_its_agent() {
    let story = Story::new();
    let (_up, _url) = up(&story.user, &["--no-runner"]);
    let running = runner(&story);
    story.begin();
    signal(running.pid(), Signal::SIGSTOP);
    story.let_it_finish();
    wait(|| story.task()["status"] == "queued");
    pass(LONG);
    signal(running.pid(), Signal::SIGCONT);
    story.completes(1, false);
}

#[test]
fn the_first_signal_lets_the_task_end_and_keeps_the_server_until_then() {
    for interrupt in [Signal::SIGINT, Signal::SIGTERM] {
        let story = Story::with_long_leases();
        fs::write(story.place("slow"), "").unwrap();
        let (running, _url) = up(&story.user, &[]);
        story.begin();
        story.let_it_finish();
        signal(running.pid(), interrupt);
        wait(|| fs::read_to_string(story.place("steps")).unwrap() == "x\ny\n");
        assert_eq!(running.ended(), 0);
        let (_again, _url) = up(&story.user, &["--no-runner"]);
        story.completes(1, false);
    }
}

#[test]
fn a_task_that_the_second_signal_interrupts_resumes_with_the_next_start() {
    let story = Story::new();
    // At another address it would be another server, with another registration of this machine.
    let listen = format!("127.0.0.1:{}", free_port());
    let more = ["up", "--json", "--listen", &listen];
    let (running, _printed) = up_at(&story.user, &more);
    story.begin();
    signal(running.pid(), Signal::SIGTERM);
    wait(|| story.user.json(&["machine", "list"])["machines"][0]["machine"]["activity"]["runner"]["draining"] == true);
    assert!(story.user.succeed(&["machine", "list"]).contains("drains"));
    assert_eq!(running.interrupt(), 0);
    let (_again, _printed) = up_at(&story.user, &more);
    wait(|| story.place("resumed").exists());
    story.let_it_finish();
    story.completes(2, true);
}

#[test]
fn a_killed_server_costs_nothing() {
    let story = Story::new();
    let data = story.place("data");
    let listen = format!("127.0.0.1:{}", free_port());
    let more = ["up", "--json", "--no-runner", "--data", path(&data), "--listen", &listen];
    let (server, _printed) = up_at(&story.user, &more);
    let _runner = runner(&story);
    wait(|| is_online(&story.user));
    story.begin();
    drop(server);
    pass(LONG);
    let (_server, _printed) = up_at(&story.user, &more);
    story.let_it_finish();
    story.completes(1, false);
}

#[test]
fn a_watcher_says_once_that_the_server_is_away_and_sees_the_end() {
    let story = Story::with_long_leases();
    let listen = format!("127.0.0.1:{}", free_port());
    let more = ["up", "--json", "--no-runner", "--listen", &listen];
    let (server, _printed) = up_at(&story.user, &more);
    let _runner = runner(&story);
    wait_for_runner(&story.user);
    let errors = story.place("errors");
    let mut doing = story.user.command(&["do", "x"]);
    let doing = doing.stderr(fs::File::create(&errors).unwrap()).spawn().unwrap();
    wait(|| story.place("steps").exists());
    drop(server);
    let said = || fs::read_to_string(&errors).unwrap();
    wait(|| said().contains("The server does not respond."));
    let (_server, _printed) = up_at(&story.user, &more);
    story.let_it_finish();
    let ended = doing.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", said());
    assert_eq!(String::from_utf8_lossy(&ended.stdout).matches("done").count(), 1);
    assert_eq!(said().matches("The server does not respond.").count(), 1, "{}", said());
    assert!(!said().contains("cannot be followed"), "{}", said());
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_machine_is_offline_as_soon_as_its_runner_has_ended() {
    let story = Story::with_long_leases();
    let (_up, _url) = up(&story.user, &["--no-runner"]);
    let running = runner(&story);
    wait(|| is_online(&story.user));
    assert_eq!(running.interrupt(), 0);
    assert!(!is_online(&story.user));
    let _again = runner(&story);
    wait(|| is_online(&story.user));
}
