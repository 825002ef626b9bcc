//! Runs the real program with its own home directory, and `ensemble up` for the duration of a test.

use std::io::Write;
#[cfg(feature = "up")]
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
#[cfg(feature = "up")]
use std::process::Child;
use std::process::{Command, Stdio};
#[cfg(feature = "up")]
use std::sync::mpsc;
#[cfg(feature = "up")]
use std::time::{Duration, Instant};

#[cfg(feature = "up")]
use serde_json::Value;
use tempfile::TempDir;

/// A user with a home directory and a server.
pub(crate) struct User {
    home: TempDir,
    server: Option<String>,
    path: Option<PathBuf>,
    program: PathBuf,
    variables: Vec<(&'static str, &'static str)>,
}

/// The result of a command.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl User {
    pub(crate) fn new(server: Option<&str>) -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            server: server.map(str::to_owned),
            path: None,
            program: env!("CARGO_BIN_EXE_ensemble").into(),
            variables: Vec::new(),
        }
    }

    /// With a home where codex can work. The sandbox in which it runs commands has its own `/dev`, and the folder for temporary files of
    /// the tests can be there. In a folder for temporary files codex makes no programs for its sandbox.
    #[cfg(feature = "up")]
    pub(crate) fn at_home_for_codex(mut self) -> Self {
        self.home = tempfile::tempdir_in("/var/tmp").unwrap();
        self
    }

    /// Programs in this directory are found before all others.
    #[cfg(feature = "up")]
    pub(crate) fn with_programs(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Commands are those of this program from now on.
    #[cfg(feature = "up")]
    pub(crate) fn runs(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// Commands get this environment variable.
    #[cfg(feature = "up")]
    pub(crate) fn with_variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// The directory of the account key and the settings.
    pub(crate) fn files(&self) -> PathBuf {
        self.home().join("ensemble")
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.home()).env("HOME", self.home()).env("ENSEMBLE_HOME", self.files());
        for name in [
            "PUBLIC_BASE_URL",
            "PUBLIC_ORIGINS",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
            "XDG_DATA_HOME",
            "ENSEMBLE_SERVER",
            "ENSEMBLE_MACHINE_TOKEN",
            "RUST_LOG",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().copied());
        if let Some(server) = &self.server {
            command.env("ENSEMBLE_SERVER", server);
        }
        if let Some(path) = &self.path {
            let inherited = std::env::var_os("PATH").unwrap_or_default();
            let paths = std::iter::once(path.clone()).chain(std::env::split_paths(&inherited));
            command.env("PATH", std::env::join_paths(paths).unwrap());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command with this input and waits for its end.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Finished {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Finished { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What a shell offers for these words.
    pub(crate) fn complete(&self, words: &[&str]) -> String {
        let all: Vec<&str> = ["--", "ensemble"].iter().chain(words).copied().collect();
        let output = self.command(&all).env("COMPLETE", "fish").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        self.run_with_input(arguments, "")
    }

    /// Runs a command that must fail with exit code 1, and returns its errors.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 1, "{arguments:?}: {}{}", ended.out, ended.err);
        ended.err
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.out, ended.err);
        ended.out
    }

    /// The same with `--json`: one document.
    #[cfg(feature = "up")]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let text = self.succeed(&all);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// The same, for commands that print one document per line.
    #[cfg(feature = "up")]
    pub(crate) fn json_lines(&self, arguments: &[&str]) -> Vec<Value> {
        let mut all = arguments.to_vec();
        all.push("--json");
        self.succeed(&all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Starts a command that continues to run. It is killed when dropped.
#[cfg(feature = "up")]
pub(crate) struct Running(Option<Child>, BufReader<std::process::ChildStdout>);

#[cfg(feature = "up")]
impl Running {
    pub(crate) fn start(user: &User, arguments: &[&str]) -> Self {
        Self::logging(user, arguments, Stdio::inherit())
    }

    /// A command that says in one line that it runs.
    #[cfg(feature = "up")]
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self(Some(child), out);
        assert!(!running.line().is_empty());
        running
    }

    /// The same with its log in a file.
    pub(crate) fn logging(user: &User, arguments: &[&str], log: impl Into<Stdio>) -> Self {
        Self::out_of(user.command(arguments).stderr(log).spawn().unwrap())
    }

    /// A command that was started with its output in a pipe.
    pub(crate) fn out_of(mut child: Child) -> Self {
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(Some(child), out)
    }

    /// The next line of the output. Empty at the end, or if no line comes within a minute.
    pub(crate) fn line(&mut self) -> String {
        let (read, waits) = mpsc::channel::<()>();
        let pid = self.pid().to_string();
        std::thread::spawn(move || {
            if waits.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-KILL", &pid]).status();
            }
        });
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        drop(read);
        line
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Sends Ctrl-C and waits for the end.
    pub(crate) fn interrupt(self) -> i32 {
        assert!(Command::new("kill").args(["-INT", &self.pid().to_string()]).status().unwrap().success());
        self.ended()
    }

    /// Waits for the end. `ensemble up` may take two minutes.
    pub(crate) fn ended(mut self) -> i32 {
        let mut child = self.0.take().unwrap();
        let pid = child.id().to_string();
        let (sender, exit) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait()));
        let status = exit.recv_timeout(Duration::from_secs(180)).unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
            panic!("still running long after Ctrl-C");
        });
        status.unwrap().code().unwrap_or(-1)
    }
}

#[cfg(feature = "up")]
impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `ensemble up` on a free port, and its address.
#[cfg(feature = "up")]
pub(crate) fn up(owner: &User, more: &[&str]) -> (Running, String) {
    let mut arguments = vec!["up", "--listen", "127.0.0.1:0", "--json"];
    arguments.extend(more);
    let (running, printed) = up_at(owner, &arguments);
    let url = printed["url"].as_str().unwrap().to_owned();
    (running, url)
}

/// `ensemble up` with these arguments and `--json`, and what it prints when it is up.
#[cfg(feature = "up")]
pub(crate) fn up_at(owner: &User, arguments: &[&str]) -> (Running, Value) {
    let mut running = Running::start(owner, arguments);
    let line = running.line();
    let printed = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (running, printed)
}

/// Looks again until there is an answer. It rests longer than it looks: a look may take a whole program, and what it waits for needs the
/// processors, too.
#[cfg(feature = "up")]
#[track_caller]
pub(crate) fn until<T, E: std::fmt::Debug>(
    soon: Duration,
    what: &str,
    mut look: impl FnMut() -> std::result::Result<T, E>,
) -> T {
    const LONGEST: Duration = Duration::from_millis(100);
    const SHORTEST: Duration = Duration::from_millis(5);
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(begun.elapsed() < soon, "not in time: {what}: {last:#?}"),
        }
        std::thread::park_timeout((looked.elapsed() * 2).clamp(SHORTEST, LONGEST));
    }
}

/// Waits until the runner of this machine is registered and says what it offers.
#[cfg(feature = "up")]
pub(crate) fn wait_for_runner(user: &User) {
    until(Duration::from_secs(300), "a runner", || {
        let status: Value = serde_json::from_str(&user.run(&["status", "--json"]).out).unwrap_or_default();
        if status["machine"]["runner"]["providers"].is_array() { Ok(()) } else { Err(status) }
    });
}
