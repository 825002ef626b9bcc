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

/// A process that is not a zombie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub pid: Pid,
    parent: Pid,
    pub group: Pid,
}

fn descendants() -> Vec<Pid> {
    below(nix::unistd::getpid()).into_iter().map(|found| found.pid).collect()
}

/// Every descendant of a process, nearest first, without zombies. One scan of the process table can miss a process
/// that is being forked, so callers repeat it.
#[cfg(target_os = "linux")]
pub fn below(root: Pid) -> Vec<Found> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat"));
        all.extend(stat.ok().and_then(|stat| living(Pid::from_raw(pid), &stat)));
    }
    let mut found: Vec<Found> = Vec::new();
    let mut next = Some(root);
    let mut looked_at = 0;
    while let Some(parent) = next {
        found.extend(all.iter().filter(|one| one.parent == parent));
        next = found.get(looked_at).map(|one| one.pid);
        looked_at += 1;
    }
    found
}

/// A process that is not a zombie, from its line in /proc (proc(5)): `pid (name) state parent group …`. The name may contain any
/// character, also `)`.
#[cfg(target_os = "linux")]
fn living(pid: Pid, stat: &str) -> Option<Found> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
    let (parent, group) = (number()?, number()?);
    (state != "Z" && state != "X").then_some(Found { pid, parent, group })
}

#[cfg(not(target_os = "linux"))]
pub fn below(_: Pid) -> Vec<Found> {
    Vec::new()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        let of = |stat| living(Pid::from_raw(12), stat).map(|found| (found.parent.as_raw(), found.group.as_raw()));
        assert_eq!(of("12 (a) Z 1 (b)) S 34 5 6"), Some((34, 5)));
        assert_eq!(of("12 (x) Z 34 5 6"), None);
        assert_eq!(of("nonsense"), None);
    }
}
