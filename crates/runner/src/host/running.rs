//! The process of an agent with its pipes, or a session's connection to an agent that is a server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_agent::{Exit, Launch, Line, Lines, Start};
use ensemble_process::disk::{on_disk, replace_text};
use ensemble_process::{self as process, Directory, Process};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};
use uuid::Uuid;

use super::agents::Agent;
use super::served::{Connection, Server};
use crate::config::{Config, Environment};

const CHUNK: usize = 64 << 10;
/// What is kept of standard error.
const STDERR: usize = 8 << 10;
/// How long the pipes are read after the process has ended. A process that left its group may hold them open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// An agent that runs.
pub(crate) enum Running {
    Piped(Box<Piped>),
    Served(Box<Connection>),
}

/// The session's own process.
pub(crate) struct Piped {
    process: Process,
    stdout: ChildStdout,
    /// The output has ended, or is not waited for any more.
    is_silent: bool,
    lines: Lines,
    chunk: Vec<u8>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

/// What has happened to a running agent.
pub(crate) enum Happened {
    Lines(Vec<Line>),
    Ended(Exit),
}

impl Running {
    pub(crate) async fn write(&mut self, lines: &[String]) {
        match self {
            Self::Piped(piped) => piped.write(lines).await,
            Self::Served(connection) => connection.write(lines).await,
        }
    }

    pub(crate) async fn close_input(&mut self) {
        match self {
            Self::Piped(piped) => piped.process.close_input().await,
            Self::Served(connection) => connection.close().await,
        }
    }

    /// Ends the agent and all that it has started. A server ends for all its sessions.
    pub(crate) async fn stop(&mut self, grace: Duration) {
        match self {
            Self::Piped(piped) => piped.process.stop(grace).await,
            Self::Served(connection) => connection.stop().await,
        }
    }

    /// Ends the guard itself, and with it the agent.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Piped(piped) => piped.process.kill_guard(),
            Self::Served(connection) => connection.kill(),
        }
    }

    /// The next lines, or the end. Cancel safe. Without `reads` only the end is waited for.
    pub(crate) async fn next(&mut self, reads: bool) -> Happened {
        match self {
            Self::Piped(piped) => piped.next(reads).await,
            Self::Served(connection) => connection.next(reads).await,
        }
    }

    /// The guard of the session's own process.
    pub(super) fn guard(&self) -> Option<Pid> {
        match self {
            Self::Piped(piped) => piped.process.guard_pid(),
            Self::Served(_) => None,
        }
    }

    /// The server, if the agent is one.
    pub(crate) fn server(&self) -> Option<&Arc<Server>> {
        match self {
            Self::Piped(_) => None,
            Self::Served(connection) => Some(connection.server()),
        }
    }
}

impl Piped {
    /// Starts the agent under a guard. `id` marks all of its processes.
    pub(crate) async fn start(
        config: &Config,
        agent: &Agent,
        (start, launch): (&Start, Launch),
        environment: &Environment,
        id: Uuid,
    ) -> Result<Self, String> {
        let root = std::path::Path::new(&start.directory);
        let root = root.canonicalize().map_err(|error| format!("{}: {error}", start.directory))?;
        let program = ensemble_process::find(&agent.program, config.search_path())?;
        write_private(launch.files).await?;
        let mut env = agent.env(environment);
        env.extend(launch.env);
        let args = agent.args.iter().cloned().chain(launch.args).chain(agent.last_args.iter().cloned());
        let what = process::Start {
            program,
            args: args.collect(),
            env,
            directory: Directory { root, below: std::path::PathBuf::new() },
            prompt: String::new(),
            interactive: true,
            door: None,
        };
        let (process, stdout, stderr) =
            Process::start(&config.process(), id, what).await.map_err(|error| error.to_string())?;
        let kept = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(keep_end(stderr, kept.clone()));
        let (lines, chunk) = (Lines::default(), vec![0; CHUNK]);
        Ok(Self { process, stdout, is_silent: false, lines, chunk, stderr: kept })
    }

    async fn write(&mut self, lines: &[String]) {
        for line in lines {
            self.process.write(&format!("{line}\n")).await;
        }
    }

    async fn next(&mut self, reads: bool) -> Happened {
        loop {
            tokio::select! {
                biased;
                read = self.stdout.read(&mut self.chunk), if reads && !self.is_silent => {
                    let mut found = Vec::new();
                    match self.chunk.get(..read.unwrap_or(0)).filter(|bytes| !bytes.is_empty()) {
                        Some(bytes) => self.lines.feed(bytes, |line| found.push(line)),
                        None => {
                            self.is_silent = true;
                            self.lines.finish(|line| found.push(line));
                        }
                    }
                    if !found.is_empty() {
                        return Happened::Lines(found);
                    }
                }
                exit = self.process.ended() => {
                    let rest = self.rest().await;
                    if !rest.is_empty() {
                        return Happened::Lines(rest);
                    }
                    return Happened::Ended(self.exit(exit));
                }
            }
        }
    }

    /// What the agent said last. Its pipe may stay open in a process that it has left behind.
    async fn rest(&mut self) -> Vec<Line> {
        let mut found = Vec::new();
        while !self.is_silent {
            match tokio::time::timeout(LAST_WORDS, self.stdout.read(&mut self.chunk)).await {
                Ok(Ok(read)) if read > 0 => {
                    let bytes = self.chunk.get(..read).unwrap_or_default();
                    self.lines.feed(bytes, |line| found.push(line));
                }
                _ => {
                    self.is_silent = true;
                    self.lines.finish(|line| found.push(line));
                }
            }
        }
        found
    }

    fn exit(&self, exit: Result<ensemble_process::Exit, String>) -> Exit {
        let said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        exit_of(exit, &String::from_utf8_lossy(&said))
    }
}

async fn write_private(files: BTreeMap<String, String>) -> Result<(), String> {
    let write = move || files.iter().try_for_each(|(path, text)| replace_text(Path::new(path), text));
    on_disk(write).await.map_err(|error| format!("a file for it cannot be written: {error}"))
}

/// How a process ended, and the end of its standard error.
pub(super) fn exit_of(exit: Result<ensemble_process::Exit, String>, stderr: &str) -> Exit {
    match exit {
        Ok(ensemble_process::Exit::Code(code)) => Exit { code: Some(code), stderr: stderr.to_owned() },
        Ok(_) => Exit { code: None, stderr: stderr.to_owned() },
        Err(why) => Exit { code: None, stderr: why },
    }
}

/// Reads standard error to its end and keeps the last part.
async fn keep_end(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; 4 << 10];
    while let Ok(read) = stderr.read(&mut chunk).await {
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(STDERR);
        kept.drain(..surplus);
    }
}
