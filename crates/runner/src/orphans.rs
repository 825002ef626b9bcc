//! Processes of attempts that lost their guard: found by a variable that all of them inherit.
//!
//! Normally there are none. A guard ends its attempt even when the runner was killed outright; only when the guard
//! was killed as well can something be left.

use std::time::Duration;

use ensemble_types::ids::LeaseId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable. Every process of an attempt has it, the guard too.
pub(crate) const MARK: &str = "ENSEMBLE_LEASE_ID";

const LOOK: Duration = Duration::from_millis(50);

/// Gives guards that are at work `timeout` to end what they guard, then kills whoever is left.
pub(crate) async fn end(lease: LeaseId, timeout: Duration) {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut looks_without_any = 0;
    // One look can miss a process that is just being replaced by its child.
    while looks_without_any < 2 {
        let found = look(lease).await;
        looks_without_any = if found.is_empty() { looks_without_any + 1 } else { 0 };
        if !found.is_empty() && tokio::time::Instant::now() >= deadline {
            tracing::warn!(lease.id = %lease, processes = found.len(), "Killing what is left of an attempt that lost its guard");
            for pid in &found {
                // Whoever has ended meanwhile does not matter.
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(lease: LeaseId) -> Vec<Pid> {
    let mark = format!("{MARK}={lease}");
    tokio::task::spawn_blocking(move || marked(&mark)).await.unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn marked(mark: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let marked = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // Only our own processes can be read; a zombie has no environment.
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()).then(|| Pid::from_raw(pid))
    });
    marked.collect()
}

/// Where there is no /proc, `ps` shows the environment of this user's processes, as far as the system lets it.
#[cfg(not(target_os = "linux"))]
fn marked(mark: &str) -> Vec<Pid> {
    let Ok(listing) = std::process::Command::new("ps").args(["-A", "-E", "-ww", "-o", "pid=,command="]).output() else {
        return Vec::new();
    };
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let lines = listing.lines().filter(|line| line.contains(mark));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok().map(Pid::from_raw)).collect()
}
