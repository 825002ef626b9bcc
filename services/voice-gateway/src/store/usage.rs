//! What is in use when a session is to be started: open sessions, and the seconds of the day. Counted while the user is
//! locked. What has no limit is not counted.

use diesel::dsl::{count_star, not};
use diesel::prelude::*;
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::time::Timestamp;

use super::schema::{is_open, voice_sessions, voice_usage};
use crate::domain::limits::{Limits, Usage};
use crate::domain::session::VoiceSession;

/// The user id under which the seconds of all users are counted.
const ALL_USERS: &str = "";

/// Counts without the session that this start would replace.
pub(crate) fn count(
    tx: &mut Conn,
    session: &VoiceSession,
    limits: &Limits,
    now: Timestamp,
) -> Result<Usage, StoreError> {
    let mut usage = Usage::default();
    if limits.user_sessions > 0 || limits.user_daily_seconds > 0 {
        let open = open_of_user(tx, &session.user_id)?;
        let mut others: Vec<&str> =
            open.iter().map(|one| one.session_id.as_str()).filter(|id| *id != session.session_id).collect();
        others.sort_unstable();
        others.dedup();
        usage.user_sessions = u64::try_from(others.len()).unwrap_or(u64::MAX);
        if limits.user_daily_seconds > 0 {
            usage.user_seconds = ended_today(tx, &session.user_id, now)?.saturating_add(granted(&open, session, now));
        }
    }
    if limits.total_sessions > 0 {
        usage.total_sessions = total_sessions(tx, session)?;
    }
    if limits.total_daily_seconds > 0 {
        let open = all_open(tx)?;
        usage.total_seconds = ended_today(tx, ALL_USERS, now)?.saturating_add(granted(&open, session, now));
    }
    Ok(usage)
}

/// All open sessions, without those that this start would replace.
pub(crate) fn total_sessions(tx: &mut Conn, session: &VoiceSession) -> Result<u64, StoreError> {
    use voice_sessions::dsl;
    let replaced = dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id));
    let count: i64 =
        on!(tx, |c| cached(dsl::voice_sessions.filter(is_open()).filter(not(replaced)).select(count_star()))
            .get_result(c))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Adds the seconds of a session that has just ended to those of its user and of all users. The order is always the same,
/// so that two transactions cannot wait for each other.
pub(super) fn add(tx: &mut Conn, session: &VoiceSession, now: Timestamp) -> Result<(), StoreError> {
    let seconds = i64::try_from(session.duration_seconds(now)).unwrap_or(i64::MAX);
    if seconds == 0 {
        return Ok(());
    }
    let day = day(session.created_at);
    for user in [session.user_id.as_str(), ALL_USERS] {
        on!(tx, |c| diesel::insert_into(voice_usage::table)
            .values((voice_usage::day.eq(&day), voice_usage::user_id.eq(user), voice_usage::seconds.eq(seconds)))
            .on_conflict((voice_usage::day, voice_usage::user_id))
            .do_update()
            .set(voice_usage::seconds.eq(voice_usage::seconds + seconds))
            .execute(c))?;
    }
    Ok(())
}

/// Deletes the counts of days before `before`.
pub(crate) fn purge(tx: &mut Conn, before: Timestamp) -> Result<(), StoreError> {
    let old = voice_usage::table.filter(voice_usage::day.lt(day(before)));
    on!(tx, |c| diesel::delete(old).execute(c)).map(drop)
}

/// The columns of an open session that limits depend on.
#[derive(Queryable)]
struct OpenSession {
    user_id: String,
    session_id: String,
    created_at: Timestamp,
    active_at: Option<Timestamp>,
    expires_at: Timestamp,
}

fn open_of_user(tx: &mut Conn, user: &str) -> Result<Vec<OpenSession>, StoreError> {
    use voice_sessions::dsl;
    let open = dsl::voice_sessions.filter(dsl::user_id.eq(user).and(is_open()));
    on!(tx, |c| cached(open.select((dsl::user_id, dsl::session_id, dsl::created_at, dsl::active_at, dsl::expires_at)))
        .load(c))
}

fn all_open(tx: &mut Conn) -> Result<Vec<OpenSession>, StoreError> {
    use voice_sessions::dsl;
    let open = dsl::voice_sessions.filter(is_open());
    on!(tx, |c| open.select((dsl::user_id, dsl::session_id, dsl::created_at, dsl::active_at, dsl::expires_at)).load(c))
}

/// Seconds of the sessions that began today and have ended.
fn ended_today(tx: &mut Conn, user: &str, now: Timestamp) -> Result<u64, StoreError> {
    let row = voice_usage::table.find((day(now), user));
    let seconds: Option<i64> = on!(tx, |c| row.select(voice_usage::seconds).first(c).optional())?;
    Ok(u64::try_from(seconds.unwrap_or(0)).unwrap_or(0))
}

/// Seconds that the open sessions of today may use: all that they were granted, so that two at once are not both granted the
/// rest of the day. Of those that this start would replace, the seconds so far.
fn granted(open: &[OpenSession], start: &VoiceSession, now: Timestamp) -> u64 {
    let today = day(now);
    let seconds = |one: &OpenSession| {
        let replaced = one.user_id == start.user_id && one.session_id == start.session_id;
        let until = if replaced { now } else { one.expires_at };
        let since = if replaced { one.active_at.unwrap_or(now) } else { one.active_at.unwrap_or(one.created_at) };
        u64::try_from(until.since(since).as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
    };
    open.iter().filter(|one| day(one.created_at) == today).map(seconds).fold(0, u64::saturating_add)
}

/// The day (UTC) of a time, as in `2026-03-26`.
fn day(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}
