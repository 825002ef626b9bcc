//! The runner's side of a guard and the agent's program under it.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use uuid::Uuid;

use crate::guard::{CLOSE, Directory, Launch, Limits, Order, Report, STAGE, STAY, STOP, WRITE};
use crate::orphans;

/// How guards and programs are started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command that runs [`crate::run_if_guard`].
    pub guard: Vec<String>,
    /// Limits on each process of an attempt.
    pub limits: Limits,
    /// Allows programs to gain rights through set-user-id programs such as `sudo`.
    pub allow_new_privileges: bool,
    /// Between TERM and KILL when the end is not ordered.
    pub term_grace: Duration,
    /// The same for processes that are left after the program has exited.
    pub leftover_grace: Duration,
    /// The folder of temporary files that programs inherit, where there is one.
    pub temporary: Option<String>,
}

/// How the program's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// The exit was not observed.
    Unknown,
}

/// What to start.
pub struct Start {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub directory: Directory,
    pub prompt: String,
    /// The standard input stays open, for [`Process::write`].
    pub interactive: bool,
    /// Where another runner takes the program over. See [`Process::stay`].
    pub door: Option<PathBuf>,
}

/// The guard's process.
enum Guard {
    Ours(Child),
    /// Another runner has started it.
    Adopted(Option<Pid>),
}

/// A guard and the program under it.
pub struct Process {
    /// The lease or the start of a session that it is for. Every process of it has it in its environment.
    id: Uuid,
    guard: Guard,
    /// Closing it ends the attempt.
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    pid: Option<i32>,
    /// The guard's last report. It is stored here because the future that waits for the guard may be dropped and
    /// created again.
    end: Option<Result<Exit, String>>,
    /// The end of the program's standard error, where the guard keeps it.
    said: String,
}

/// Only one guard is started at a time, so that a new descriptor is not inherited by another guard. Linux sets
/// close-on-exec when it creates a descriptor; other systems set it in a second step.
static STARTING: Mutex<()> = Mutex::new(());

/// What the allocator of the whole program does in a guard, which does little: it gives a long order back at once, and keeps no
/// memory for other threads (jemalloc.net, "TUNING"). Other allocators ignore it.
const ALLOCATOR: (&str, &str) =
    ("MALLOC_CONF", "background_thread:false,narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0");

impl Process {
    pub async fn start(
        settings: &Settings,
        id: Uuid,
        start: Start,
    ) -> std::io::Result<(Self, ChildStdout, ChildStderr)> {
        let (mut guard, ours) = spawn_guard(settings, id, Stdio::piped)?;
        let pipes = guard.stdout.take().zip(guard.stderr.take());
        let (stdout, stderr) = pipes.ok_or_else(|| std::io::Error::other("the guard has no pipes"))?;
        let process = Self::of(id, Guard::Ours(guard), ours, Some(order(settings, id, start))).await?;
        Ok((process, stdout, stderr))
    }

    /// Starts a program that may outlive this one: none of its pipes leads here.
    pub async fn serve(settings: &Settings, id: Uuid, start: Start) -> std::io::Result<Self> {
        let (guard, ours) = spawn_guard(settings, id, Stdio::null)?;
        Self::of(id, Guard::Ours(guard), ours, Some(order(settings, id, start))).await
    }

    /// Takes a program over whose guard listens here.
    pub async fn adopt(id: Uuid, stream: UnixStream) -> std::io::Result<Self> {
        let pid = stream.peer_cred()?.pid().map(Pid::from_raw);
        Self::of(id, Guard::Adopted(pid), stream, None).await
    }

    async fn of(id: Uuid, guard: Guard, socket: UnixStream, order: Option<Order>) -> std::io::Result<Self> {
        let (read, mut orders) = socket.into_split();
        if let Some(order) = order {
            let mut line = serde_json::to_vec(&order).map_err(std::io::Error::other)?;
            line.push(b'\n');
            orders.write_all(&line).await?;
        }
        let reports = BufReader::new(read).lines();
        Ok(Self { id, guard, orders, reports, pid: None, end: None, said: String::new() })
    }

    /// Lets the program continue without this process. Another process has to take it over within this time.
    ///
    /// # Errors
    /// The guard does not agree, and the program ends with this process.
    pub async fn stay(&mut self, time: Duration) -> std::io::Result<()> {
        self.orders.write_all(format!("{STAY} {}\n", time.as_millis()).as_bytes()).await?;
        while let Some(line) = self.reports.next_line().await? {
            match serde_json::from_str(&line) {
                Ok(Report::Stays) => return Ok(()),
                Ok(Report::Started { pid }) => self.pid = Some(pid),
                _ => break,
            }
        }
        Err(std::io::Error::other("the guard does not stay"))
    }

    /// The end of the program's standard error, where the guard keeps it. Known when it has ended.
    pub fn said(&self) -> &str {
        &self.said
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    pub fn guard_pid(&self) -> Option<Pid> {
        match &self.guard {
            Guard::Ours(guard) => guard.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw),
            Guard::Adopted(pid) => *pid,
        }
    }

    /// Orders the guard to end the attempt. The guard sends KILL after this grace period.
    pub async fn stop(&mut self, grace: Duration) {
        let line = format!("{STOP} {}\n", grace.as_millis());
        // A guard that no longer reads has ended or is ending.
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    /// Writes to the standard input of an interactive program. A program that has ended ignores it.
    ///
    /// Not cancel safe: a call that is dropped may have written a part of the text.
    pub async fn write(&mut self, text: &str) {
        let Ok(text) = serde_json::to_string(text) else { return };
        let _ = self.orders.write_all(format!("{WRITE} {text}\n").as_bytes()).await;
    }

    /// Closes the standard input of an interactive program.
    pub async fn close_input(&mut self) {
        let _ = self.orders.write_all(format!("{CLOSE}\n").as_bytes()).await;
    }

    /// Kills a guard that does not answer. Its program ends with it (Linux), or by its process group.
    pub fn kill_guard(&mut self) {
        // A guard that has ended already is what is wanted.
        match &mut self.guard {
            Guard::Ours(guard) => drop(guard.start_kill()),
            Guard::Adopted(Some(pid)) => drop(nix::sys::signal::kill(*pid, Signal::SIGKILL)),
            Guard::Adopted(None) => {}
        }
    }

    /// Waits until no process of the attempt is left. `Err`: the program could not be started.
    ///
    /// Cancel safe: nothing is lost when the future is dropped and created again.
    pub async fn ended(&mut self) -> Result<Exit, String> {
        loop {
            if let Some(end) = &self.end {
                let end = end.clone();
                self.guard_ends().await;
                return end;
            }
            let line = self.reports.next_line().await.ok().flatten();
            match line.as_deref().and_then(|line| serde_json::from_str(line).ok()) {
                Some(Report::Started { pid }) => self.pid = Some(pid),
                Some(Report::NotStarted { reason }) => self.end = Some(Err(reason)),
                Some(Report::Stays) => {}
                Some(Report::Ended { code, signal, said }) => {
                    self.said = said;
                    self.end = Some(Ok(match (code, signal) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        (None, None) => Exit::Unknown,
                    }));
                }
                None => return Ok(self.after_guard_death().await),
            }
        }
    }

    async fn guard_ends(&mut self) {
        if let Guard::Ours(guard) = &mut self.guard {
            let _ = guard.wait().await;
        }
    }

    /// Ends what is left after the guard died without a report.
    async fn after_guard_death(&mut self) -> Exit {
        tracing::error!(attempt.id = %self.id, "A guard died; ending its attempt");
        self.guard_ends().await;
        if let Some(pid) = self.pid {
            // On Linux the program died with the guard, but its process group may have other members.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        orphans::end(self.id, Duration::ZERO).await;
        Exit::Unknown
    }
}

fn spawn_guard(settings: &Settings, id: Uuid, output: fn() -> Stdio) -> std::io::Result<(Child, UnixStream)> {
    let (program, args) =
        settings.guard.split_first().ok_or_else(|| std::io::Error::other("no guard is configured"))?;
    let _alone = STARTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let guard = Command::new(program)
        .args(args)
        .env_clear()
        .env(orphans::LEASE_VARIABLE, id.to_string())
        .env(ALLOCATOR.0, ALLOCATOR.1)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(output())
        .stderr(output())
        .spawn()?;
    if let Some(stdout) = &guard.stdout {
        widen(stdout);
    }
    Ok((guard, UnixStream::from_std(ours)?))
}

/// Makes room in a pipe: Claude Code ends before its last output is written when the reader is late by more than the 64 KiB of
/// a usual pipe. What a system does not allow stays as it is (pipe(7), "Pipe capacity").
#[cfg(target_os = "linux")]
fn widen(pipe: &ChildStdout) {
    const MOST_WITHOUT_PRIVILEGES: nix::libc::c_int = 1 << 20;
    let _ = nix::fcntl::fcntl(pipe, nix::fcntl::FcntlArg::F_SETPIPE_SZ(MOST_WITHOUT_PRIVILEGES));
}

#[cfg(not(target_os = "linux"))]
fn widen(_: &ChildStdout) {}

/// Makes a folder for the temporary files of a program: some leave megabytes at each start. `None`: it cannot be made, or the
/// configuration gives the program one.
fn scratch(settings: &Settings, id: Uuid, given: Option<&String>) -> Option<PathBuf> {
    let inherited = settings.temporary.as_ref();
    if given.is_some() && given != inherited {
        return None;
    }
    // Paths of sockets in it are short.
    let name: String = id.simple().to_string().chars().rev().take(12).collect();
    let path = inherited.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from).join(format!("ensemble-{name}"));
    DirBuilder::new().mode(0o700).create(&path).ok()?;
    Some(path)
}

fn order(settings: &Settings, id: Uuid, start: Start) -> Order {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut env = start.env;
    let scratch = scratch(settings, id, env.get("TMPDIR"));
    if let Some(path) = scratch.as_ref().and_then(|path| path.to_str()) {
        env.insert("TMPDIR".to_owned(), path.to_owned());
    }
    env.insert(orphans::LEASE_VARIABLE.to_owned(), id.to_string());
    Order {
        stage: settings.guard.iter().cloned().chain([STAGE.to_owned()]).collect(),
        launch: Launch {
            program: start.program,
            args: start.args,
            env: env.into_iter().collect(),
            directory: start.directory,
            limits: settings.limits,
            no_new_privileges: !settings.allow_new_privileges,
        },
        prompt: start.prompt,
        interactive: start.interactive,
        door: start.door,
        scratch,
        grace_ms: millis(settings.term_grace),
        leftover_grace_ms: millis(settings.leftover_grace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The supervisor interrupts its wait once a second for other work. That can happen between the guard's last report
    /// and its exit.
    #[tokio::test]
    async fn the_last_report_survives_a_cancelled_wait() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut staying = Command::new("cat");
        let mut guard = staying.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let guard_input = guard.stdin.take();
        let (read, orders) = ours.into_split();
        let reports = BufReader::new(read).lines();
        let (id, guard) = (Uuid::nil(), Guard::Ours(guard));
        let mut process = Process { id, guard, orders, reports, pid: None, end: None, said: String::new() };
        let (_, mut guard_end) = theirs.into_split();
        let mut line = serde_json::to_vec(&Report::Ended { code: Some(0), signal: None, said: String::new() }).unwrap();
        line.push(b'\n');
        guard_end.write_all(&line).await.unwrap();
        while process.end.is_none() {
            let waited = tokio::time::timeout(Duration::from_millis(20), process.ended()).await;
            assert!(waited.is_err(), "the guard is still there");
        }
        drop(guard_input);
        drop(guard_end);
        assert!(matches!(process.ended().await, Ok(Exit::Code(0))));
    }
}
