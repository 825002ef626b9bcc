//! The guard's main loop: read the order, start the program, wait for the first reason to end it, end all its
//! processes.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::orders::{CLOSE, Launch, Order, Report, STOP, WRITE};
use super::signals;
use super::tree::Tree;

/// How often the guard checks whether the processes that received TERM have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often it repeats KILL: faster than processes can escape by forking.
const KILL_INTERVAL: Duration = Duration::from_millis(5);

const EXIT_FAILURE: i32 = 1;
/// Events that wait to be handled. A thread with one more waits.
const EVENTS: usize = 64;
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
    match Guard::set_up() {
        Ok(guard) => guard.run(),
        Err(error) => {
            eprintln!("the guard could not be set up: {error}");
            EXIT_FAILURE
        }
    }
}

struct Guard {
    runner: UnixStream,
    signals: SigSet,
}

impl Guard {
    fn set_up() -> std::io::Result<Self> {
        // This fails when the guard already leads a session, which is fine.
        let _ = nix::unistd::setsid();
        become_subreaper()?;
        let signals = signals::block()?;
        let runner = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Self { runner, signals })
    }

    fn run(self) -> i32 {
        let mut lines = match self.runner.try_clone() {
            Ok(socket) => BufReader::new(socket).lines(),
            Err(_) => return EXIT_FAILURE,
        };
        let order = lines.next().and_then(Result::ok).and_then(|line| serde_json::from_str::<Order>(&line).ok());
        let Some(order) = order else {
            self.report(&Report::NotStarted { reason: "the guard received no order".to_owned() });
            return EXIT_FAILURE;
        };
        let mut child = match start(&order) {
            Ok(child) => child,
            Err(error) => {
                self.report(&Report::NotStarted { reason: error.to_string() });
                return EXIT_FAILURE;
            }
        };
        let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        self.report(&Report::Started { pid: leader.as_raw() });
        let (writes, to_write) = mpsc::sync_channel(WRITES);
        feed(&mut child, &order.launch, order.prompt, to_write);

        let (events, received) = mpsc::sync_channel(EVENTS);
        listen(lines, events.clone(), order.interactive.then_some(writes));
        await_signals(self.signals, events.clone());
        reap(leader, events);
        let grace = Duration::from_millis(order.grace_ms);
        let leftover_grace = Duration::from_millis(order.leftover_grace_ms);
        let ended = end(leader, &received, grace, leftover_grace);
        self.report(&ended);
        0
    }

    /// Sends a report. A runner that has gone cannot receive it, and that is no reason to stop.
    fn report(&self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let _ = (&self.runner).write_all(&line);
        }
    }
}

fn start(order: &Order) -> std::io::Result<Child> {
    let (program, args) = order.stage.split_first().ok_or_else(|| std::io::Error::other("no program to start"))?;
    Command::new(program).args(args).env_clear().stdin(Stdio::piped()).process_group(0).spawn()
}

/// Writes the launch, the prompt and what follows on a separate thread, so that a program that does not read cannot block the
/// guard. The standard input is closed when nothing more can follow.
fn feed(child: &mut Child, launch: &Launch, prompt: String, to_write: Receiver<String>) {
    let Some(mut input) = child.stdin.take() else { return };
    let Ok(launch) = serde_json::to_vec(launch) else { return };
    thread::spawn(move || {
        let length = u32::try_from(launch.len()).unwrap_or(u32::MAX).to_be_bytes();
        // A program that ends without reading its prompt is judged by its exit.
        let mut written = input
            .write_all(&length)
            .and_then(|()| input.write_all(&launch))
            .and_then(|()| input.write_all(prompt.as_bytes()));
        while let (Ok(()), Ok(text)) = (&written, to_write.recv()) {
            written = input.write_all(text.as_bytes());
        }
    });
}

/// Reads the orders of the runner.
fn listen(
    lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
    events: SyncSender<Event>,
    mut writes: Option<SyncSender<String>>,
) {
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(grace) = line.strip_prefix(STOP) {
                let _ = events.send(Event::End(grace.trim().parse().ok().map(Duration::from_millis)));
            } else if let Some(text) = line.strip_prefix(WRITE) {
                let Ok(text) = serde_json::from_str::<String>(text) else { continue };
                // A program that has closed its input may go on; one that does not read it cannot.
                if let Some(Err(TrySendError::Full(_))) = writes.as_ref().map(|writes| writes.try_send(text)) {
                    let _ = events.send(Event::End(None));
                }
            } else if line == CLOSE {
                writes = None;
            }
        }
        let _ = events.send(Event::End(None));
    });
}

fn await_signals(signals: SigSet, events: SyncSender<Event>) {
    thread::spawn(move || {
        while signals.wait().is_ok() {
            let _ = events.send(Event::End(None));
        }
    });
}

/// Waits for every child on Linux. On other systems, where orphans are not adopted, waits for the started program.
fn reap(leader: Pid, events: SyncSender<Event>) {
    let target = if cfg!(target_os = "linux") { None } else { Some(leader) };
    thread::spawn(move || {
        loop {
            match waitpid(target, None) {
                Ok(status) => {
                    let _ = events.send(Event::Reaped(status));
                    if target.is_some() {
                        break;
                    }
                }
                Err(Errno::EINTR) => {}
                // No child is left. A subreaper only gets new children from its descendants.
                Err(_) => break,
            }
        }
        let _ = events.send(Event::NoChildren);
    });
}

/// Waits for a reason to end, ends all processes, and returns how the program ended.
fn end(leader: Pid, received: &Receiver<Event>, grace: Duration, leftover_grace: Duration) -> Report {
    let mut tree = Tree::of(leader);
    let mut ended = None;
    let mut timeout = None;
    while ended.is_none() && timeout.is_none() {
        match received.recv() {
            Ok(Event::Reaped(status)) => ended = exit_of(leader, status),
            Ok(Event::End(wanted)) => timeout = Some(wanted.unwrap_or(grace)),
            Ok(Event::NoChildren) => tree.no_children_left(),
            Err(_) => timeout = Some(grace),
        }
    }
    if ended.is_some() {
        tree.leader_ended();
    }
    tree.signal(Signal::SIGTERM);
    let mut deadline = Instant::now() + timeout.unwrap_or(leftover_grace);
    loop {
        if let Some(ended) = ended.as_ref().filter(|_| tree.is_empty()) {
            return Report::clone(ended);
        }
        let killing = Instant::now() >= deadline;
        match received.recv_timeout(if killing { KILL_INTERVAL } else { POLL_INTERVAL }) {
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

fn exit_of(leader: Pid, status: WaitStatus) -> Option<Report> {
    match status {
        WaitStatus::Exited(pid, code) if pid == leader => Some(Report::Ended { code: Some(code), signal: None }),
        WaitStatus::Signaled(pid, signal, _) if pid == leader => {
            Some(Report::Ended { code: None, signal: Some(signal as i32) })
        }
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
