//! Whether agents come at all. While none does, dispatching more of them only makes a backlog for the first worker that comes
//! back: jobs of rooms that are gone. So dispatches and starts wait, and one at a time finds out when agents are back.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use ensemble_types::time::Timestamp;
use tokio::time::Instant;

/// After this many sessions in a row without an agent, agents count as absent. A single job can be lost.
const MISSES: u32 = 3;
/// Between two attempts to find out whether agents are back.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// By the agent's name. Names come from the configuration, so there are few.
#[derive(Debug, Default)]
pub(crate) struct Absences(Mutex<HashMap<String, Absence>>);

/// Times are the database's.
#[derive(Debug, Default)]
struct Absence {
    /// Sessions in a row, since the last arrival.
    misses: u32,
    missed_at: Option<Timestamp>,
    came_at: Option<Timestamp>,
    probed_at: Option<Instant>,
}

/// What to do about one more dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Agents come.
    Dispatch,
    /// None comes, and this dispatch finds out whether one does.
    Probe,
    Wait,
}

impl Absences {
    /// A session for which an agent was dispatched at `dispatched_at` got none in time. What was dispatched before the last
    /// arrival says nothing about the agents of today.
    pub(crate) fn missed(&self, agent: &str, dispatched_at: Timestamp, now: Timestamp) {
        let Ok(mut all) = self.0.lock() else { return };
        let absence = all.entry(agent.to_owned()).or_default();
        if absence.came_at.is_some_and(|came_at| dispatched_at <= came_at) {
            return;
        }
        absence.missed_at = Some(now);
        absence.misses = absence.misses.saturating_add(1);
        if absence.misses == MISSES {
            tracing::warn!(agent, "No agent comes; starts are refused until one does");
        }
    }

    /// An agent has joined a session.
    pub(crate) fn came(&self, agent: &str, at: Timestamp) {
        let Ok(mut all) = self.0.lock() else { return };
        let absence = all.entry(agent.to_owned()).or_default();
        let was_away = absence.misses >= MISSES;
        *absence = Absence { came_at: absence.came_at.max(Some(at)), ..Absence::default() };
        if was_away {
            tracing::info!(agent, "Agents come again");
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0.lock().is_ok_and(|all| all.values().any(|absence| absence.misses >= MISSES))
    }

    /// An agent has been in a session since this time. Another replica may have received its webhook.
    pub(crate) fn seen(&self, agent: &str, since: Timestamp) {
        let newer = |all: &HashMap<String, Absence>| {
            all.get(agent).and_then(|one| one.missed_at).is_some_and(|missed_at| since > missed_at)
        };
        if self.0.lock().is_ok_and(|all| newer(&all)) {
            self.came(agent, since);
        }
    }

    pub(crate) fn advice(&self, agent: &str, now: Instant) -> Advice {
        let Ok(mut all) = self.0.lock() else { return Advice::Dispatch };
        let Some(absence) = all.get_mut(agent).filter(|absence| absence.misses >= MISSES) else {
            return Advice::Dispatch;
        };
        if absence.probed_at.is_some_and(|at| now.duration_since(at) < PROBE_EVERY) {
            return Advice::Wait;
        }
        absence.probed_at = Some(now);
        Advice::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_probe_at_a_time_until_an_agent_comes() {
        let (absences, now) = (Absences::default(), Instant::now());
        let at = |micros| Timestamp::from_micros(micros);
        for _ in 1..MISSES {
            absences.missed("a", at(4), at(5));
        }
        assert_eq!(absences.advice("a", now), Advice::Dispatch);
        absences.missed("a", at(4), at(9));
        assert_eq!(absences.advice("a", now), Advice::Probe);
        assert_eq!(absences.advice("a", now + PROBE_EVERY / 2), Advice::Wait);
        assert_eq!(absences.advice("b", now), Advice::Dispatch);
        assert_eq!(absences.advice("a", now + PROBE_EVERY), Advice::Probe);
        // An agent from before the miss says nothing.
        absences.seen("a", at(8));
        assert!(absences.is_any());
        absences.seen("a", at(10));
        assert!(!absences.is_any());
        assert_eq!(absences.advice("a", now + PROBE_EVERY), Advice::Dispatch);
    }

    #[test]
    fn misses_of_dispatches_from_before_an_arrival_do_not_count() {
        let (absences, now) = (Absences::default(), Instant::now());
        let at = |micros| Timestamp::from_micros(micros);
        absences.came("a", at(10));
        absences.came("a", at(8));
        for _ in 0..MISSES {
            absences.missed("a", at(9), at(20));
        }
        assert!(!absences.is_any());
        for _ in 0..MISSES {
            absences.missed("a", at(11), at(20));
        }
        assert_eq!(absences.advice("a", now), Advice::Probe);
    }
}
