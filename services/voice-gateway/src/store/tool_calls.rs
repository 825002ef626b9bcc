//! Which tools the agent of each voice session has called.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice_history::VoiceToolCall;

use super::schema::voice_tool_calls::{self, dsl};

pub(crate) fn insert(
    tx: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    name: &str,
    subject: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(voice_tool_calls::table)
        .values((
            dsl::session.eq(id.db()),
            dsl::seq.eq(seq),
            dsl::name.eq(name),
            dsl::subject.eq(subject),
            dsl::called_at.eq(now.db()),
        ))
        .execute(c))
    .map(drop)
}

/// The newest calls, at most `limit`, oldest first.
pub(crate) fn newest(c: &mut Conn, id: GatewaySessionId, limit: i64) -> Result<Vec<VoiceToolCall>, StoreError> {
    let rows: Vec<Row> = on!(c, |c| voice_tool_calls::table
        .filter(dsl::session.eq(id.db()))
        .order(dsl::seq.desc())
        .limit(limit)
        .select((dsl::seq, dsl::name, dsl::subject, dsl::called_at))
        .load(c))?;
    Ok(rows.into_iter().rev().map(read).collect())
}

/// Those after `seq`, oldest first.
pub(crate) fn after(
    c: &mut Conn,
    id: GatewaySessionId,
    seq: i64,
    limit: i64,
) -> Result<Vec<VoiceToolCall>, StoreError> {
    let rows: Vec<Row> = on!(c, |c| voice_tool_calls::table
        .filter(dsl::session.eq(id.db()).and(dsl::seq.gt(seq)))
        .order(dsl::seq)
        .limit(limit)
        .select((dsl::seq, dsl::name, dsl::subject, dsl::called_at))
        .load(c))?;
    Ok(rows.into_iter().map(read).collect())
}

type Row = (i64, String, Option<String>, Timestamp);

fn read((seq, name, run, at): Row) -> VoiceToolCall {
    VoiceToolCall { seq: u64::try_from(seq).unwrap_or(0), name, run, at }
}
