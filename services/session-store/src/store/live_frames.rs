//! Live frames on their way between replicas. The table is unlogged, so that a frame waits for no disk, and it is there on
//! PostgreSQL only. `number` is the database's time in microseconds.

use std::collections::BTreeSet;
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Array, BigInt, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::live::LiveFrame;
use ensemble_types::text::Blob;

use super::schema::sessions;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = Uid)]
    session_id: SessionId,
    #[diesel(sql_type = Text)]
    content: String,
}

pub(crate) fn insert(tx: &mut Conn, frames: &[LiveFrame]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO live_frames (session_id, number, content) \
        SELECT session_id, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + place, content \
        FROM unnest($1, $2) WITH ORDINALITY AS frames (session_id, content, place) ON CONFLICT DO NOTHING";
    on!(
        tx,
        Pg | c | {
            let ids: Vec<DbId> = frames.iter().map(|frame| frame.session_id.db()).collect();
            let contents: Vec<&str> = frames.iter().map(|frame| &*frame.content).collect();
            let insert = sql_query(INSERT).bind::<Array<Uid>, _>(ids).bind::<Array<Text>, _>(contents);
            cached(insert).execute(c).map(drop)
        },
        Sqlite | _c | Ok(()),
    )
}

/// The frames of these sessions after these numbers that are not older than `fresh_for`, in their order.
pub(crate) fn after(
    c: &mut Conn,
    positions: &[(SessionId, i64)],
    fresh_for: Duration,
) -> Result<Vec<(i64, LiveFrame)>, StoreError> {
    const AFTER: &str = "SELECT number, session_id, content FROM unnest($1, $2) AS followed (id, position) \
        JOIN live_frames ON session_id = followed.id AND number > followed.position \
        AND number > CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) - $3 ORDER BY number";
    let rows: Vec<Row> = on!(
        c,
        Pg | c | {
            let (ids, numbers): (Vec<DbId>, Vec<i64>) = positions.iter().map(|(id, number)| (id.db(), *number)).unzip();
            let after = sql_query(AFTER).bind::<Array<Uid>, _>(ids).bind::<Array<BigInt>, _>(numbers);
            cached(after.bind::<BigInt, _>(micros(fresh_for))).load(c)
        },
        Sqlite | _c | Ok(Vec::new()),
    )?;
    let operation = c.operation();
    let frame = |row: Row| {
        let content = Blob::new(row.content).map_err(|error| StoreError::bad_row(operation, error))?;
        Ok((row.number, LiveFrame { session_id: row.session_id, content }))
    };
    rows.into_iter().map(frame).collect()
}

/// Who owns these sessions, and the machine that made each, if one did. Leaves out deleted sessions.
pub(crate) fn owners(
    c: &mut Conn,
    of: &BTreeSet<SessionId>,
) -> Result<Vec<(SessionId, UserId, Option<String>)>, StoreError> {
    let ids: Vec<DbId> = of.iter().map(|session| session.db()).collect();
    let rows: Vec<(SessionId, UserId, bool, String)> = on!(c, |c| sessions::table
        .filter(sessions::id.eq_any(&ids).and(sessions::deleted_at.is_null()))
        .select((sessions::id, sessions::owner_id, sessions::hosted, sessions::machine_id))
        .load(c))?;
    Ok(rows.into_iter().map(|(id, owner, hosted, machine)| (id, owner, hosted.then_some(machine))).collect())
}

/// Removes frames that are older than this.
pub(crate) fn remove_old(tx: &mut Conn, kept: Duration) -> Result<(), StoreError> {
    const REMOVE: &str = "DELETE FROM live_frames \
        WHERE number < CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) - $1";
    on!(tx, Pg | c | sql_query(REMOVE).bind::<BigInt, _>(micros(kept)).execute(c).map(drop), Sqlite | _c | Ok(()),)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
