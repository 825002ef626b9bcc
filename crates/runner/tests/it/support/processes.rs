//! The processes of an attempt, found by the lease id in their environment.

use ensemble_types::ids::LeaseId;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid, getsid};

/// Every living process of the attempt, including its guard.
pub(crate) fn of(lease: LeaseId) -> Vec<Pid> {
    let variable = format!("ENSEMBLE_LEASE_ID={lease}");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()).then(|| Pid::from_raw(pid))
        })
        .collect()
}

/// The guard, which leads the session.
pub(crate) fn guard(lease: LeaseId) -> Option<Pid> {
    of(lease).into_iter().find(|pid| getsid(Some(*pid)) == Ok(*pid))
}

/// The provider's program, which leads its group but not the session.
pub(crate) fn program(lease: LeaseId) -> Option<Pid> {
    of(lease).into_iter().find(|pid| getpgid(Some(*pid)) == Ok(*pid) && getsid(Some(*pid)) != Ok(*pid))
}

pub(crate) fn kill(pid: Pid) {
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
}
