//! What was said in each voice session, until a while after its end.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice_history::VoiceUtterance;

use super::schema::voice_utterances::{self, dsl};
use super::schema::{is_over, voice_sessions};
use crate::domain::history::Utterance;

pub(crate) fn insert(
    tx: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    said: &Utterance,
    now: Timestamp,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(voice_utterances::table)
        .values((
            dsl::session.eq(id.db()),
            dsl::seq.eq(seq),
            dsl::agent_id.eq(&said.id),
            dsl::role.eq(&said.role),
            dsl::body.eq(&said.text),
            dsl::cut.eq(said.cut),
            dsl::said_at.eq(now.db()),
        ))
        .execute(c))
    .map(drop)
}

/// Whether the agent has reported this one before.
pub(crate) fn is_known(c: &mut Conn, id: GatewaySessionId, agent_id: &str) -> Result<bool, StoreError> {
    let same = voice_utterances::table.filter(dsl::session.eq(id.db()).and(dsl::agent_id.eq(agent_id)));
    let found: Option<i64> = on!(c, |c| same.select(dsl::seq).first(c).optional())?;
    Ok(found.is_some())
}

/// Deletes those up to `seq`.
pub(crate) fn delete_until(tx: &mut Conn, id: GatewaySessionId, seq: i64) -> Result<(), StoreError> {
    let old = voice_utterances::table.filter(dsl::session.eq(id.db()).and(dsl::seq.le(seq)));
    on!(tx, |c| diesel::delete(old).execute(c)).map(drop)
}

/// Those after `seq`, oldest first.
pub(crate) fn after(
    c: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    limit: i64,
) -> Result<Vec<VoiceUtterance>, StoreError> {
    let rows: Vec<(i64, String, String, bool, Timestamp)> = on!(c, |c| voice_utterances::table
        .filter(dsl::session.eq(id.db()).and(dsl::seq.gt(seq)))
        .order(dsl::seq)
        .limit(limit)
        .select((dsl::seq, dsl::role, dsl::body, dsl::cut, dsl::said_at))
        .load(c))?;
    let read =
        |(seq, role, text, cut, at)| VoiceUtterance { seq: u64::try_from(seq).unwrap_or(0), role, text, cut, at };
    Ok(rows.into_iter().map(read).collect())
}

/// Deletes what was said in sessions that ended before `before`, of at most `limit` sessions. Returns how many.
pub(crate) fn purge(tx: &mut Conn, before: Timestamp, limit: i64) -> Result<usize, StoreError> {
    let over = voice_sessions::table
        .filter(is_over())
        .filter(voice_sessions::ended_at.lt(before.db()))
        .select(voice_sessions::id);
    let ids: Vec<GatewaySessionId> = on!(tx, |c| voice_utterances::table
        .filter(dsl::session.eq_any(over))
        .select(dsl::session)
        .distinct()
        .limit(limit)
        .load(c))?;
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(voice_utterances::table.filter(dsl::session.eq_any(&ids))).execute(c))
}

/// What the transcripts of each user take, of all users that have some.
pub(crate) fn bytes_of_users(c: &mut Conn) -> Result<Vec<i64>, StoreError> {
    let of_sessions = voice_utterances::table.inner_join(voice_sessions::table.on(dsl::session.eq(voice_sessions::id)));
    on!(c, |c| of_sessions
        .group_by(voice_sessions::user_id)
        .select(sql::<BigInt>("CAST(sum(octet_length(body)) AS bigint)"))
        .load(c))
}
