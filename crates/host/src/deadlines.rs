//! When something is done in a session although nothing has happened.

use tokio::time::Instant;

use super::session::Session;
use crate::agent::WRITTEN_WITHIN;

/// When something is to be done if nothing happens until then.
#[derive(Default)]
pub(super) struct Deadlines {
    pub(super) ready: Option<Instant>,
    pub(super) interrupted: Option<Instant>,
    pub(super) parked: Option<Instant>,
    pub(super) killed: Option<Instant>,
    /// The guard was ordered to end the agent.
    pub(super) is_ordered: bool,
}

impl Deadlines {
    pub(super) fn first(&self) -> Option<Instant> {
        [self.ready, self.interrupted, self.parked, self.killed].into_iter().flatten().min()
    }
}

impl Session {
    pub(super) fn set_deadlines(&mut self) {
        let (now, timing) = (Instant::now(), self.host.settings.timing);
        let Deadlines { ready, interrupted, parked, .. } = &mut self.deadlines;
        if self.core.is_ready() {
            *ready = None;
        }
        match (self.core.is_interrupting(), &interrupted) {
            (true, None) => *interrupted = Some(now + timing.interrupted_within),
            (false, Some(_)) if !self.core.drains() => *interrupted = None,
            _ => {}
        }
        match (self.core.is_idle(), &parked) {
            (true, None) => *parked = Some(now + timing.park_after),
            (false, Some(_)) => *parked = None,
            _ => {}
        }
        if self.agent.is_none() {
            self.deadlines = Deadlines::default();
        }
        if self.core.is_stopping() {
            self.host.room.ends(self.id);
        } else if self.core.is_idle() && self.core.can_park() {
            self.host.room.is_idle(self.id, &self.park);
        } else {
            self.host.room.is_busy(self.id, self.core.asks());
        }
    }

    /// A deadline has passed.
    pub(super) async fn late(&mut self) {
        self.tick();
        self.look_at_leftovers().await;
        let now = Instant::now();
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        let grace = self.host.settings.process.term_grace;
        if is_over(self.deadlines.parked) {
            self.deadlines.parked = None;
            self.core.park();
        }
        if is_over(self.deadlines.interrupted) {
            self.deadlines.interrupted = None;
            if self.core.is_interrupting() {
                self.core.fail_to_interrupt();
                self.deadlines.killed = Some(now);
            } else {
                self.core.interrupt();
            }
        }
        if is_over(self.deadlines.ready) {
            self.deadlines.ready = None;
            self.core.never_ready();
            self.deadlines.killed = Some(now);
        }
        if is_over(self.deadlines.killed) {
            // TERM, and KILL after the grace. A guard that does not carry it out is ended itself.
            self.deadlines.killed = Some(now + grace * 4);
            if let Some(agent) = &mut self.agent {
                let is_ordered = tokio::time::timeout(WRITTEN_WITHIN, agent.stop(grace)).await.is_ok();
                if !is_ordered || std::mem::replace(&mut self.deadlines.is_ordered, true) {
                    agent.kill();
                }
            }
        }
    }
}
