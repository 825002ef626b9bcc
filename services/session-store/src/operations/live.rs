//! Live frames: from the machine that hosts a session to everybody who follows it, on every replica.
//!
//! A frame is never stored for good and waits for no disk. On SQLite there is one process, which hands it on itself. On PostgreSQL
//! the frame is a row of an unlogged table for some seconds, and a wake-up makes each replica read the rows of the sessions that
//! have streams there. A frame that gets lost on the way is no error: the next one says the same and more.
//!
//! A message may overtake a frame. Whether it has the whole text that the frame is the beginning of stands in what is sealed, so only
//! a client can know that the frame is not needed any more. Messages of other texts make no frame superfluous.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_store_kit::{Conn, Db, StoreError, Subscription, Topic};
use ensemble_types::ids::SessionId;
use ensemble_types::live::LiveFrame;
use moka::sync::Cache;
use tokio::sync::broadcast;

use crate::SessionStore;
use crate::domain::access::{Access, Actor, Refusal};
use crate::domain::live::{FRESH_FOR, Pace, Readers};
use crate::error::Error;
use crate::store;

/// The most frames of a session that wait for its streams. A slow stream misses older ones.
const WAITING: usize = 8;
/// The most sessions whose pace is remembered.
const PACED: u64 = 100_000;
/// Rows are removed after this time, by the next call.
const KEPT: Duration = Duration::from_secs(5);

/// A frame on its way to the streams of its session.
pub(crate) struct Frame {
    pub(crate) sent: LiveFrame,
    readers: Arc<Readers>,
    arrived_at: Instant,
}

/// The sessions that are followed on this replica, and how fast their frames come. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LiveFeeds {
    followed: Arc<Mutex<HashMap<SessionId, Followed>>>,
    paces: Cache<SessionId, Arc<Mutex<Pace>>>,
    cleared_at: Arc<Mutex<Option<Instant>>>,
    /// There are other replicas, or there may be.
    has_peers: bool,
}

struct Followed {
    frames: broadcast::Sender<Arc<Frame>>,
    /// The number of the last row that was handed on.
    position: i64,
}

/// The frames of one session from now on.
pub(crate) struct Following {
    session: SessionId,
    frames: broadcast::Receiver<Arc<Frame>>,
    feeds: LiveFeeds,
}

impl LiveFeeds {
    pub(crate) fn new(has_peers: bool) -> Self {
        let paces = Cache::builder().max_capacity(PACED).time_to_idle(Duration::from_secs(10)).build();
        Self { followed: Arc::default(), paces, cleared_at: Arc::default(), has_peers }
    }

    pub(super) fn follow(&self, session: SessionId) -> Following {
        let new = || Followed { frames: broadcast::Sender::new(WAITING), position: 0 };
        let frames = self.lock().entry(session).or_insert_with(new).frames.subscribe();
        Following { session, frames, feeds: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_on(&self, sent: LiveFrame, readers: Arc<Readers>) {
        if let Some(followed) = self.lock().get(&sent.session_id) {
            let frame = Frame { sent, readers, arrived_at: Instant::now() };
            // It fails when the last stream has just ended.
            let _ = followed.frames.send(Arc::new(frame));
        }
    }

    fn admits(&self, session: SessionId) -> bool {
        let pace = self.paces.get_with(session, Arc::default);
        pace.lock().unwrap_or_else(PoisonError::into_inner).admits(Instant::now())
    }

    /// Whether old rows are to be removed now.
    fn clears(&self) -> bool {
        let mut cleared_at = self.cleared_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = cleared_at.is_none_or(|at| at.elapsed() >= KEPT);
        if is_due {
            *cleared_at = Some(Instant::now());
        }
        is_due
    }

    /// The followed sessions, and the last row of each.
    fn positions(&self) -> Vec<(SessionId, i64)> {
        self.lock().iter().map(|(session, followed)| (*session, followed.position)).collect()
    }

    fn advance(&self, session: SessionId, position: i64) {
        if let Some(followed) = self.lock().get_mut(&session) {
            followed.position = followed.position.max(position);
        }
    }
}

impl Following {
    /// The next frame that is not too old.
    pub(super) async fn next(&mut self) -> Arc<Frame> {
        loop {
            match self.frames.recv().await {
                Ok(frame) if frame.arrived_at.elapsed() < FRESH_FOR => return frame,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                // The sender is kept as long as this receiver.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut followed = self.feeds.lock();
        // The receiver of this stream is still counted.
        if followed.get(&self.session).is_some_and(|followed| followed.frames.receiver_count() <= 1) {
            followed.remove(&self.session);
        }
    }
}

impl Frame {
    /// Whether this caller could read the session when the frame had arrived.
    pub(super) fn is_for(&self, caller: &Actor) -> bool {
        self.readers.access(caller).is_ok()
    }
}

/// Passes frames on. Returns the sessions with too many frames.
pub(crate) async fn send(
    service: &SessionStore,
    caller: Actor,
    frames: Vec<LiveFrame>,
) -> Result<BTreeSet<SessionId>, Error> {
    let ids: BTreeSet<SessionId> = frames.iter().map(|frame| frame.session_id).collect();
    let sessions = ids.clone();
    let readers =
        service.db.read("find who reads live frames", move |c| Ok::<_, Error>(find_readers(c, &sessions)?)).await?;
    for id in &ids {
        match readers.get(id).ok_or(Refusal::NotFound)?.access(&caller)? {
            Access::Host => {}
            Access::Person(_) => return Err(Error::HostOnly),
        }
    }
    let (passed, dropped): (Vec<_>, Vec<_>) =
        frames.into_iter().partition(|frame| service.live_feeds.admits(frame.session_id));
    if service.live_feeds.has_peers {
        share(service, passed).await?;
    } else {
        for frame in passed {
            let of_session = readers.get(&frame.session_id).map(Arc::clone).ok_or(Refusal::NotFound)?;
            service.live_feeds.hand_on(frame, of_session);
        }
    }
    Ok(dropped.into_iter().map(|frame| frame.session_id).collect())
}

/// Leaves frames for all replicas, this one too.
async fn share(service: &SessionStore, frames: Vec<LiveFrame>) -> Result<(), Error> {
    if frames.is_empty() {
        return Ok(());
    }
    let clears = service.live_feeds.clears();
    service
        .db
        .write("share live frames", move |tx| {
            if clears {
                store::live_frames::remove_old(tx, KEPT)?;
            }
            store::live_frames::insert(tx, &frames)?;
            tx.notify(topic());
            Ok(())
        })
        .await
}

/// Completes when there are frames of any session.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(topic())
}

/// Hands on the new frames of the sessions that are followed here.
pub(crate) async fn relay(db: &Db, feeds: &LiveFeeds) -> Result<(), Error> {
    let positions = feeds.positions();
    if positions.is_empty() {
        return Ok(());
    }
    let (rows, readers) = db
        .read("read live frames", move |c| {
            let rows = store::live_frames::after(c, &positions, FRESH_FOR)?;
            // After the frames: who lost access before one arrived does not get it.
            let sessions = rows.iter().map(|(_, frame)| frame.session_id).collect();
            Ok::<_, Error>((rows, find_readers(c, &sessions)?))
        })
        .await?;
    for (number, frame) in rows {
        feeds.advance(frame.session_id, number);
        if let Some(of_session) = readers.get(&frame.session_id) {
            feeds.hand_on(frame, Arc::clone(of_session));
        }
    }
    Ok(())
}

/// Removes the rows that the last call has left.
pub(crate) async fn remove_old(db: &Db) -> Result<(), Error> {
    db.write("remove old live frames", |tx| Ok(store::live_frames::remove_old(tx, KEPT)?)).await
}

fn find_readers(c: &mut Conn, sessions: &BTreeSet<SessionId>) -> Result<HashMap<SessionId, Arc<Readers>>, StoreError> {
    let mut levels = store::shares::levels_of_sessions(c, sessions)?;
    let owned = store::live_frames::owners(c, sessions)?;
    let readers = owned.into_iter().map(|(id, owner, host)| {
        let levels = levels.remove(&id).unwrap_or_default();
        (id, Arc::new(Readers { owner, host, levels }))
    });
    Ok(readers.collect())
}

fn topic() -> Topic {
    Topic::new("live", "frames")
}
