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

/// The agents that may run at once.
pub(crate) struct Room {
    most: u32,
    free: Arc<Semaphore>,
    idle: Mutex<BTreeMap<SessionId, Idle>>,
}

/// An agent with nothing to do.
struct Idle {
    since: Instant,
    park: Arc<Notify>,
}

impl Room {
    pub(crate) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self { most, free: Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(1))), idle: Mutex::default() }
    }

    /// One for each 600 MiB of the machine's memory.
    pub(crate) fn usual() -> u32 {
        let total = memory().unwrap_or(8 << 30);
        u32::try_from((total / MEMORY_EACH).clamp(2, 64)).unwrap_or(2)
    }

    /// The agent of this session has nothing to do. Notifies `park` when another one needs the room.
    pub(crate) fn is_idle(&self, session: SessionId, park: &Arc<Notify>) {
        let idle = || Idle { since: Instant::now(), park: park.clone() };
        self.lock().entry(session).or_insert_with(idle);
    }

    pub(crate) fn is_busy(&self, session: SessionId) {
        self.lock().remove(&session);
    }

    /// Waits for room for one more. The agent that has been idle for the longest time makes it.
    pub(crate) async fn take(&self) -> Result<OwnedSemaphorePermit, String> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let longest = {
            let mut idle = self.lock();
            let longest = idle.iter().min_by_key(|(_, idle)| idle.since).map(|(session, _)| *session);
            longest.and_then(|session| idle.remove(&session))
        };
        let full = || {
            format!(
                "{} agents run on this machine already, and none of them is idle. `ensemble sessions` shows them; stop one, or raise \
                 maxAgents in runner.yaml",
                self.most
            )
        };
        longest.ok_or_else(full)?.park.notify_one();
        match tokio::time::timeout(ENDS_WITHIN, self.free.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(full()),
        }
    }

    /// Whether another agent could run beside those that do.
    pub(crate) fn has_room(&self) -> bool {
        self.free.available_permits() > 0
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of the machine in bytes (proc(5), "/proc/meminfo").
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_agent_that_is_idle_for_the_longest_time_makes_room() {
        let room = Arc::new(Room::new(2));
        let first = room.take().await.unwrap();
        let second = room.take().await.unwrap();
        assert!(room.take().await.unwrap_err().starts_with("2 agents"), "both work");
        let (one, two) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        room.is_idle(SessionId::generate(), &one);
        tokio::time::advance(Duration::from_secs(1)).await;
        room.is_idle(SessionId::generate(), &two);
        let taking = tokio::spawn({
            let room = room.clone();
            async move { room.take().await.map(drop) }
        });
        one.notified().await;
        drop(first);
        assert_eq!(taking.await.unwrap(), Ok(()));
        drop(second);
        assert!(Room::usual() >= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_end_makes_no_room() {
        let room = Room::new(1);
        let _first = room.take().await.unwrap();
        room.is_idle(SessionId::generate(), &Arc::new(Notify::new()));
        assert!(room.take().await.is_err());
    }
}
