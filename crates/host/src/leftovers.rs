//! The commands of an agent that outlive a turn: process groups below its guard that were not there before its first turn.
//!
//! Agents give each command its own group, and keep their helpers (servers of tools and languages) in the one that they lead.
//! Only Linux says which processes are below a guard; elsewhere none is found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_process::below;
use ensemble_process::disk::on_disk;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::time::Instant;

use super::session::Session;

/// A command that ends together with its turn is not shown.
const AFTER_A_TURN: Duration = Duration::from_millis(500);
/// The system does not notify a process of the end of another one's child.
const AGAIN: Duration = Duration::from_secs(3);
const WHILE_ENDING: Duration = Duration::from_millis(100);
/// The commands that are listed, and the bytes of each.
const MOST_LISTED: usize = 16;
const LONGEST: usize = 200;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "fish", "ksh", "zsh"];

/// What is known of the processes of an agent.
#[derive(Default)]
pub(super) struct Leftovers {
    /// The groups that were there before the first turn.
    own: Option<BTreeSet<Pid>>,
    /// A turn has begun since the last look.
    had_turn: bool,
    look_at: Option<Instant>,
    /// The commands were ordered to end, and are killed at this time.
    kill_at: Option<Instant>,
}

impl Leftovers {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }
}

impl Session {
    /// Looks at the agent's processes before its first turn, and after each one.
    pub(super) async fn watch_leftovers(&mut self) {
        let guard = self.agent.as_ref().and_then(|agent| agent.guard()).filter(|_| self.core.is_looked_at());
        let Some(guard) = guard else {
            self.leftovers = Leftovers::default();
            return;
        };
        if self.core.has_turn() {
            (self.leftovers.had_turn, self.leftovers.look_at) = (true, None);
            if self.leftovers.own.is_none() {
                self.leftovers.own = Some(groups(guard).await.into_keys().collect());
            }
        } else if self.leftovers.look_at.is_none() {
            let had_turn = std::mem::take(&mut self.leftovers.had_turn);
            let wait = if had_turn { Some(AFTER_A_TURN) } else { self.core.has_commands().then_some(AGAIN) };
            self.leftovers.look_at = wait.map(|wait| Instant::now() + wait);
        }
    }

    /// Looks which commands still run, and kills those that do not end.
    pub(super) async fn look_at_leftovers(&mut self) {
        let now = Instant::now();
        if self.leftovers.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.leftovers.look_at = None;
        let found = self.found_leftovers().await;
        if found.is_empty() {
            self.leftovers.kill_at = None;
        } else if let Some(at) = self.leftovers.kill_at {
            if at <= now {
                signal(&found, Signal::SIGKILL);
            }
            self.leftovers.look_at = Some(now + WHILE_ENDING);
        }
        self.core.still_run(found.into_values().take(MOST_LISTED).collect());
    }

    /// Ends the commands that still run.
    pub(super) async fn end_leftovers(&mut self) {
        signal(&self.found_leftovers().await, Signal::SIGTERM);
        let now = Instant::now();
        self.leftovers.look_at = Some(now + WHILE_ENDING);
        self.leftovers.kill_at = Some(now + self.host.settings.process.term_grace);
    }

    async fn found_leftovers(&mut self) -> BTreeMap<Pid, String> {
        let guard = self.agent.as_ref().and_then(|agent| agent.guard());
        let (Some(guard), Some(own)) = (guard, &self.leftovers.own) else { return BTreeMap::new() };
        let mut found = groups(guard).await;
        found.retain(|group, _| !own.contains(group));
        found
    }
}

fn signal(found: &BTreeMap<Pid, String>, signal: Signal) {
    for group in found.keys() {
        // A group that has ended meanwhile needs no signal.
        let _ = killpg(*group, signal);
    }
}

/// The process groups below a guard, each with what runs in it.
async fn groups(guard: Pid) -> BTreeMap<Pid, String> {
    let look = move || {
        let mut found: BTreeMap<Pid, (bool, String)> = BTreeMap::new();
        for process in below(guard) {
            let said = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let words: Vec<_> = said.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let name = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
            let is_shell = SHELLS.contains(&name);
            let text = ensemble_protocol::transcript::visible(words.join(" ").trim()).into_owned();
            let text = ensemble_protocol::transcript::bounds::beginning(&text, LONGEST).0.to_owned();
            // A shell says how the agent calls it, and what it has started says more.
            match found.get_mut(&process.group) {
                Some(known) if known.0 && !is_shell => *known = (is_shell, text),
                Some(_) => {}
                None => drop(found.insert(process.group, (is_shell, text))),
            }
        }
        Ok(found.into_iter().map(|(group, (_, text))| (group, text)).collect())
    };
    on_disk(look).await.unwrap_or_default()
}
