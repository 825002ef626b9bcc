//! Recording a session far from all limits: one call to PostgreSQL, which locks, counts, compares and records.
//!
//! What comes close to a limit, repeats an `Idempotency-Key`, or has a wrong idea of the time is not recorded here; it takes
//! the careful way, in a transaction of several steps, where the domain decides.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};
use ensemble_store_kit::types::{IntoDb, Moment, Uid};
use ensemble_store_kit::{AdvisoryLock, Conn, Raw, StoreError};
use ensemble_types::time::Timestamp;

use super::rows::{START_ROUTE, to_json};
use super::start::NewSession;
use crate::domain::limits::Bounds;
use crate::domain::session::VoiceSession;

diesel::define_sql_function! {
    #[expect(clippy::too_many_arguments, reason = "one call instead of four")]
    fn voice_open(
        turn: BigInt, user: Text, session: Text,
        total: Nullable<BigInt>, below_user_sessions: BigInt, below_total_sessions: BigInt, below_user_seconds: BigInt,
        below_total_seconds: BigInt,
        key: Nullable<Text>, route: Text, body_hash: Nullable<Binary>,
        id: Uid, room: Text, record: Text, created_at: Moment, expires_at: Moment,
        due_at: Nullable<Moment>, agent_token: Binary, context_version: BigInt, context: Nullable<Text>,
        repeated: Bool,
    ) -> Record<(Bool, Moment, Bool, BigInt)>;
}

/// What PostgreSQL said.
pub(super) struct Answer {
    pub(super) opened: bool,
    /// The database's time.
    pub(super) now: Timestamp,
    /// Another session for the same user and application session is open.
    pub(super) replaces: bool,
    pub(super) total_sessions: u64,
}

/// A new session that has begun, with all the time that one may have, at about the database's time.
pub(super) struct Begun<'a> {
    pub(super) session: &'a VoiceSession,
    pub(super) due_at: Option<Timestamp>,
    /// It may have been recorded before, by a call whose answer was lost.
    pub(super) repeated: bool,
}

/// `total`: how many sessions are open in all, if that is known.
pub(super) fn open(
    c: &mut Conn,
    new: &NewSession,
    begun: &Begun<'_>,
    turn: AdvisoryLock,
    total: Option<u64>,
    bounds: Bounds,
) -> Result<Answer, StoreError> {
    let (session, key) = (begun.session, new.key.as_ref());
    let call = diesel::select(voice_open(
        turn.0,
        &session.user_id,
        &session.session_id,
        total.map(|total| i64::try_from(total).unwrap_or(i64::MAX)),
        bounds.user_sessions,
        bounds.total_sessions,
        bounds.user_seconds,
        bounds.total_seconds,
        key.map(|key| key.key.as_str()),
        START_ROUTE,
        key.map(|key| key.body_hash.as_slice()),
        session.id.db(),
        &session.room_name,
        to_json(c, session)?,
        session.created_at.db(),
        session.expires_at.db(),
        begun.due_at.db(),
        new.agent_token.as_slice(),
        session.context.version,
        new.context.as_deref(),
        begun.repeated,
    ));
    let outcome = match &mut c.raw {
        Raw::Pg(pg) => call.get_result(&mut **pg),
        Raw::Sqlite(_) => return Err(StoreError::bad_row(c.operation(), "SQLite has no such function")),
    };
    let (opened, now, replaces, total): (bool, Timestamp, bool, i64) = c.record(outcome)?;
    Ok(Answer { opened, now, replaces, total_sessions: u64::try_from(total).unwrap_or(0) })
}
