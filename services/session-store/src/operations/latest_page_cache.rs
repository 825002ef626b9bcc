//! The newest messages of a session, read once for all of its streams.
//!
//! A message wakes every stream of its session. The first one reads the new messages, and after them the shares; the others
//! take the same page, because it was read after the notification that woke them all. A message then costs a fixed number of
//! queries, whatever the number of streams, and each stream is still checked against shares that were read after the messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::Db;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::shares::ShareLevel;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::domain::access::{Access, Actor, Refusal};
use crate::error::Error;
use crate::store;
use crate::store::sessions::SessionRow;

/// The most bytes of all cached pages. A page is short, or it is one message of at most 1 MiB.
const CACHED_BYTES: u64 = 16 << 20;
/// What a page costs besides its content.
const PAGE_COST: usize = 16 << 10;
/// The most sessions whose streams are kept apart.
const SESSIONS: u64 = 10_000;
/// A page that no stream asked for during this time is dropped.
const IDLE: Duration = Duration::from_secs(60);

/// The latest pages of all sessions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LatestPageCaches {
    pages: Cache<SessionId, Arc<LatestPage>>,
    /// Streams of one session wait here for the one that reads.
    reading: Cache<SessionId, Arc<Mutex<()>>>,
}

/// The messages after a position, and who was allowed to read them.
pub(super) struct LatestPage {
    read_at: Instant,
    after: i64,
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) session: SessionRow,
    levels: HashMap<UserId, ShareLevel>,
}

impl LatestPageCaches {
    pub(crate) fn new() -> Self {
        let weight = |_: &SessionId, page: &Arc<LatestPage>| u32::try_from(page.bytes()).unwrap_or(u32::MAX);
        let pages = Cache::builder().max_capacity(CACHED_BYTES).weigher(weight).time_to_idle(IDLE);
        Self {
            pages: pages.eviction_policy(EvictionPolicy::lru()).build(),
            reading: Cache::builder().max_capacity(SESSIONS).time_to_idle(IDLE).build(),
        }
    }

    /// The messages after `after`, read at `changed_at` or later.
    pub(super) async fn page(
        &self,
        db: &Db,
        session: SessionId,
        after: i64,
        changed_at: Instant,
    ) -> Result<Arc<LatestPage>, Error> {
        let reading = self.reading.get_with(session, Arc::default);
        let _turn = reading.lock().await;
        let known = self.pages.get(&session);
        if let Some(page) = known.filter(|page| page.read_at >= changed_at && page.after == after) {
            return Ok(page);
        }
        let read_at = Instant::now();
        let read = db.read("read the latest messages", move |c| {
            let messages = store::messages::page(c, session, super::streams::window_after(after))?;
            let row = store::sessions::find(c, session)?.ok_or(Refusal::NotFound)?;
            let levels = store::shares::levels_of_session(c, session)?;
            let messages = messages.into_iter().map(Arc::new).collect();
            Ok::<_, Error>(LatestPage { read_at, after, messages, session: row, levels })
        });
        let page = Arc::new(read.await?);
        self.pages.insert(session, Arc::clone(&page));
        Ok(page)
    }
}

impl LatestPage {
    /// Fails unless this caller could read the session when the page was read.
    pub(super) fn check(&self, caller: &Actor) -> Result<Access, Refusal> {
        Access::of(self.session.ownership(), caller, self.levels.get(&caller.user).copied())
    }

    fn bytes(&self) -> usize {
        PAGE_COST + self.messages.iter().map(|message| message.content.len()).sum::<usize>()
    }
}
