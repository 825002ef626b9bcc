//! Ends orphaned processes of attempts whose guard was killed. They are found by a variable that they all inherit.
//!
//! Normally there are none: a guard ends its attempt even when the runner is killed. Only a killed guard can leave
//! processes.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

/// The variable that marks every process of an attempt, including the guard.
pub(crate) const LEASE_VARIABLE: &str = "ENSEMBLE_LEASE_ID";

const SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// Gives a working guard `timeout` to end its attempt, then kills every process that is left.
pub async fn end(id: Uuid, timeout: Duration) {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut empty_scans = 0;
    // One scan can miss a process that is being replaced by its child.
    while empty_scans < 2 {
        let found = scan(id).await;
        empty_scans = if found.is_empty() { empty_scans + 1 } else { 0 };
        if !found.is_empty() && tokio::time::Instant::now() >= deadline {
            tracing::warn!(attempt.id = %id, processes = found.len(), "Killing the orphaned processes of an attempt");
            for pid in &found {
                // A process that has ended meanwhile is ignored.
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
        tokio::time::sleep(SCAN_INTERVAL).await;
    }
}

async fn scan(id: Uuid) -> Vec<Pid> {
    let variable = format!("{LEASE_VARIABLE}={id}");
    tokio::task::spawn_blocking(move || processes_with(&variable)).await.unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn processes_with(variable: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // Only our own processes are readable. A zombie has no environment.
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()).then(|| Pid::from_raw(pid))
    });
    found.collect()
}

/// Systems without /proc: `ps` shows the environment of this user's processes, as far as the system allows.
#[cfg(not(target_os = "linux"))]
fn processes_with(variable: &str) -> Vec<Pid> {
    let Ok(listing) = std::process::Command::new("ps").args(["-A", "-E", "-ww", "-o", "pid=,command="]).output() else {
        return Vec::new();
    };
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let lines = listing.lines().filter(|line| line.contains(variable));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok().map(Pid::from_raw)).collect()
}
