//! The process of an agent with its pipes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ensemble_agent::{Exit, Launch, Line, Lines};
use ensemble_process::disk::{on_disk, replace_text};
use ensemble_process::{self as process, Directory, Process};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::Known;
use crate::settings::{Environment, Settings};

const CHUNK: usize = 64 << 10;
/// What is kept of standard error.
const STDERR: usize = 8 << 10;
/// How long more is waited for when the process has ended. A process that left its group may hold the pipes open.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the pipes are read in all when it has ended. An answer of many megabytes needs some time.
const ALL_LAST_WORDS: Duration = Duration::from_secs(60);

/// The process of one agent for one session or one task.
pub(crate) struct Piped {
    process: Process,
    stdout: ChildStdout,
    /// The output has ended, or is not waited for any more.
    is_silent: bool,
    lines: Lines,
    chunk: Vec<u8>,
    stderr: Arc<Mutex<Vec<u8>>>,
    reads_stderr: Option<JoinHandle<()>>,
    /// How the process has ended, and until when its pipes are read.
    ended: Option<(Result<process::Exit, String>, Instant)>,
}

/// How an agent is started. Its variables count more than all others.
pub struct How {
    pub launch: Launch,
    pub directory: Directory,
    pub env: BTreeMap<String, String>,
}

/// What has happened to a running agent.
pub enum Happened {
    Lines(Vec<Line>),
    Ended(Exit),
}

impl Piped {
    /// Starts the agent under a guard. `id` marks all of its processes.
    pub(crate) async fn start(
        settings: &Settings,
        known: &Known,
        how: How,
        environment: &Environment,
        id: Uuid,
    ) -> Result<Self, String> {
        let How { launch, directory, env: own } = how;
        let program = known.find(&settings.environment, Some(&directory.root.join(&directory.below)))?;
        write_private(launch.files).await?;
        let mut env = known.env(environment, &launch.env);
        env.extend(own);
        let args = known.args.iter().cloned().chain(launch.args).chain(known.last_args.iter().cloned());
        let (args, prompt) = (args.collect(), String::new());
        let what = process::Start { program, args, env, directory, prompt, interactive: true, door: None };
        let (process, stdout, stderr) =
            Process::start(&settings.process, id, what).await.map_err(|error| error.to_string())?;
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reads_stderr = Some(tokio::spawn(keep_end(stderr, kept.clone())));
        let (lines, chunk) = (Lines::default(), vec![0; CHUNK]);
        Ok(Self { process, stdout, is_silent: false, lines, chunk, stderr: kept, reads_stderr, ended: None })
    }

    pub(crate) async fn write(&mut self, lines: &[String]) {
        for line in lines {
            self.process.write(&format!("{line}\n")).await;
        }
    }

    pub(crate) async fn close_input(&mut self) {
        self.process.close_input().await;
    }

    /// Ends the agent and all that it has started.
    pub(crate) async fn stop(&mut self, grace: Duration) {
        self.process.stop(grace).await;
    }

    /// Ends the guard itself, and with it the agent.
    pub(crate) fn kill(&mut self) {
        self.process.kill_guard();
    }

    pub(crate) fn guard(&self) -> Option<Pid> {
        self.process.guard_pid()
    }

    /// How the process has ended. The error says why it was not started.
    pub(crate) fn exit(&self) -> Option<&Result<process::Exit, String>> {
        self.ended.as_ref().map(|(exit, _)| exit)
    }

    /// The next lines, or the end. Cancel safe. Without `reads` only the end is waited for, and then what was said last.
    pub(crate) async fn next(&mut self, reads: bool) -> Happened {
        loop {
            let mut found = Vec::new();
            let read = match &self.ended {
                Some((_, until)) if !self.is_silent => {
                    let until = (*until).min(Instant::now() + LAST_WORDS);
                    timeout_at(until, self.stdout.read(&mut self.chunk)).await.ok().and_then(Result::ok).unwrap_or(0)
                }
                Some((exit, _)) => {
                    let exit = exit.clone();
                    return Happened::Ended(self.last_words(exit).await);
                }
                None => tokio::select! {
                    biased;
                    read = self.stdout.read(&mut self.chunk), if reads && !self.is_silent => read.unwrap_or(0),
                    exit = self.process.ended() => {
                        self.ended = Some((exit, Instant::now() + ALL_LAST_WORDS));
                        continue;
                    }
                },
            };
            match self.chunk.get(..read).filter(|bytes| !bytes.is_empty()) {
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
    }

    async fn last_words(&mut self, exit: Result<process::Exit, String>) -> Exit {
        if let Some(reads) = &mut self.reads_stderr {
            // What was read before this time is all there is.
            let _ = timeout(LAST_WORDS, reads).await;
            self.reads_stderr = None;
        }
        let said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        exit_of(exit, &String::from_utf8_lossy(&said))
    }
}

async fn write_private(files: BTreeMap<String, String>) -> Result<(), String> {
    let write = move || files.iter().try_for_each(|(path, text)| replace_text(Path::new(path), text));
    on_disk(write).await.map_err(|error| format!("a file for it cannot be written: {error}"))
}

/// How a process ended, and the end of its standard error.
pub(crate) fn exit_of(exit: Result<process::Exit, String>, stderr: &str) -> Exit {
    match exit {
        Ok(process::Exit::Code(code)) => Exit { code: Some(code), stderr: stderr.to_owned() },
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
