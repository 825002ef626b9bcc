//! The guard's main loop: read the order, start the program, wait for the first reason to end it, end all its
//! processes.
//!
//! Each agent has a guard, which lives as long as the agent. So one thread does everything: each further thread would
//! take more memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};

use super::door::{Door, Said};
use super::orders::{CLOSE, Launch, Order, Report, STAY, STOP, WRITE};
use super::signals::Ending;
use super::tree::Tree;

/// How often the guard checks whether the processes that received TERM have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often it repeats KILL: faster than processes can escape by forking.
const KILL_INTERVAL: Duration = Duration::from_millis(5);

const EXIT_FAILURE: i32 = 1;
/// Texts that wait until an interactive program reads them. A program with one more does not read, and is ended.
const WRITES: usize = 256;

/// An event that the guard waits for.
enum Event {
    /// End the attempt with this grace period: the runner ordered it or has gone, or the guard received a signal.
    End(Option<Duration>),
    /// A child ended, its own or an adopted one.
    Reaped(WaitStatus),
    /// No child is left.
    NoChildren,
}

pub(super) fn watch() -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, guard())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the guard could not be set up: {error}");
            EXIT_FAILURE
        }
    }
}

async fn guard() -> io::Result<i32> {
    // This fails when the guard already leads a session, which is fine.
    let _ = nix::unistd::setsid();
    become_subreaper()?;
    // Before there is a child, so that none is missed.
    let (ending, children) = (Ending::new()?, unix::signal(SignalKind::child())?);
    let socket = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let (read, mut runner) = UnixStream::from_std(socket)?.into_split();
    let mut lines = BufReader::new(read).lines();
    let order = lines.next_line().await.ok().flatten();
    let Some(order) = order.and_then(|line| serde_json::from_str::<Order>(&line).ok()) else {
        report(&mut runner, &Report::NotStarted { reason: "the guard received no order".to_owned() }).await;
        return Ok(EXIT_FAILURE);
    };
    let mut child = match start(&order) {
        Ok(child) => child,
        Err(error) => {
            report(&mut runner, &Report::NotStarted { reason: error.to_string() }).await;
            return Ok(EXIT_FAILURE);
        }
    };
    let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    report(&mut runner, &Report::Started { pid: leader.as_raw() }).await;
    let (writes, to_write) = mpsc::channel(WRITES);
    let said = Said::default();
    if let Some(stderr) = child.stderr.take() {
        tokio::task::spawn_local(said.clone().keep(pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?));
    }
    let Order { launch, prompt, interactive, grace_ms, leftover_grace_ms, door, scratch, .. } = order;
    feed(&mut child, &launch, prompt, to_write);
    drop(launch);
    let writes = interactive.then_some(writes);
    let at = NextRunner { path: door, open: None };
    let mut events =
        Events { lines: Some(lines), runner, at, said, writes, ending, children, leader, reaped: VecDeque::new() };
    let ended = events.end(Duration::from_millis(grace_ms), Duration::from_millis(leftover_grace_ms)).await;
    if let Some(scratch) = scratch {
        // Symbolic links in it are removed, not followed. What cannot be removed is left.
        let _ = std::fs::remove_dir_all(scratch);
    }
    report(&mut events.runner, &ended).await;
    Ok(0)
}

/// Sends a report. A runner that has gone cannot receive it, and that is no reason to stop.
async fn report(runner: &mut OwnedWriteHalf, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = runner.write_all(&line).await;
    }
}

fn start(order: &Order) -> io::Result<Child> {
    let (program, args) = order.stage.split_first().ok_or_else(|| io::Error::other("no program to start"))?;
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).process_group(0);
    if order.door.is_some() {
        // The runner's pipes would break with it.
        command.stdout(Stdio::null()).stderr(Stdio::piped());
    }
    command.spawn()
}

/// Writes the launch, the prompt and what follows in a separate task, so that a program that does not read cannot block the
/// guard. The standard input is closed when nothing more can follow.
fn feed(child: &mut Child, launch: &Launch, prompt: String, mut to_write: Receiver<String>) {
    let Some(input) = child.stdin.take() else { return };
    let Ok(mut input) = pipe::Sender::from_owned_fd(OwnedFd::from(input)) else { return };
    let Ok(launch) = serde_json::to_vec(launch) else { return };
    tokio::spawn(async move {
        let length = u32::try_from(launch.len()).unwrap_or(u32::MAX).to_be_bytes();
        // A program that ends without reading its prompt is judged by its exit.
        for first in [&length, launch.as_slice(), prompt.as_bytes()] {
            if input.write_all(first).await.is_err() {
                return;
            }
        }
        drop((launch, prompt));
        while let Some(text) = to_write.recv().await {
            if input.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    });
}

/// Where another runner may take over.
struct NextRunner {
    path: Option<PathBuf>,
    open: Option<Door>,
}

/// What the guard waits for while the program runs.
struct Events {
    /// The orders of the runner, until it has gone.
    lines: Option<Lines<BufReader<OwnedReadHalf>>>,
    runner: OwnedWriteHalf,
    at: NextRunner,
    said: Said,
    /// For the standard input of an interactive program, until it is closed.
    writes: Option<Sender<String>>,
    ending: Ending,
    children: unix::Signal,
    leader: Pid,
    reaped: VecDeque<Event>,
}

impl Events {
    /// The next event. Cancel safe.
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.reaped.pop_front() {
                return event;
            }
            tokio::select! {
                line = next_line(&mut self.lines) => match line {
                    Some(line) => {
                        if let Some(end) = self.order(&line).await {
                            return end;
                        }
                    }
                    None => {
                        self.lines = None;
                        if self.at.open.is_none() {
                            return Event::End(None);
                        }
                    }
                },
                next = next_runner(&self.at.open), if self.lines.is_none() => {
                    self.at.open = None;
                    match next {
                        Some(stream) => self.serve(stream).await,
                        None => return Event::End(None),
                    }
                }
                () = self.ending.received() => return Event::End(None),
                _ = self.children.recv() => self.reap(),
            }
        }
    }

    /// Takes the orders of another runner.
    async fn serve(&mut self, stream: UnixStream) {
        let (read, write) = stream.into_split();
        (self.lines, self.runner) = (Some(BufReader::new(read).lines()), write);
        report(&mut self.runner, &Report::Started { pid: self.leader.as_raw() }).await;
    }

    /// Carries out an order of the runner.
    async fn order(&mut self, line: &str) -> Option<Event> {
        if let Some(time) = line.strip_prefix(STAY) {
            let time = time.trim().parse().ok().map(Duration::from_millis);
            let opened = self.at.path.as_ref().zip(time).and_then(|(path, time)| Door::open(path, time).ok());
            if opened.is_some() {
                self.at.open = opened;
                report(&mut self.runner, &Report::Stays).await;
            }
            return None;
        }
        if let Some(grace) = line.strip_prefix(STOP) {
            return Some(Event::End(grace.trim().parse().ok().map(Duration::from_millis)));
        }
        if let Some(text) = line.strip_prefix(WRITE) {
            let text = serde_json::from_str::<String>(text).ok()?;
            // A program that has closed its input may continue; one that does not read it may not.
            let written = self.writes.as_ref().map(|writes| writes.try_send(text));
            return matches!(written, Some(Err(TrySendError::Full(_)))).then_some(Event::End(None));
        }
        if line == CLOSE {
            self.writes = None;
        }
        None
    }

    /// Notes every child that has ended on Linux. On other systems, where orphans are not adopted, only the started program.
    fn reap(&mut self) {
        let target = if cfg!(target_os = "linux") { None } else { Some(self.leader) };
        loop {
            match waitpid(target, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return,
                Ok(status) => self.reaped.push_back(Event::Reaped(status)),
                Err(Errno::EINTR) => {}
                // No child is left. A subreaper only gets new children from its descendants.
                Err(_) => return self.reaped.push_back(Event::NoChildren),
            }
        }
    }

    /// Waits for a reason to end, ends all processes, and returns how the program ended.
    async fn end(&mut self, grace: Duration, leftover_grace: Duration) -> Report {
        let leader = self.leader;
        let mut tree = Tree::of(leader);
        let mut ended = None;
        let mut wanted = None;
        while ended.is_none() && wanted.is_none() {
            match self.next().await {
                Event::Reaped(status) => ended = exit_of(leader, status),
                Event::End(period) => wanted = Some(period.unwrap_or(grace)),
                Event::NoChildren => tree.no_children_left(),
            }
        }
        if ended.is_some() {
            tree.leader_ended();
        }
        tree.signal(Signal::SIGTERM);
        let mut deadline = Instant::now() + wanted.unwrap_or(leftover_grace);
        loop {
            if let Some((code, signal)) = ended.filter(|_| tree.is_empty()) {
                return Report::Ended { code, signal, said: self.said.text() };
            }
            let killing = Instant::now() >= deadline;
            match timeout(if killing { KILL_INTERVAL } else { POLL_INTERVAL }, self.next()).await {
                Ok(Event::Reaped(status)) => ended = ended.or(exit_of(leader, status)),
                // A second order may shorten the grace period but not extend it.
                Ok(Event::End(Some(wanted))) => deadline = deadline.min(Instant::now() + wanted),
                Ok(Event::NoChildren) => tree.no_children_left(),
                Ok(Event::End(None)) | Err(_) => {}
            }
            if ended.is_some() {
                tree.leader_ended();
            }
            if Instant::now() >= deadline {
                // Repeated on purpose: a process that forks during one scan is found by the next.
                tree.signal(Signal::SIGKILL);
            }
        }
    }
}

async fn next_runner(door: &Option<Door>) -> Option<UnixStream> {
    match door {
        Some(door) => door.next().await,
        None => std::future::pending().await,
    }
}

/// The next order. Never resolves without a runner.
async fn next_line(lines: &mut Option<Lines<BufReader<OwnedReadHalf>>>) -> Option<String> {
    match lines {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// The code or the signal with which the program ended.
fn exit_of(leader: Pid, status: WaitStatus) -> Option<(Option<i32>, Option<i32>)> {
    match status {
        WaitStatus::Exited(pid, code) if pid == leader => Some((Some(code), None)),
        WaitStatus::Signaled(pid, signal, _) if pid == leader => Some((None, Some(signal as i32))),
        _ => None,
    }
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> nix::Result<()> {
    Ok(())
}
