//! What is due: sessions by their deadlines, and the chores that one replica does for all.

use std::time::Duration;

use diesel::dsl::count_star;
use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use super::Store;
use super::rows::{Row, day, is_live, is_open, is_over, voice_chores, voice_sessions, voice_usage, voice_webhooks};
use crate::domain::session::VoiceSession;

/// Work that one replica does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    Reconcile,
    Purge,
}

impl Chore {
    fn name(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Purge => "purge",
        }
    }
}

/// How long LiveKit may repeat a webhook, generously.
const WEBHOOKS_KEPT: Duration = Duration::from_secs(3_600);
/// Of seconds per day only today's count.
const USAGE_KEPT: Duration = Duration::from_secs(31 * 86_400);
/// Rows deleted in one transaction.
const BATCH: i64 = 500;

impl Store {
    /// Claims sessions that want to be looked at. Another replica gets them after `lease` if this one dies.
    pub(crate) async fn claim_due(&self, limit: i64, lease: Duration) -> Result<Vec<VoiceSession>, StoreError> {
        use voice_sessions::dsl;
        self.db
            .write("claim what is due", move |tx| {
                let now = tx.now()?;
                let due = || dsl::voice_sessions.filter(dsl::due_at.le(now.db())).order(dsl::due_at).limit(limit);
                let rows: Vec<Row> = on!(
                    tx,
                    Pg | c | due().select(Row::as_select()).for_update().skip_locked().load(c),
                    Sqlite | c | due().select(Row::as_select()).load(c)
                )?;
                let mut claimed = Vec::with_capacity(rows.len());
                for row in rows {
                    claimed.push(row.into_loaded(tx.operation())?.session);
                }
                let ids: Vec<GatewaySessionId> = claimed.iter().map(|session| session.id).collect();
                if !ids.is_empty() {
                    on!(tx, |c| diesel::update(dsl::voice_sessions.filter(dsl::id.eq_any(db_ids(&ids))))
                        .set(dsl::due_at.eq(Some(now.plus(lease).db())))
                        .execute(c))?;
                }
                Ok(claimed)
            })
            .await
    }

    /// The database's time, and when the next session is due or has something to deliver.
    pub(crate) async fn next_due(&self) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
        use voice_sessions::dsl;
        self.db
            .read("look for what is due next", |c| {
                let due: Option<Option<Timestamp>> = on!(c, |c| dsl::voice_sessions
                    .filter(dsl::due_at.is_not_null())
                    .order(dsl::due_at)
                    .select(dsl::due_at)
                    .first(c)
                    .optional())?;
                let deliver: Option<Option<Timestamp>> = on!(c, |c| dsl::voice_sessions
                    .filter(dsl::deliver_at.is_not_null())
                    .order(dsl::deliver_at)
                    .select(dsl::deliver_at)
                    .first(c)
                    .optional())?;
                Ok((c.now()?, due.flatten().into_iter().chain(deliver.flatten()).min()))
            })
            .await
    }

    /// The database's time.
    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        self.db.read("read the clock", |c| c.now()).await
    }

    /// Takes a chore for this replica, if it is due; it is due again after `every`.
    pub(crate) async fn claim_chore(&self, chore: Chore, every: Duration) -> Result<bool, StoreError> {
        use voice_chores::dsl;
        self.db
            .write("claim a chore", move |tx| {
                let now = tx.now()?;
                let next = dsl::due_at.eq(now.plus(every).db());
                let name = dsl::name.eq(chore.name());
                let first = on!(tx, |c| diesel::insert_into(dsl::voice_chores)
                    .values((name, next))
                    .on_conflict_do_nothing()
                    .execute(c))?;
                if first == 1 {
                    return Ok(true);
                }
                let taken =
                    on!(tx, |c| diesel::update(dsl::voice_chores.filter(name).filter(dsl::due_at.le(now.db())))
                        .set(next)
                        .execute(c))?;
                Ok(taken == 1)
            })
            .await
    }

    /// All sessions with a room that should be there.
    pub(crate) async fn live_sessions(&self) -> Result<Vec<VoiceSession>, StoreError> {
        use voice_sessions::dsl;
        self.db
            .read("list live voice sessions", |c| {
                let rows: Vec<Row> =
                    on!(c, |c| dsl::voice_sessions.filter(is_live()).select(Row::as_select()).load(c))?;
                let operation = c.operation();
                rows.into_iter().map(|row| row.into_loaded(operation).map(|loaded| loaded.session)).collect()
            })
            .await
    }

    /// Which of these sessions may have a room: all that are known here and not over.
    pub(crate) async fn with_room(&self, ids: Vec<GatewaySessionId>) -> Result<Vec<GatewaySessionId>, StoreError> {
        use voice_sessions::dsl;
        self.db
            .read("find the sessions of rooms", move |c| {
                on!(c, |c| dsl::voice_sessions
                    .filter(dsl::id.eq_any(db_ids(&ids)).and(is_open()))
                    .select(dsl::id)
                    .load(c))
            })
            .await
    }

    /// How many sessions are not over, and how many texts wait.
    pub(crate) async fn census(&self) -> Result<(i64, i64), StoreError> {
        use voice_sessions::dsl;
        self.db
            .read("count voice sessions", |c| {
                let open = || dsl::voice_sessions.filter(is_open());
                let sessions: i64 = on!(c, |c| open().select(count_star()).first(c))?;
                let queues: Vec<i64> = on!(c, |c| open().filter(dsl::queued.gt(0)).select(dsl::queued).load(c))?;
                Ok((sessions, queues.into_iter().sum()))
            })
            .await
    }

    /// Deletes what nobody needs any more, in batches. True: there may be more.
    pub(crate) async fn purge(&self, keep: Duration) -> Result<bool, StoreError> {
        use voice_sessions::dsl;
        self.db
            .write("purge old voice sessions", move |tx| {
                let now = tx.now()?;
                let old = dsl::ended_at.lt(now.minus(keep).db()).and(is_over());
                let ids: Vec<GatewaySessionId> =
                    on!(tx, |c| dsl::voice_sessions.filter(old).select(dsl::id).limit(BATCH).load(c))?;
                on!(tx, |c| diesel::delete(dsl::voice_sessions.filter(dsl::id.eq_any(db_ids(&ids)))).execute(c))?;
                let heard: Vec<String> = on!(tx, |c| voice_webhooks::table
                    .filter(voice_webhooks::received_at.lt(now.minus(WEBHOOKS_KEPT).db()))
                    .select(voice_webhooks::id)
                    .limit(BATCH)
                    .load(c))?;
                let last_day = day(now.minus(USAGE_KEPT));
                on!(tx, |c| diesel::delete(voice_usage::table.filter(voice_usage::day.lt(&last_day))).execute(c))?;
                on!(tx, |c| diesel::delete(voice_webhooks::table.filter(voice_webhooks::id.eq_any(&heard)))
                    .execute(c))?;
                Ok(ids.len() + heard.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX))
            })
            .await
    }
}

fn db_ids(ids: &[GatewaySessionId]) -> Vec<DbId> {
    ids.iter().map(|id| id.db()).collect()
}
