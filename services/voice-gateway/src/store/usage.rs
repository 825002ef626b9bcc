//! What is in use when a session is to be started: counted under the lock that lets one user's starts take turns.
//!
//! On PostgreSQL by a function of the schema, in one statement, because each way to the database and back is time that a
//! caller waits; on SQLite, which is in this process, in several plain ones.

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use ensemble_store_kit::types::Moment;
use ensemble_store_kit::{Conn, Raw, StoreError, cached, on};
use ensemble_types::time::Timestamp;

use super::rows::{day, is_open, voice_sessions, voice_usage};
use crate::domain::limits::{Limits, Usage};
use crate::domain::session::VoiceSession;

/// The user whose seconds are those of everybody.
const EVERYBODY: &str = "";

/// What was found, and when.
pub(super) struct InUse {
    /// Without the session that the start would replace.
    pub(super) usage: Usage,
    /// There is such a session.
    pub(super) replaces: bool,
    /// The database's time.
    pub(super) now: Timestamp,
}

/// `total`: how many sessions are open in all, if that is known.
pub(super) fn usage(
    tx: &mut Conn,
    session: &VoiceSession,
    limits: &Limits,
    total: Option<u64>,
) -> Result<InUse, StoreError> {
    let count_all = limits.total_sessions > 0 && total.is_none();
    if let Raw::Pg(pg) = &mut tx.raw {
        let (user_seconds, total_seconds) = (limits.user_daily_seconds > 0, limits.total_daily_seconds > 0);
        let call = voice_in_use(&session.user_id, &session.session_id, count_all, user_seconds, total_seconds);
        let found = diesel::select(call).get_result::<Counts>(&mut **pg);
        let mut found = tx.record(found).map(InUse::from)?;
        found.usage.total_sessions = total.unwrap_or(found.usage.total_sessions);
        return Ok(found);
    }
    let now = tx.now()?;
    let open = open_sessions(tx, &session.user_id)?;
    let mut others: Vec<&str> =
        open.iter().map(|one| one.session_id.as_str()).filter(|id| *id != session.session_id).collect();
    let replaces = others.len() < open.len();
    others.sort_unstable();
    others.dedup();
    let user_sessions = others.len() as u64;
    let total_sessions = if count_all { total_sessions(tx, session)? } else { total.unwrap_or(0) };
    let user_seconds = match limits.user_daily_seconds {
        0 => 0,
        _ => ended_today(tx, &session.user_id, now)?.saturating_add(going_on(&open, now)),
    };
    let total_seconds = match limits.total_daily_seconds {
        0 => 0,
        _ => ended_today(tx, EVERYBODY, now)?.saturating_add(going_on(&all_open_sessions(tx)?, now)),
    };
    Ok(InUse { usage: Usage { user_sessions, total_sessions, user_seconds, total_seconds }, replaces, now })
}

/// All open sessions, without those that this start would replace.
pub(super) fn total_sessions(tx: &mut Conn, session: &VoiceSession) -> Result<u64, StoreError> {
    use voice_sessions::dsl;
    let replaced = dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id));
    let count: i64 = on!(tx, |c| dsl::voice_sessions
        .filter(is_open())
        .filter(diesel::dsl::not(replaced))
        .select(count_star())
        .first(c))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

diesel::define_sql_function! {
    /// What is not asked for is not counted.
    fn voice_in_use(
        user: Text, session: Text, ask_total: Bool, ask_user_seconds: Bool, ask_total_seconds: Bool,
    ) -> Record<(Moment, BigInt, Bool, BigInt, BigInt, BigInt)>;
}

/// Now; others of this user; whether one will be replaced; all others; seconds of this user; seconds of everybody.
type Counts = (Timestamp, i64, bool, i64, i64, i64);

impl From<Counts> for InUse {
    fn from((now, user_sessions, replaces, total_sessions, user_seconds, total_seconds): Counts) -> Self {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let usage = Usage {
            user_sessions: number(user_sessions),
            total_sessions: number(total_sessions),
            user_seconds: number(user_seconds),
            total_seconds: number(total_seconds),
        };
        Self { usage, replaces, now }
    }
}

/// An open session, as far as limits go.
#[derive(Queryable)]
struct Open {
    session_id: String,
    created_at: Timestamp,
    active_at: Option<Timestamp>,
}

fn open_sessions(tx: &mut Conn, user: &str) -> Result<Vec<Open>, StoreError> {
    use voice_sessions::dsl;
    on!(tx, |c| cached(dsl::voice_sessions.filter(dsl::user_id.eq(user).and(is_open())).select((
        dsl::session_id,
        dsl::created_at,
        dsl::active_at
    )))
    .load(c))
}

fn all_open_sessions(tx: &mut Conn) -> Result<Vec<Open>, StoreError> {
    use voice_sessions::dsl;
    on!(tx, |c| dsl::voice_sessions
        .filter(is_open())
        .select((dsl::session_id, dsl::created_at, dsl::active_at))
        .load(c))
}

/// Seconds of the sessions that began today and have ended; the empty user is everybody.
fn ended_today(tx: &mut Conn, user: &str, now: Timestamp) -> Result<u64, StoreError> {
    let seconds: Option<i64> =
        on!(tx, |c| voice_usage::table.find((day(now), user)).select(voice_usage::seconds).first(c).optional())?;
    Ok(u64::try_from(seconds.unwrap_or(0)).unwrap_or(0))
}

/// Seconds so far of the sessions that began today and go on.
fn going_on(open: &[Open], now: Timestamp) -> u64 {
    let today = day(now);
    let of_today = open.iter().filter(|one| day(one.created_at) == today);
    of_today.filter_map(|one| one.active_at).map(|since| now.since(since).as_secs()).sum()
}
