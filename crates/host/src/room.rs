//! How many agents run at once, and which of them makes room for another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_types::ids::SessionId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What an agent needs, roughly.
const MEMORY_EACH: u64 = 600 << 20;
/// How long an idle agent may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// The most sessions that are named to a person who finds no room.
const MOST_NAMED: usize = 8;

/// The agents that may run at once.
pub(crate) struct Room {
    most: u32,
    free: Arc<Semaphore>,
    agents: Agents,
}

/// What each agent that runs does.
type Agents = Arc<Mutex<BTreeMap<SessionId, Does>>>;

enum Does {
    Works,
    /// It waits for an answer of a person. Ended, it would lose what it is about.
    Asks,
    /// It was stopped, and its processes are about to be gone. Its room is `taken` when a start waits for it.
    Ends {
        taken: bool,
    },
    /// Nothing, since then. It is notified when another one needs the room.
    Nothing {
        since: Instant,
        park: Arc<Notify>,
    },
}

/// The room of one agent, until it is dropped.
pub(crate) struct Permit {
    session: SessionId,
    agents: Agents,
    _one: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.agents).remove(&self.session);
    }
}

impl Room {
    pub(crate) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, free: Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(1))), agents: Agents::default() }
    }

    /// One for each 600 MiB of the machine's memory.
    pub(crate) fn usual() -> u32 {
        let total = memory().unwrap_or(8 << 30);
        u32::try_from((total / MEMORY_EACH).clamp(2, 64)).unwrap_or(2)
    }

    /// The agent of this session has nothing to do. Notifies `park` when another one needs the room.
    pub(crate) fn is_idle(&self, session: SessionId, park: &Arc<Notify>) {
        if let Some(does) = lock(&self.agents).get_mut(&session).filter(|does| !matches!(does, Does::Nothing { .. })) {
            *does = Does::Nothing { since: Instant::now(), park: park.clone() };
        }
    }

    /// The agent of this session works, or `asks` something.
    pub(crate) fn is_busy(&self, session: SessionId, asks: bool) {
        if let Some(does) = lock(&self.agents).get_mut(&session) {
            *does = if asks { Does::Asks } else { Does::Works };
        }
    }

    /// The agent of this session was stopped.
    pub(crate) fn ends(&self, session: SessionId) {
        if let Some(does) = lock(&self.agents).get_mut(&session).filter(|does| !matches!(does, Does::Ends { .. })) {
            *does = Does::Ends { taken: false };
        }
    }

    /// Waits for room for the agent of this session. An agent that was stopped makes it, or else the one that has been idle for
    /// the longest time.
    pub(crate) async fn take(&self, session: SessionId) -> Result<Permit, String> {
        if let Ok(one) = self.free.clone().try_acquire_owned() {
            return Ok(self.permit(session, one));
        }
        if !self.is_promised() {
            return Err(self.in_the_way());
        }
        match tokio::time::timeout(ENDS_WITHIN, self.free.clone().acquire_owned()).await {
            Ok(Ok(one)) => Ok(self.permit(session, one)),
            _ => Err(self.in_the_way()),
        }
    }

    /// Whether an agent ends or is parked, for the one start that asks.
    fn is_promised(&self) -> bool {
        let mut agents = lock(&self.agents);
        if let Some(does) = agents.values_mut().find(|does| matches!(does, Does::Ends { taken: false })) {
            *does = Does::Ends { taken: true };
            return true;
        }
        let idle = agents.values_mut().filter_map(|does| match does {
            Does::Nothing { since, park } => Some((*since, park.clone(), does)),
            _ => None,
        });
        let longest = idle.min_by_key(|(since, ..)| *since).map(|(_, park, does)| {
            *does = Does::Ends { taken: true };
            park.notify_one();
        });
        longest.is_some()
    }

    fn permit(&self, session: SessionId, one: OwnedSemaphorePermit) -> Permit {
        lock(&self.agents).insert(session, Does::Works);
        Permit { session, agents: self.agents.clone(), _one: one }
    }

    /// Whether another agent could run in addition to those that work or ask.
    pub(crate) fn has_room(&self) -> bool {
        let makes_room = |does: &Does| matches!(does, Does::Nothing { .. } | Does::Ends { taken: false });
        self.free.available_permits() > 0 || lock(&self.agents).values().any(makes_room)
    }

    /// Whether the agent of this session runs, or could be started.
    ///
    /// # Errors
    /// There is no room for it. The text names the sessions that are in the way.
    pub(crate) fn admits(&self, session: SessionId) -> Result<(), String> {
        let runs = lock(&self.agents).contains_key(&session);
        if runs || self.has_room() { Ok(()) } else { Err(self.in_the_way()) }
    }

    fn in_the_way(&self) -> String {
        let agents = lock(&self.agents);
        let named = agents.iter().take(MOST_NAMED).map(|(session, does)| match does {
            Does::Asks => format!("session {session} waits for an answer"),
            Does::Ends { .. } => format!("session {session} was stopped and has not ended yet"),
            Does::Works | Does::Nothing { .. } => format!("session {session} works"),
        });
        let named: Vec<String> = named.collect();
        format!(
            "{} agents run on this machine already, and none of them is idle: {}. Answer or stop one, or raise maxAgents in runner.yaml",
            self.most,
            named.join(", ")
        )
    }
}

fn lock(agents: &Agents) -> MutexGuard<'_, BTreeMap<SessionId, Does>> {
    agents.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of the machine in bytes (proc(5), "/proc/meminfo").
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Why a session was not begun.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    /// The limit of agents is reached, and none of them is idle. The text names sessions by their ids and says nothing else of them.
    #[error("HOST_BUSY: {0}.")]
    Busy(String),
    #[error("{0}")]
    Other(String),
}

impl From<String> for NotBegun {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_agent_that_is_idle_for_the_longest_time_makes_room() {
        let room = Arc::new(Room::new(2));
        let ids = [(); 3].map(|()| SessionId::generate());
        let first = room.take(ids[0]).await.unwrap();
        let second = room.take(ids[1]).await.unwrap();
        assert!(room.take(ids[2]).await.err().unwrap().starts_with("2 agents"), "both work");
        let (one, two) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        room.is_idle(ids[0], &one);
        tokio::time::advance(Duration::from_secs(1)).await;
        room.is_idle(ids[1], &two);
        let taking = tokio::spawn({
            let room = room.clone();
            async move { room.take(ids[2]).await.map(drop) }
        });
        one.notified().await;
        drop(first);
        assert_eq!(taking.await.unwrap(), Ok(()));
        drop(second);
        assert!(Room::usual() >= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_the_agent_that_was_stopped() {
        let room = Arc::new(Room::new(2));
        let ids = [(); 3].map(|()| SessionId::generate());
        let stopped = room.take(ids[0]).await.unwrap();
        let _idle = room.take(ids[1]).await.unwrap();
        assert!(room.admits(ids[2]).is_err());
        let park = Arc::new(Notify::new());
        room.is_idle(ids[1], &park);
        room.ends(ids[0]);
        assert_eq!(room.admits(ids[2]), Ok(()));
        let taking = tokio::spawn({
            let room = room.clone();
            async move { room.take(ids[2]).await.map(drop) }
        });
        tokio::task::yield_now().await;
        drop(stopped);
        assert_eq!(taking.await.unwrap(), Ok(()));
        assert!(tokio::time::timeout(Duration::from_secs(1), park.notified()).await.is_err(), "the idle one stays");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_end_makes_no_room() {
        let room = Room::new(1);
        let id = SessionId::generate();
        let _first = room.take(id).await.unwrap();
        room.is_idle(id, &Arc::new(Notify::new()));
        assert!(room.take(SessionId::generate()).await.is_err());
    }

    #[tokio::test]
    async fn agents_that_ask_are_not_ended_and_are_named() {
        let room = Room::new(2);
        let [asks, idle, other] = [(); 3].map(|()| SessionId::generate());
        let (_asks, parked) = (room.take(asks).await.unwrap(), room.take(idle).await.unwrap());
        room.is_busy(asks, true);
        assert!(!room.has_room());
        assert_eq!(room.admits(asks), Ok(()), "it runs");
        let why = room.admits(other).unwrap_err();
        assert!(
            why.contains(&format!("{asks} waits for an answer")) && why.contains(&format!("{idle} works")),
            "{why}"
        );
        room.is_idle(idle, &Arc::new(Notify::new()));
        assert!(room.has_room() && room.admits(other).is_ok(), "the idle one makes room");
        drop(parked);
        assert!(room.has_room());
        room.take(other).await.unwrap();
        assert!(room.admits(other).is_ok(), "it has ended again");
    }
}
