//! Runners: inside the test, or as a separate process that can be killed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ensemble_host::{Drain, Environment};
use ensemble_runner::config::{Accept, ProviderConfig};
use ensemble_runner::{Config, run_until};
use ensemble_types::runs::Provider;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Orchestrator, ScriptAgent};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ensemble-runner");

/// A runner with one script agent, and short pauses.
pub(crate) fn config(server: &Orchestrator, agent: &ScriptAgent, state: &Path) -> Config {
    let environment: Environment = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")]
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .into();
    let mut config = Config::new(
        &server.url,
        "test-machine".parse().unwrap(),
        ensemble_client::Credential::Bearer("machine-token".into()),
        state.join("state"),
        environment,
    );
    config.accept = Some(Accept::Any);
    config.guard = vec![PROGRAM.to_owned(), "runner".to_owned(), "guard".to_owned()];
    config.roots = vec![state.to_owned()];
    for (provider, entry) in &mut config.providers {
        entry.enabled = *provider == Provider::Claude;
    }
    config
        .providers
        .insert(Provider::Claude, ProviderConfig { program: agent.program(), ..ProviderConfig::of(Provider::Claude) });
    config.timing.lease_beat = Duration::from_millis(200);
    config.timing.machine_beat = Duration::from_millis(200);
    config.timing.lease_wait = Duration::from_secs(2);
    config.timing.term_grace = Duration::from_secs(2);
    config.timing.leftover_grace = Duration::from_millis(300);
    config.timing.lost_grace = Duration::from_millis(500);
    config.timing.backoff_first = Duration::from_millis(20);
    config.timing.backoff_longest = Duration::from_millis(200);
    config.timing.output_interval = Duration::from_millis(10);
    config.timing.deliver_grace = Duration::from_millis(500);
    config
}

/// A runner inside the test. Stopped when it is dropped.
pub(crate) struct Runner {
    drain: Drain,
    running: JoinHandle<()>,
}

impl Runner {
    pub(crate) fn start(config: Config) -> Self {
        let drain = Drain::default();
        let activity = drain.clone();
        let running = tokio::spawn(async move { run_until(config, activity).await.unwrap() });
        Self { drain, running }
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Waits until the runner has stopped.
    pub(crate) async fn stopped(&mut self, within: Duration) {
        tokio::time::timeout(within, &mut self.running).await.expect("the runner stops in time").unwrap();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A runner as a process. Killed when it is dropped.
pub(crate) struct RunnerProcess {
    pub(crate) child: Child,
    folder: TempDir,
    program: PathBuf,
    file: PathBuf,
    as_user: Option<u32>,
}

impl RunnerProcess {
    /// Starts the real program with a configuration file.
    pub(crate) fn start(server: &Orchestrator, agent: &ScriptAgent, state: &Path, timing: Value) -> Self {
        Self::start_as(server, agent, state, timing, None)
    }

    /// The same as another user, if this process may switch users.
    pub(crate) fn start_as(
        server: &Orchestrator,
        agent: &ScriptAgent,
        state: &Path,
        timing: Value,
        as_user: Option<u32>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all = json!({
            "leaseBeatMs": 200, "machineBeatMs": 200, "leaseWaitMs": 2000, "termGraceMs": 2000, "leftoverGraceMs": 300,
            "backoffFirstMs": 20, "backoffLongestMs": 200, "outputIntervalMs": 10, "deliverGraceMs": 500,
        });
        all.as_object_mut().unwrap().extend(timing.as_object().unwrap().clone());
        let file = json!({
            "server": server.url, "accept": "any", "machineId": "test-machine", "stateDir": state.join("state"), "roots": [state],
            "providers": {
                "claude": {"program": agent.program()}, "codex": {"enabled": false}, "gemini": {"enabled": false},
            },
            "timing": all,
        });
        let path = folder.path().join("runner.json");
        std::fs::write(&path, file.to_string()).unwrap();
        let mut program = PathBuf::from(PROGRAM);
        if as_user.is_some() {
            std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            // The repository may be in a directory that the other user cannot enter. `cp` writes the copy, because a
            // program that this process holds open for writing cannot be started.
            program = folder.path().join("ensemble-runner");
            assert!(Command::new("cp").arg(PROGRAM).arg(&program).status().unwrap().success());
        }
        let child = launch(&program, &path, as_user);
        Self { child, folder, program, file: path, as_user }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Stops it as on a sleeping machine, until SIGCONT. Returns when all of its threads stand still: the signal alone
    /// leaves those on other processors time to act.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP));
    }

    /// Starts it again with the same state.
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = launch(&self.program, &self.file, self.as_user);
        assert!(self.folder.path().exists());
    }

    /// The highest memory use so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

fn launch(program: &Path, file: &Path, as_user: Option<u32>) -> Child {
    let mut command = Command::new(program);
    command
        .arg(file)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("ENSEMBLE_MACHINE_TOKEN", "machine-token")
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null());
    if let Some(user) = as_user {
        command.uid(user).gid(user);
    }
    command.spawn().unwrap()
}

impl Drop for RunnerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
