//! All processes of an attempt: signals them and detects when none is left.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The process that the guard started, which leads a group, and all its descendants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    leader: Pid,
    /// Whether the system may have given the leader's process id to another process.
    leader_has_ended: bool,
    /// Whether the guard has no children left.
    guard_has_no_children: bool,
}

impl Tree {
    pub(super) fn of(leader: Pid) -> Self {
        Self { leader, leader_has_ended: false, guard_has_no_children: false }
    }

    pub(super) fn leader_ended(&mut self) {
        self.leader_has_ended = true;
    }

    pub(super) fn no_children_left(&mut self) {
        self.guard_has_no_children = true;
    }

    /// Signals the group and every process that left it. Processes that have ended are ignored.
    pub(super) fn signal(self, signal: Signal) {
        if self.signals_group() {
            let _ = killpg(self.leader, signal);
        }
        for pid in descendants() {
            let _ = kill(pid, signal);
        }
    }

    /// Whether no process is left, as far as this system can tell.
    ///
    /// On Linux orphans are adopted, so a guard without children has no descendants. That is certain, while a scan of
    /// the process table is not. Other systems only know the group.
    pub(super) fn is_empty(self) -> bool {
        self.guard_has_no_children && (cfg!(target_os = "linux") || killpg(self.leader, None).is_err())
    }

    /// On Linux every process of the attempt is a descendant, so the group is not needed once its leader has ended.
    fn signals_group(self) -> bool {
        !(self.leader_has_ended && cfg!(target_os = "linux"))
    }
}

/// Every descendant of this process, nearest first, without zombies. One scan of the process table can miss a process
/// that is being forked, so callers repeat it.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = std::fs::read_to_string(entry.path().join("stat")).ok().as_deref().and_then(living_parent)
        {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![nix::unistd::getpid().as_raw()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).map(Pid::from_raw).collect()
}

/// The parent of a process that is not a zombie, from its line in /proc (proc(5)): `pid (name) state parent …`. The
/// name may contain any character, also `)`.
#[cfg(target_os = "linux")]
fn living_parent(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

#[cfg(not(target_os = "linux"))]
fn descendants() -> Vec<Pid> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(living_parent("12 (a) Z 1 (b)) S 34 5 6"), Some(34));
        assert_eq!(living_parent("12 (x) Z 34 5 6"), None);
        assert_eq!(living_parent("nonsense"), None);
    }
}
