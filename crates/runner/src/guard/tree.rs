//! All processes of an attempt, and how to signal and await every one of them.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// What was started by the guard: a process that leads a group, and all that came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    leader: Pid,
    /// Whether the leader's number may belong to somebody else by now.
    leader_is_gone: bool,
    /// Whether the guard has no child any more.
    guard_is_alone: bool,
}

impl Tree {
    pub(super) fn led_by(leader: Pid) -> Self {
        Self { leader, leader_is_gone: false, guard_is_alone: false }
    }

    pub(super) fn leader_ended(&mut self) {
        self.leader_is_gone = true;
    }

    pub(super) fn nobody_is_left(&mut self) {
        self.guard_is_alone = true;
    }

    /// Sends the signal to the group and to whoever left it. Those that are gone already do not matter.
    pub(super) fn signal(self, signal: Signal) {
        if self.goes_by_group() {
            let _ = killpg(self.leader, signal);
        }
        for pid in descendants() {
            let _ = kill(pid, signal);
        }
    }

    /// Whether nobody is left, as far as this system lets us know.
    ///
    /// Where orphans are adopted, a guard without children has no descendants: that is certain, as a look at the
    /// process table is not. Elsewhere the group is asked.
    pub(super) fn is_empty(self) -> bool {
        self.guard_is_alone && (cfg!(target_os = "linux") || killpg(self.leader, None).is_err())
    }

    /// Where every process of the attempt is a descendant, the group's number is not needed once its leader is gone.
    fn goes_by_group(self) -> bool {
        !(self.leader_is_gone && cfg!(target_os = "linux"))
    }
}

/// Every process below this one, nearest first, zombies left out. One pass over the process table; a process that
/// forks meanwhile may be missed, so callers repeat until it is empty.
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

/// The parent of a process that is not a zombie, from its line in /proc (proc(5)): `pid (name) state parent …`, where
/// the name may contain anything, also `)`.
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
