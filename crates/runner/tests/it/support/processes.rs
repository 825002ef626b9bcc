//! Which processes belong to an attempt, seen from outside: all of them carry its lease's id.

use ensemble_types::ids::LeaseId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getsid};

/// Every living process of the attempt, its guard among them.
pub(crate) fn of(lease: LeaseId) -> Vec<Pid> {
    let mark = format!("ENSEMBLE_LEASE_ID={lease}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()).then(|| Pid::from_raw(pid))
        })
        .collect()
}

/// The guard leads the session.
pub(crate) fn guard(lease: LeaseId) -> Option<Pid> {
    of(lease).into_iter().find(|pid| getsid(Some(*pid)) == Ok(*pid))
}

/// The provider's program leads its group, and not the session.
pub(crate) fn program(lease: LeaseId) -> Option<Pid> {
    of(lease).into_iter().find(|pid| getpgid(Some(*pid)) == Ok(*pid) && getsid(Some(*pid)) != Ok(*pid))
}

pub(crate) fn kill_outright(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}
