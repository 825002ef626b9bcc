//! A provider's program under its guard, as the runner holds it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use ensemble_types::ids::LeaseId;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::config::Config;
use crate::guard::{Directory, Launch, Order, Report, STAGE, STOP};
use crate::provider::Exit;
use crate::strays;

/// What to start.
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) directory: Directory,
    pub(super) prompt: String,
}

/// A guard and what it guards.
pub(super) struct Process {
    lease: LeaseId,
    guard: Child,
    /// Closing it ends the attempt.
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    pid: Option<i32>,
    /// What the guard said last. Kept here, because whoever waits for the guard to go may be called away.
    end: Option<Result<Exit, String>>,
}

/// Descriptors that are being made must not slip into a guard that another thread is starting. Linux makes them
/// close-on-exec in one step, other systems in two.
static STARTING: Mutex<()> = Mutex::new(());

impl Process {
    pub(super) async fn start(
        config: &Config,
        lease: LeaseId,
        start: Start,
    ) -> std::io::Result<(Self, ChildStdout, ChildStderr)> {
        let (mut guard, ours) = spawn_guard(config, lease)?;
        let pipes = guard.stdout.take().zip(guard.stderr.take());
        let (stdout, stderr) = pipes.ok_or_else(|| std::io::Error::other("the guard has no pipes"))?;
        let (read, mut orders) = ours.into_split();
        let order = order(config, lease, start);
        let mut line = serde_json::to_vec(&order).map_err(std::io::Error::other)?;
        line.push(b'\n');
        orders.write_all(&line).await?;
        let reports = BufReader::new(read).lines();
        Ok((Self { lease, guard, orders, reports, pid: None, end: None }, stdout, stderr))
    }

    /// Orders the end. The guard goes on to KILL after this grace.
    pub(super) async fn stop(&mut self, grace: Duration) {
        let line = format!("{STOP} {}\n", grace.as_millis());
        // A guard that does not listen any more has ended or is ending.
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    /// Waits until nothing of the attempt is left. `Err`: it could not be started.
    ///
    /// Cancel safe: nothing is lost when the future is dropped and made anew.
    pub(super) async fn ended(&mut self) -> Result<Exit, String> {
        loop {
            if let Some(end) = &self.end {
                let _ = self.guard.wait().await;
                return end.clone();
            }
            let line = self.reports.next_line().await.ok().flatten();
            match line.as_deref().and_then(|line| serde_json::from_str(line).ok()) {
                Some(Report::Started { pid }) => self.pid = Some(pid),
                Some(Report::NotStarted { reason }) => self.end = Some(Err(reason)),
                Some(Report::Ended { code, signal }) => {
                    self.end = Some(Ok(match (code, signal) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        (None, None) => Exit::Unknown,
                    }));
                }
                None => return Ok(self.without_guard().await),
            }
        }
    }

    /// The guard has died without a word. What it guarded is ended here.
    async fn without_guard(&mut self) -> Exit {
        tracing::error!(lease.id = %self.lease, "A guard has died; ending what it guarded");
        let _ = self.guard.wait().await;
        if let Some(pid) = self.pid {
            // On Linux its leader died with the guard; the group may have others.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        strays::end(self.lease, Duration::ZERO).await;
        Exit::Unknown
    }
}

fn spawn_guard(config: &Config, lease: LeaseId) -> std::io::Result<(Child, UnixStream)> {
    let (program, args) = config.guard.split_first().ok_or_else(|| std::io::Error::other("no guard is configured"))?;
    let _alone = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let guard = Command::new(program)
        .args(args)
        .env_clear()
        .env(strays::MARK, lease.to_string())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok((guard, UnixStream::from_std(ours)?))
}

fn order(config: &Config, lease: LeaseId, start: Start) -> Order {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut env = start.env;
    env.insert(strays::MARK.to_owned(), lease.to_string());
    Order {
        stage: config.guard.iter().cloned().chain([STAGE.to_owned()]).collect(),
        launch: Launch {
            program: start.program,
            args: start.args,
            env: env.into_iter().collect(),
            directory: start.directory,
            limits: config.limits,
            no_new_privileges: !config.allow_new_privileges,
        },
        prompt: start.prompt,
        grace_ms: millis(config.timing.term_grace),
        leftover_grace_ms: millis(config.timing.leftover_grace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits looks after other things every second, and may do so just when the guard has spoken its last word
    /// and is about to leave.
    #[tokio::test]
    async fn the_last_word_of_a_guard_outlives_the_one_who_waits() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut staying = Command::new("cat");
        let mut guard = staying.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let leave = guard.stdin.take();
        let (read, orders) = ours.into_split();
        let reports = BufReader::new(read).lines();
        let mut process = Process { lease: LeaseId::generate(), guard, orders, reports, pid: None, end: None };
        let (_, mut says) = theirs.into_split();
        let mut word = serde_json::to_vec(&Report::Ended { code: Some(0), signal: None }).unwrap();
        word.push(b'\n');
        says.write_all(&word).await.unwrap();
        while process.end.is_none() {
            let waited = tokio::time::timeout(Duration::from_millis(20), process.ended()).await;
            assert!(waited.is_err(), "the guard is still there");
        }
        drop(leave);
        drop(says);
        assert!(matches!(process.ended().await, Ok(Exit::Code(0))));
    }
}
