//! Sessions: one by its id, and those that timers, the reconciler and limits look for.

use std::time::Duration;

use diesel::dsl::count_star;
use diesel::prelude::*;
use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use super::schema::{is_live, is_open, is_over, voice_sessions};
use super::stored::{Row, START_ROUTE, phase, to_json};
pub(crate) use super::stored::{lock, next_item, read, save};
use super::{StoredSession, contexts};
use crate::domain::session::{NewSession, StartKey, VoiceSession};
use crate::domain::state::Rules;

/// Claims the `Idempotency-Key` of a start for this session.
pub(crate) fn claim_key(
    tx: &mut Conn,
    session: &VoiceSession,
    StartKey { key, body_hash }: StartKey,
) -> Result<IdempotencyOutcome, StoreError> {
    let request = IdempotencyRequest { scope: session.user_id.clone(), route: START_ROUTE, key, body_hash };
    idempotency::claim(tx, &request, &session.id.to_string())
}

pub(crate) fn insert(tx: &mut Conn, new: &NewSession, session: &VoiceSession, rules: &Rules) -> Result<(), StoreError> {
    use voice_sessions::dsl;
    let record = to_json(tx, session)?;
    on!(tx, |c| cached(diesel::insert_into(dsl::voice_sessions).values((
        dsl::id.eq(session.id.db()),
        dsl::user_id.eq(&session.user_id),
        dsl::session_id.eq(&session.session_id),
        dsl::room_name.eq(&session.room_name),
        dsl::phase.eq(phase(&session.state)),
        dsl::created_at.eq(session.created_at.db()),
        dsl::expires_at.eq(session.expires_at.db()),
        dsl::record.eq(&record),
        dsl::due_at.eq(session.due_at(rules).db()),
        dsl::agent_token.eq(new.agent_token.as_slice()),
        dsl::user_proven.eq(session.user_proven),
        dsl::idempotency_key.eq(new.key.as_ref().map(|key| &key.key)),
    )))
    .execute(c))?;
    match &new.context {
        Some(body) => contexts::put(tx, session.id, session.context.version, body),
        None => Ok(()),
    }
}

/// The other live sessions of the same user and application session, locked. Lock the user first.
pub(crate) fn lock_live_of_same_pair(tx: &mut Conn, session: &VoiceSession) -> Result<Vec<StoredSession>, StoreError> {
    use voice_sessions::dsl;
    let ids: Vec<GatewaySessionId> = on!(tx, |c| cached(
        dsl::voice_sessions
            .filter(dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id)))
            .filter(dsl::id.ne(session.id.db()).and(is_live()))
            .select(dsl::id)
    )
    .load(c))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(lock(tx, id)?.map(|(stored, _)| stored));
    }
    Ok(found)
}

/// Takes sessions whose deadline has passed, and moves their deadlines by `lease`: another replica takes them then if this
/// one dies.
pub(crate) fn claim_due(tx: &mut Conn, limit: i64, lease: Duration) -> Result<Vec<VoiceSession>, StoreError> {
    use voice_sessions::dsl;
    let now = tx.now()?;
    let due = || dsl::voice_sessions.filter(dsl::due_at.le(now.db())).order(dsl::due_at).limit(limit);
    let rows: Vec<Row> = on!(
        tx,
        Pg | c | due().select(Row::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due().select(Row::as_select()).load(c)
    )?;
    let claimed = sessions(rows, tx.operation())?;
    let ids: Vec<DbId> = claimed.iter().map(|session| session.id.db()).collect();
    if !ids.is_empty() {
        on!(tx, |c| diesel::update(dsl::voice_sessions.filter(dsl::id.eq_any(&ids)))
            .set(dsl::due_at.eq(Some(now.plus(lease).db())))
            .execute(c))?;
    }
    Ok(claimed)
}

/// The database's time, and when the next session is due or has something to deliver.
pub(crate) fn next_due(c: &mut Conn) -> Result<(Timestamp, Option<Timestamp>), StoreError> {
    use voice_sessions::dsl;
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
}

/// Sessions in which something can be delivered now.
pub(crate) fn deliverable(c: &mut Conn, limit: i64) -> Result<Vec<GatewaySessionId>, StoreError> {
    use voice_sessions::dsl;
    let now = c.now()?;
    on!(c, |c| dsl::voice_sessions
        .filter(dsl::deliver_at.le(now.db()))
        .order(dsl::deliver_at)
        .limit(limit)
        .select(dsl::id)
        .load(c))
}

/// Neither ending nor over.
pub(crate) fn open(c: &mut Conn) -> Result<Vec<VoiceSession>, StoreError> {
    use voice_sessions::dsl;
    let rows: Vec<Row> = on!(c, |c| dsl::voice_sessions.filter(is_open()).select(Row::as_select()).load(c))?;
    sessions(rows, c.operation())
}

pub(crate) fn live(c: &mut Conn) -> Result<Vec<VoiceSession>, StoreError> {
    use voice_sessions::dsl;
    let rows: Vec<Row> = on!(c, |c| dsl::voice_sessions.filter(is_live()).select(Row::as_select()).load(c))?;
    sessions(rows, c.operation())
}

/// Which of these sessions may have a room: those that exist and are open.
pub(crate) fn open_among(c: &mut Conn, ids: &[GatewaySessionId]) -> Result<Vec<GatewaySessionId>, StoreError> {
    use voice_sessions::dsl;
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(c, |c| dsl::voice_sessions.filter(dsl::id.eq_any(&ids).and(is_open())).select(dsl::id).load(c))
}

/// The sessions of a user, newest first, after the one that was created at this time and has this id.
pub(crate) fn of_user(
    c: &mut Conn,
    user: &str,
    after: Option<(Timestamp, GatewaySessionId)>,
    limit: i64,
) -> Result<Vec<StoredSession>, StoreError> {
    use voice_sessions::dsl;
    let rows: Vec<Row> = on!(c, |c| {
        let mut query = dsl::voice_sessions
            .filter(dsl::user_id.eq(user))
            .order((dsl::created_at.desc(), dsl::id.desc()))
            .limit(limit)
            .select(Row::as_select())
            .into_boxed();
        if let Some((at, id)) = after {
            let older = dsl::created_at.lt(at.db()).or(dsl::created_at.eq(at.db()).and(dsl::id.lt(id.db())));
            query = query.filter(older);
        }
        query.load(c)
    })?;
    rows.into_iter().map(|row| row.into_stored(c.operation())).collect()
}

/// How many sessions are open, and how many texts wait in them.
pub(crate) fn count_open(c: &mut Conn) -> Result<(i64, i64), StoreError> {
    use voice_sessions::dsl;
    let open = || dsl::voice_sessions.filter(is_open());
    let sessions: i64 = on!(c, |c| open().select(count_star()).first(c))?;
    let queues: Vec<i64> = on!(c, |c| open().filter(dsl::queued.gt(0)).select(dsl::queued).load(c))?;
    Ok((sessions, queues.into_iter().sum()))
}

/// Deletes sessions that ended before `before`; gives how many there were.
pub(crate) fn purge(tx: &mut Conn, before: Timestamp, limit: i64) -> Result<usize, StoreError> {
    use voice_sessions::dsl;
    let old = dsl::ended_at.lt(before.db()).and(is_over());
    let ids: Vec<GatewaySessionId> = on!(tx, |c| dsl::voice_sessions.filter(old).select(dsl::id).limit(limit).load(c))?;
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(dsl::voice_sessions.filter(dsl::id.eq_any(&ids))).execute(c))
}

fn sessions(rows: Vec<Row>, operation: &'static str) -> Result<Vec<VoiceSession>, StoreError> {
    rows.into_iter().map(|row| row.into_stored(operation).map(|stored| stored.session)).collect()
}
