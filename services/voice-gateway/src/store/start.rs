//! Recording a new voice session: once per `Idempotency-Key`, and within the limits.

use diesel::dsl::count_star;
use diesel::prelude::*;
use ensemble_store_kit::idempotency::{Claim, Wish, claim};
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceRefusal;

use super::rows::{START_ROUTE, day, phase, to_json, voice_contexts, voice_sessions, voice_usage};
use super::sessions::{queue_by, queue_by_user};
use super::{Nudge, Store};
use crate::domain::limits::{Limits, Usage};
use crate::domain::session::VoiceSession;

/// A session to be recorded. Its times are set by the database's clock.
#[derive(Clone)]
pub(crate) struct NewSession {
    pub(crate) session: VoiceSession,
    pub(crate) context: Option<String>,
    /// SHA-256 of the agent's credential.
    pub(crate) agent_token: [u8; 32],
    pub(crate) key: Option<StartKey>,
}

/// The caller's `Idempotency-Key` and the digest of the body.
#[derive(Clone)]
pub(crate) struct StartKey {
    pub(crate) key: String,
    pub(crate) body_hash: [u8; 32],
}

/// What became of a start.
#[derive(Debug)]
pub(crate) enum Opened {
    New(Box<VoiceSession>),
    /// The same wish was recorded before, as this session.
    Replay(GatewaySessionId),
    /// The key was used with another body.
    Mismatch,
    Refused(VoiceRefusal),
}

/// Why nothing was recorded; it rolls the transaction back, and the key with it.
enum Stop {
    Refused(VoiceRefusal),
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Phases of sessions that count against limits.
const OPEN: [&str; 2] = ["creating", "live"];

/// More starts than this are never between their count and their commit: connections to the database, on all replicas.
const IN_FLIGHT: u64 = 256;

impl Store {
    pub(crate) async fn open(&self, new: NewSession, limits: Limits) -> Result<Opened, StoreError> {
        let rules = self.rules.clone();
        let opened = self
            .db
            .write("record a voice session", move |tx| {
                let mut session = new.session.clone();
                if let Some(StartKey { key, body_hash }) = new.key.clone() {
                    let wish = Wish { scope: session.user_id.clone(), route: START_ROUTE, key, body_hash };
                    match claim(tx, &wish, &session.id.to_string())? {
                        Claim::New => {}
                        Claim::Mismatch => return Ok(Opened::Mismatch),
                        Claim::Replay { resource } => {
                            let id = resource.parse().map_err(|error| StoreError::bad_row(tx.operation(), error))?;
                            return Ok(Opened::Replay(id));
                        }
                    }
                }
                queue_by_user(tx, &session.user_id)?;
                let now = tx.now()?;
                let mut usage = usage(tx, &session, &limits, now)?;
                if limits.must_queue(usage.total_sessions, IN_FLIGHT) {
                    queue_by(tx, "voice:total")?;
                    usage.total_sessions = total_sessions(tx, &session)?;
                }
                let granted = limits.grant(usage).map_err(Stop::Refused)?;
                session.begin(now, granted, &rules);
                insert(tx, &new, &session, session.due_at(&rules))?;
                Ok(Opened::New(Box::new(session)))
            })
            .await;
        match opened {
            Ok(opened) => {
                if let Opened::New(session) = &opened
                    && let Some(due_at) = session.due_at(&self.rules)
                {
                    self.nudges.send(Nudge::Due(due_at));
                }
                Ok(opened)
            }
            Err(Stop::Refused(refusal)) => Ok(Opened::Refused(refusal)),
            Err(Stop::Store(error)) => Err(error),
        }
    }
}

fn insert(
    tx: &mut Conn,
    new: &NewSession,
    session: &VoiceSession,
    due_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    use voice_sessions::dsl;
    let record = to_json(tx, session)?;
    on!(tx, |c| diesel::insert_into(dsl::voice_sessions)
        .values((
            dsl::id.eq(session.id.db()),
            dsl::user_id.eq(&session.user_id),
            dsl::session_id.eq(&session.session_id),
            dsl::room_name.eq(&session.room_name),
            dsl::phase.eq(phase(&session.state)),
            dsl::created_at.eq(session.created_at.db()),
            dsl::expires_at.eq(session.expires_at.db()),
            dsl::record.eq(&record),
            dsl::due_at.eq(due_at.db()),
            dsl::agent_token.eq(new.agent_token.as_slice()),
            dsl::idempotency_key.eq(new.key.as_ref().map(|key| &key.key)),
        ))
        .execute(c))?;
    if let Some(context) = &new.context {
        on!(tx, |c| diesel::insert_into(voice_contexts::table)
            .values((
                voice_contexts::session.eq(session.id.db()),
                voice_contexts::version.eq(session.context.version),
                voice_contexts::body.eq(context),
            ))
            .execute(c))?;
    }
    Ok(())
}

/// What is in use, without the session that this start would replace.
fn usage(tx: &mut Conn, session: &VoiceSession, limits: &Limits, now: Timestamp) -> Result<Usage, StoreError> {
    let open = open_sessions(tx, session)?;
    let mut others: Vec<&str> =
        open.iter().map(|one| one.session_id.as_str()).filter(|id| *id != session.session_id).collect();
    others.sort_unstable();
    others.dedup();
    let user_sessions = others.len() as u64;
    let total_sessions = if limits.total_sessions > 0 { total_sessions(tx, session)? } else { 0 };
    let user_seconds = match limits.user_daily_seconds {
        0 => 0,
        _ => ended_today(tx, &session.user_id, now)?.saturating_add(going_on(&open, now)),
    };
    let total_seconds = match limits.total_daily_seconds {
        0 => 0,
        _ => ended_today(tx, "", now)?.saturating_add(going_on(&all_open_sessions(tx)?, now)),
    };
    Ok(Usage { user_sessions, total_sessions, user_seconds, total_seconds })
}

/// An open session, as far as limits go.
#[derive(Queryable)]
struct Open {
    session_id: String,
    created_at: Timestamp,
    active_at: Option<Timestamp>,
}

fn open_sessions(tx: &mut Conn, session: &VoiceSession) -> Result<Vec<Open>, StoreError> {
    use voice_sessions::dsl;
    on!(tx, |c| dsl::voice_sessions
        .filter(dsl::user_id.eq(&session.user_id).and(dsl::phase.eq_any(OPEN)))
        .select((dsl::session_id, dsl::created_at, dsl::active_at))
        .load(c))
}

fn all_open_sessions(tx: &mut Conn) -> Result<Vec<Open>, StoreError> {
    use voice_sessions::dsl;
    on!(tx, |c| dsl::voice_sessions
        .filter(dsl::phase.eq_any(OPEN))
        .select((dsl::session_id, dsl::created_at, dsl::active_at))
        .load(c))
}

fn total_sessions(tx: &mut Conn, session: &VoiceSession) -> Result<u64, StoreError> {
    use voice_sessions::dsl;
    let replaced = dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id));
    let count: i64 = on!(tx, |c| dsl::voice_sessions
        .filter(dsl::phase.eq_any(OPEN))
        .filter(diesel::dsl::not(replaced))
        .select(count_star())
        .first(c))?;
    Ok(u64::try_from(count).unwrap_or(0))
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
