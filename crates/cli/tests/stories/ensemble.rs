//! The real program, with a home of its own, and `ensemble up` for as long as a test takes.

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
use std::time::Duration;

#[cfg(feature = "up")]
use serde_json::Value;
use tempfile::TempDir;

/// Somebody at a keyboard: a home directory, and the server that is typed at.
pub(crate) struct Person {
    home: TempDir,
    server: Option<String>,
    path: Option<PathBuf>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Person {
    pub(crate) fn new(server: Option<&str>) -> Self {
        Self { home: tempfile::tempdir().unwrap(), server: server.map(str::to_owned), path: None }
    }

    /// Programs in this directory are found before all others.
    #[cfg(feature = "up")]
    pub(crate) fn with_programs(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ensemble"));
        command
            .args(words)
            .current_dir(self.home())
            .env("HOME", self.home())
            .env("ENSEMBLE_HOME", self.home().join("ensemble"));
        for name in
            ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "ENSEMBLE_SERVER", "ENSEMBLE_MACHINE_TOKEN", "RUST_LOG", "NO_COLOR"]
        {
            command.env_remove(name);
        }
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

    /// Types a command, and what it reads, and waits for its end.
    pub(crate) fn types_with(&self, words: &[&str], input: &str) -> Ended {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    pub(crate) fn types(&self, words: &[&str]) -> Ended {
        self.types_with(words, "")
    }

    /// Types a command that works, and reads what it says.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let ended = self.types(words);
        assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.out, ended.err);
        ended.out
    }

    /// The same with `--json`: one document.
    #[cfg(feature = "up")]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let mut all = words.to_vec();
        all.push("--json");
        let text = self.says(&all);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// The same, for commands that give one document a line.
    #[cfg(feature = "up")]
    pub(crate) fn json_lines(&self, words: &[&str]) -> Vec<Value> {
        let mut all = words.to_vec();
        all.push("--json");
        self.says(&all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A command that goes on; ended with its owner.
#[cfg(feature = "up")]
pub(crate) struct Going(Option<Child>, BufReader<std::process::ChildStdout>);

#[cfg(feature = "up")]
impl Going {
    pub(crate) fn start(person: &Person, words: &[&str]) -> Self {
        let mut child = person.command(words).stderr(Stdio::inherit()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(Some(child), out)
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line
    }

    /// Presses Ctrl-C and waits for the end.
    pub(crate) fn interrupt(mut self) -> i32 {
        let mut child = self.0.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let (told, ended) = mpsc::channel();
        std::thread::spawn(move || told.send(child.wait()));
        let status = ended.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
            panic!("still there long after Ctrl-C");
        });
        status.unwrap().code().unwrap_or(-1)
    }
}

#[cfg(feature = "up")]
impl Drop for Going {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `ensemble up` on a free port, and its address.
#[cfg(feature = "up")]
pub(crate) fn up(owner: &Person, more: &[&str]) -> (Going, String) {
    let mut words = vec!["up", "--listen", "127.0.0.1:0", "--json"];
    words.extend(more);
    let mut going = Going::start(owner, &words);
    let line = going.line();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let url = told["url"].as_str().unwrap().to_owned();
    (going, url)
}
