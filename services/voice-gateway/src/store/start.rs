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
    use voice_sessions::dsl;
    let open = dsl::phase.eq_any(["creating", "live"]);
    let mut others: Vec<String> = on!(tx, |c| dsl::voice_sessions
        .filter(dsl::user_id.eq(&session.user_id).and(dsl::session_id.ne(&session.session_id)).and(open))
        .select(dsl::session_id)
        .load(c))?;
    others.sort_unstable();
    others.dedup();
    let total_sessions = if limits.total_sessions > 0 { total_sessions(tx, session)? } else { 0 };
    let user_seconds = if limits.user_daily_seconds > 0 { seconds_today(tx, Some(&session.user_id), now)? } else { 0 };
    let total_seconds = if limits.total_daily_seconds > 0 { seconds_today(tx, None, now)? } else { 0 };
    Ok(Usage { user_sessions: others.len() as u64, total_sessions, user_seconds, total_seconds })
}

fn total_sessions(tx: &mut Conn, session: &VoiceSession) -> Result<u64, StoreError> {
    use voice_sessions::dsl;
    let open = dsl::phase.eq_any(["creating", "live"]);
    let replaced = dsl::user_id.eq(&session.user_id).and(dsl::session_id.eq(&session.session_id));
    let count: i64 =
        on!(tx, |c| dsl::voice_sessions.filter(open).filter(diesel::dsl::not(replaced)).select(count_star()).first(c))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Seconds of sessions that began today: those that ended, and those that go on, up to now.
fn seconds_today(tx: &mut Conn, user: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
    use voice_sessions::dsl;
    let today = day(now);
    let ended: Option<i64> = on!(tx, |c| voice_usage::table
        .find((&today, user.unwrap_or("")))
        .select(voice_usage::seconds)
        .first(c)
        .optional())?;
    let live: Vec<(Timestamp, Option<Timestamp>)> = match user {
        Some(user) => on!(tx, |c| dsl::voice_sessions
            .filter(dsl::phase.eq("live").and(dsl::user_id.eq(user)))
            .select((dsl::created_at, dsl::active_at))
            .load(c))?,
        None => on!(tx, |c| dsl::voice_sessions
            .filter(dsl::phase.eq("live"))
            .select((dsl::created_at, dsl::active_at))
            .load(c))?,
    };
    let going_on: u64 = live
        .into_iter()
        .filter(|(created_at, _)| day(*created_at) == today)
        .filter_map(|(_, active_at)| active_at.map(|since| now.since(since).as_secs()))
        .sum();
    Ok(u64::try_from(ended.unwrap_or(0)).unwrap_or(0).saturating_add(going_on))
}
