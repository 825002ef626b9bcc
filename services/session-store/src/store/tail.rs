//! The end of a history, read once for all streams that wait at it.
//!
//! A message wakes every stream of its session in this process; the first of them reads what is new, and with it everybody's
//! share, and the others take that reading if it began after they were woken. So a message costs the database two
//! statements, not two for each stream, and each stream is still judged by shares that were read after the messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{SessionId, UserId};
use tokio::time::Instant;

use super::Store;
use super::history::{Audience, Head};
use super::schema::shares;
use super::stream::{self, Place};
use crate::error::Error;

/// A reading that is larger is not kept for others.
const SHARED_BYTES: usize = 256 << 10;

/// The tails that somebody waits at. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Tails(Arc<Mutex<HashMap<SessionId, Weak<Tail>>>>);

/// Where the streams of one session wait.
#[derive(Default)]
pub(crate) struct Tail {
    latest: tokio::sync::Mutex<Option<Arc<Reading>>>,
}

/// What was new after a place, and who could see it then.
pub(super) struct Reading {
    begun: Instant,
    after: i64,
    pub(super) frames: Bytes,
    head: Head,
    levels: HashMap<UserId, i16>,
}

impl Tails {
    /// The tail of a session, the same for all who wait at it now.
    pub(super) fn of(&self, session: SessionId) -> Arc<Tail> {
        let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = tails.get(&session).and_then(Weak::upgrade) {
            return tail;
        }
        // Those that nobody waits at any more make room.
        if tails.len() >= 64 && tails.len().is_power_of_two() {
            tails.retain(|_, tail| tail.strong_count() > 0);
        }
        let tail = Arc::<Tail>::default();
        tails.insert(session, Arc::downgrade(&tail));
        tail
    }
}

impl Reading {
    /// The place after it, if this user could see it, and whether there is more.
    pub(super) fn seen_by(&self, user: UserId) -> Result<(Place, bool), Error> {
        self.head.access_of(user, self.levels.get(&user).copied())?;
        let seq = self.head.span.map_or(self.after, |(_, highest)| highest);
        let more = self.head.span.is_some() && seq < self.head.last_seq;
        Ok((Place { seq, stamp: self.head.stamp }, more))
    }
}

impl Store {
    /// What is new after `after`, read since `woken`.
    pub(super) async fn tail_reading(
        &self,
        tail: &Tail,
        session: SessionId,
        after: i64,
        woken: Instant,
    ) -> Result<Arc<Reading>, Error> {
        let mut latest = tail.latest.lock().await;
        if let Some(reading) = latest.as_ref().filter(|reading| reading.begun >= woken && reading.after == after) {
            return Ok(Arc::clone(reading));
        }
        let begun = Instant::now();
        let read = self.db.read("feed streams", move |c| {
            let mut frames = String::new();
            let head = stream::read_frames(c, &mut frames, session, None, after, Audience::Members)?;
            Ok::<_, Error>(Reading { begun, after, frames: frames.into(), head, levels: levels(c, session)? })
        });
        let reading = Arc::new(read.await?);
        *latest = Some(Arc::clone(&reading)).filter(|reading| reading.frames.len() <= SHARED_BYTES);
        Ok(reading)
    }
}

fn levels(c: &mut Conn, session: SessionId) -> Result<HashMap<UserId, i16>, StoreError> {
    let levels: Vec<(UserId, i16)> = on!(c, |c| shares::table
        .filter(shares::session_id.eq(session.db()))
        .select((shares::user_id, shares::access_level))
        .load(c))?;
    Ok(levels.into_iter().collect())
}
