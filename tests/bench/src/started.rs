//! The processes that this one has started, and those that have been started by them: services, load generators, a host in the background
//! with its guards and agents. They end when a row has ended, however it ended, and when the benchmark is interrupted.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Between two looks at the processes. What one process was just starting is seen by the second look.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const END_WITHIN: Duration = Duration::from_secs(10);
/// The exit code of a program that SIGINT has ended, as shells give it.
const INTERRUPTED: i32 = 130;

/// Whether nothing may be started any more.
pub(crate) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(SeqCst)
}

/// Does not return when this process is about to end.
pub(crate) fn wait_if_interrupted() {
    while is_interrupted() {
        std::thread::park();
    }
}

/// From now on a process whose parent has ended becomes a child of this one. SIGINT, SIGTERM and SIGHUP end all of them, remove the
/// folder and end this process.
///
/// # Errors
/// The system does not allow it.
pub(crate) fn end_when_interrupted(folder: PathBuf) -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        IS_INTERRUPTED.store(true, SeqCst);
        eprintln!("interrupted: ending what was started");
        if let Err(error) = end_all() {
            eprintln!("{error:#}");
        }
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            eprintln!("{}: {error}", folder.display());
        }
        std::process::exit(INTERRUPTED);
    });
    Ok(())
}

/// Ends everything that is left.
///
/// # Errors
/// Some processes do not end.
pub(crate) fn end_all() -> Result<()> {
    let begun = Instant::now();
    let mut looks_without = 0;
    while looks_without < 2 {
        let left = descendants()?;
        ensure!(left.is_empty() || begun.elapsed() < END_WITHIN, "processes that do not end: {left:?}");
        looks_without = if left.is_empty() { looks_without + 1 } else { 0 };
        for pid in left {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The processes that this one has started.
///
/// # Errors
/// The processes cannot be read.
pub(crate) fn children(parent: u32) -> Result<Vec<u32>> {
    Ok(processes()?.into_iter().filter(|process| process.1 == parent).map(|process| process.0).collect())
}

fn descendants() -> Result<Vec<u32>> {
    let processes = processes()?;
    let mut found = vec![std::process::id()];
    let mut seen: HashSet<u32> = found.iter().copied().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(processes.iter().filter(|process| process.1 == parent && seen.insert(process.0)).map(|of| of.0));
        at += 1;
    }
    Ok(found.split_off(1))
}

/// The processes that run, each with its parent (proc(5)).
fn processes() -> Result<Vec<(u32, u32)>> {
    let entries = std::fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A process may end while it is looked at.
    let running = pids.filter_map(|pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        // Z: it has ended, and its parent has not asked how.
        (!field("State:")?.trim().starts_with('Z')).then_some((pid, field("PPid:")?.trim().parse().ok()?))
    });
    Ok(running.collect())
}
