//! What is in use when a session is to be started: open sessions, and the seconds of the day. Counted while the user is
//! locked. What has no limit is not counted.

use diesel::dsl::{count_star, not};
use diesel::prelude::*;
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::time::Timestamp;

use super::schema::{is_open, voice_sessions, voice_usage};
use crate::domain::limits::{Limits, Unproven, Usage};
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
        let open = open_of_user(tx, session)?;
        let mut others: Vec<&str> =
            open.iter().map(|one| one.session_id.as_str()).filter(|id| *id != session.session_id).collect();
        others.sort_unstable();
        others.dedup();
        usage.user_sessions = u64::try_from(others.len()).unwrap_or(u64::MAX);
        if limits.user_daily_seconds > 0 {
            let ended = ended_today(tx, &session.user_id, now)?.of(session.user_proven);
            usage.user_seconds = ended.saturating_add(granted(&open, session, now));
        }
    }
    usage.unproven = (!session.user_proven).then(Unproven::default);
    count_sessions(tx, session, limits, &mut usage)?;
    let counts_unproven = !session.user_proven && limits.unproven_daily_seconds > 0;
    if limits.total_daily_seconds > 0 || counts_unproven {
        let mut open = all_open(tx)?;
        let ended = ended_today(tx, ALL_USERS, now)?;
        usage.total_seconds = ended.all().saturating_add(granted(&open, session, now));
        if let Some(unproven) = &mut usage.unproven {
            open.retain(|one| !one.user_proven);
            unproven.seconds = ended.of(false).saturating_add(granted(&open, session, now));
        }
    }
    Ok(usage)
}

/// Counts all open sessions, and the unproven ones where they bound this start, without those that it would replace.
pub(crate) fn count_sessions(
    tx: &mut Conn,
    session: &VoiceSession,
    limits: &Limits,
    usage: &mut Usage,
) -> Result<(), StoreError> {
    use voice_sessions::dsl;
    let bounds_unproven = usage.unproven.is_some() && limits.unproven_sessions > 0;
    if limits.total_sessions == 0 && !bounds_unproven {
        return Ok(());
    }
    let replaced = dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id));
    let others = dsl::voice_sessions.filter(is_open()).filter(not(replaced));
    let unproven = diesel::dsl::count(dsl::id).aggregate_filter(dsl::user_proven.eq(false));
    let (all, unproven): (i64, i64) = on!(tx, |c| cached(others.select((count_star(), unproven))).get_result(c))?;
    if limits.total_sessions > 0 {
        usage.total_sessions = u64::try_from(all).unwrap_or(0);
    }
    if let Some(used) = usage.unproven.as_mut().filter(|_| bounds_unproven) {
        used.sessions = u64::try_from(unproven).unwrap_or(0);
    }
    Ok(())
}

/// Adds the seconds of a session that has just ended to those of its user and of all users. The order is always the same,
/// so that two transactions cannot wait for each other.
pub(super) fn add(tx: &mut Conn, session: &VoiceSession, now: Timestamp) -> Result<(), StoreError> {
    let seconds = i64::try_from(session.duration_seconds(now)).unwrap_or(i64::MAX);
    if seconds == 0 {
        return Ok(());
    }
    let day = day(session.created_at);
    let (proven, unproven) = if session.user_proven { (seconds, 0) } else { (0, seconds) };
    for user in [session.user_id.as_str(), ALL_USERS] {
        on!(tx, |c| diesel::insert_into(voice_usage::table)
            .values((
                voice_usage::day.eq(&day),
                voice_usage::user_id.eq(user),
                voice_usage::seconds.eq(proven),
                voice_usage::unproven_seconds.eq(unproven),
            ))
            .on_conflict((voice_usage::day, voice_usage::user_id))
            .do_update()
            .set((
                voice_usage::seconds.eq(voice_usage::seconds + proven),
                voice_usage::unproven_seconds.eq(voice_usage::unproven_seconds + unproven),
            ))
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
    user_proven: bool,
}

/// Seconds of the sessions that began on a day and have ended.
#[derive(Clone, Copy, Default)]
struct Ended {
    proven: u64,
    unproven: u64,
}

impl Ended {
    fn of(self, proven: bool) -> u64 {
        if proven { self.proven } else { self.unproven }
    }

    fn all(self) -> u64 {
        self.proven.saturating_add(self.unproven)
    }
}

/// The user's open sessions that are proven, or not proven, as this one is: what others begin in a user's name does not bound
/// the user.
fn open_of_user(tx: &mut Conn, session: &VoiceSession) -> Result<Vec<OpenSession>, StoreError> {
    use voice_sessions::dsl;
    let open = dsl::voice_sessions.filter(dsl::user_id.eq(&session.user_id).and(is_open()));
    let open = open.filter(dsl::user_proven.eq(session.user_proven));
    on!(tx, |c| cached(open.select((
        dsl::user_id,
        dsl::session_id,
        dsl::created_at,
        dsl::active_at,
        dsl::expires_at,
        dsl::user_proven
    )))
    .load(c))
}

fn all_open(tx: &mut Conn) -> Result<Vec<OpenSession>, StoreError> {
    use voice_sessions::dsl;
    let open = dsl::voice_sessions.filter(is_open());
    on!(tx, |c| open
        .select((dsl::user_id, dsl::session_id, dsl::created_at, dsl::active_at, dsl::expires_at, dsl::user_proven))
        .load(c))
}

fn ended_today(tx: &mut Conn, user: &str, now: Timestamp) -> Result<Ended, StoreError> {
    let row = voice_usage::table.find((day(now), user));
    let seconds: Option<(i64, i64)> =
        on!(tx, |c| row.select((voice_usage::seconds, voice_usage::unproven_seconds)).first(c).optional())?;
    let (proven, unproven) = seconds.unwrap_or_default();
    Ok(Ended { proven: u64::try_from(proven).unwrap_or(0), unproven: u64::try_from(unproven).unwrap_or(0) })
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
