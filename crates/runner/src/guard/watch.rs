//! The guard's life: take the order, start the program, wait for the first reason to end it, leave nothing behind.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::orders::{Launch, Order, Report, STOP};
use super::signals;
use super::tree::Tree;

/// How often the guard looks whether the processes that it asked to end are gone.
const LOOK: Duration = Duration::from_millis(50);

/// How often it looks for those that are to be killed: quicker than they can fork away for long.
const CHASE: Duration = Duration::from_millis(5);

const EXIT_FAILURE: i32 = 1;

/// What can happen to a guard.
enum News {
    /// The runner said stop, with this grace, or is gone, or the guard itself was told to end.
    End(Option<Duration>),
    /// A child, adopted or own, ended.
    Reaped(WaitStatus),
    /// There is no child any more.
    Alone,
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
        // Leading a session already is as good.
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
            self.tell(&Report::NotStarted { reason: "the guard got no order".to_owned() });
            return EXIT_FAILURE;
        };
        let mut child = match start(&order) {
            Ok(child) => child,
            Err(error) => {
                self.tell(&Report::NotStarted { reason: error.to_string() });
                return EXIT_FAILURE;
            }
        };
        let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        self.tell(&Report::Started { pid: leader.as_raw() });
        feed(&mut child, &order.launch, order.prompt);

        let (news, told) = mpsc::channel();
        listen(lines, news.clone());
        await_signals(self.signals, news.clone());
        reap(leader, news);
        let grace = Duration::from_millis(order.grace_ms);
        let leftover_grace = Duration::from_millis(order.leftover_grace_ms);
        let ended = end(leader, &told, grace, leftover_grace);
        self.tell(&ended);
        0
    }

    /// A runner that is gone does not hear it, and that is no reason to stop.
    fn tell(&self, report: &Report) {
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

/// Writes the launch and the prompt, from a thread of its own: a program that does not read must not stop the guard.
fn feed(child: &mut Child, launch: &Launch, prompt: String) {
    let Some(mut input) = child.stdin.take() else { return };
    let Ok(launch) = serde_json::to_vec(launch) else { return };
    thread::spawn(move || {
        let length = u32::try_from(launch.len()).unwrap_or(u32::MAX).to_be_bytes();
        // A program that ends without reading its prompt is judged by its end.
        let _ = input
            .write_all(&length)
            .and_then(|()| input.write_all(&launch))
            .and_then(|()| input.write_all(prompt.as_bytes()));
    });
}

fn listen(lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static, news: Sender<News>) {
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(grace) = line.strip_prefix(STOP) {
                let _ = news.send(News::End(grace.trim().parse().ok().map(Duration::from_millis)));
            }
        }
        let _ = news.send(News::End(None));
    });
}

fn await_signals(signals: SigSet, news: Sender<News>) {
    thread::spawn(move || {
        while signals.wait().is_ok() {
            let _ = news.send(News::End(None));
        }
    });
}

/// Waits for every child until there is none, or, where nothing is adopted, for the one that was started.
fn reap(leader: Pid, news: Sender<News>) {
    let whom = if cfg!(target_os = "linux") { None } else { Some(leader) };
    thread::spawn(move || {
        loop {
            match waitpid(whom, None) {
                Ok(status) => {
                    let _ = news.send(News::Reaped(status));
                    if whom.is_some() {
                        break;
                    }
                }
                Err(Errno::EINTR) => {}
                // None is left. A subreaper can only get new ones from those it has.
                Err(_) => break,
            }
        }
        let _ = news.send(News::Alone);
    });
}

/// Waits for a reason, ends the tree, and says how the program ended.
fn end(leader: Pid, told: &Receiver<News>, grace: Duration, leftover_grace: Duration) -> Report {
    let mut tree = Tree::led_by(leader);
    let mut ended = None;
    let mut timeout = None;
    while ended.is_none() && timeout.is_none() {
        match told.recv() {
            Ok(News::Reaped(status)) => ended = how(leader, status),
            Ok(News::End(wanted)) => timeout = Some(wanted.unwrap_or(grace)),
            Ok(News::Alone) => tree.nobody_is_left(),
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
        let chasing = Instant::now() >= deadline;
        match told.recv_timeout(if chasing { CHASE } else { LOOK }) {
            Ok(News::Reaped(status)) => ended = ended.or(how(leader, status)),
            // A second order may be more urgent than the first, never less.
            Ok(News::End(Some(wanted))) => deadline = deadline.min(Instant::now() + wanted),
            Ok(News::Alone) => tree.nobody_is_left(),
            Ok(News::End(None)) | Err(_) => {}
        }
        if ended.is_some() {
            tree.leader_ended();
        }
        if Instant::now() >= deadline {
            // Again and again: what forks while it is being looked for is found in the next round.
            tree.signal(Signal::SIGKILL);
        }
    }
}

fn how(leader: Pid, status: WaitStatus) -> Option<Report> {
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
