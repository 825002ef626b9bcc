//! The tables, and the way from a row to a session and back.

use ensemble_store_kit::idempotency::idempotency_keys;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{GatewaySessionId, LeaseId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceEndReason;

use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::Bool;

use super::{Nudge, topic};
use crate::domain::session::VoiceSession;
use crate::domain::state::{Rules, State};

diesel::table! {
    use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_sessions (id) {
        id -> Uid,
        user_id -> Text,
        session_id -> Text,
        room_name -> Text,
        phase -> Text,
        end_reason -> Nullable<Text>,
        created_at -> Moment,
        active_at -> Nullable<Moment>,
        ended_at -> Nullable<Moment>,
        expires_at -> Moment,
        record -> Text,
        due_at -> Nullable<Moment>,
        agent_token -> Binary,
        agent_token_before -> Nullable<Binary>,
        idempotency_key -> Nullable<Text>,
        next_seq -> BigInt,
        queued -> BigInt,
        deliver_at -> Nullable<Moment>,
        delivery_claim -> Nullable<Uid>,
        delivery_failures -> Integer,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_texts (session, seq) {
        session -> Uid,
        seq -> BigInt,
        message_id -> Text,
        body -> Text,
        created_at -> Moment,
        delivery -> Nullable<Text>,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Text};
    use ensemble_store_kit::types::Uid;

    voice_contexts (session) {
        session -> Uid,
        version -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Moment;

    voice_webhooks (id) {
        id -> Text,
        received_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Text};

    voice_usage (day, user_id) {
        day -> Text,
        user_id -> Text,
        seconds -> BigInt,
    }
}

diesel::table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Moment;

    voice_chores (name) {
        name -> Text,
        due_at -> Moment,
    }
}

/// The route under which `Idempotency-Key`s of starts are kept.
pub(super) const START_ROUTE: &str = "POST /v1/voice/session/start";

/// Not over, and not about to be. Written out, as the next two are: PostgreSQL and SQLite find an index for some rows by it.
pub(super) fn is_open() -> SqlLiteral<Bool> {
    sql("phase IN ('creating', 'live')")
}

pub(super) fn is_live() -> SqlLiteral<Bool> {
    sql("phase = 'live'")
}

pub(super) fn is_over() -> SqlLiteral<Bool> {
    sql("phase = 'over'")
}

/// A row as it is read, with the session in it.
#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) session: VoiceSession,
    pub(super) agent_token: Vec<u8>,
    pub(super) agent_token_before: Option<Vec<u8>>,
    pub(super) idempotency_key: Option<String>,
    pub(super) next_seq: i64,
    pub(super) queued: i64,
    pub(super) deliver_at: Option<Timestamp>,
    pub(super) claim: Option<LeaseId>,
    pub(super) failures: i32,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = voice_sessions)]
pub(super) struct Row {
    record: String,
    agent_token: Vec<u8>,
    agent_token_before: Option<Vec<u8>>,
    idempotency_key: Option<String>,
    next_seq: i64,
    queued: i64,
    deliver_at: Option<Timestamp>,
    delivery_claim: Option<LeaseId>,
    delivery_failures: i32,
}

impl Row {
    pub(super) fn into_loaded(self, operation: &'static str) -> Result<Loaded, StoreError> {
        Ok(Loaded {
            session: serde_json::from_str(&self.record).map_err(|error| StoreError::bad_row(operation, error))?,
            agent_token: self.agent_token,
            agent_token_before: self.agent_token_before,
            idempotency_key: self.idempotency_key,
            next_seq: self.next_seq,
            queued: self.queued,
            deliver_at: self.deliver_at,
            claim: self.delivery_claim,
            failures: self.delivery_failures,
        })
    }
}

impl Loaded {
    /// Whether the agent can be given something now.
    pub(super) fn is_deliverable(&self) -> bool {
        self.session.reachable_agent().is_some() && (self.queued > 0 || self.session.context.is_pending())
    }

    /// Sets when to deliver after anything changed. A delivery that is under way, or waits after a failure, stays as it is.
    fn plan_delivery(&mut self, now: Timestamp, became_reachable: bool) {
        if !self.is_deliverable() {
            if self.claim.is_none() {
                self.deliver_at = None;
            }
        } else if self.deliver_at.is_none() || (became_reachable && self.claim.is_none()) {
            self.deliver_at = Some(now);
        }
    }
}

/// A session as it is, and the database's time.
pub(super) fn read(c: &mut Conn, id: GatewaySessionId) -> Result<Option<(Loaded, Timestamp)>, StoreError> {
    let query = voice_sessions::table.find(id.db());
    let found: Option<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).first(c).optional())?;
    found.map(|(row, now)| Ok((row.into_loaded(c.operation())?, now))).transpose()
}

/// The same, locked until the transaction ends.
pub(super) fn lock(tx: &mut Conn, id: GatewaySessionId) -> Result<Option<(Loaded, Timestamp)>, StoreError> {
    let query = voice_sessions::table.find(id.db());
    let found: Option<(Row, Timestamp)> = on!(
        tx,
        Pg | c | query.select((Row::as_select(), now())).for_update().first(c).optional(),
        Sqlite | c | query.select((Row::as_select(), now())).first(c).optional()
    )?;
    found.map(|(row, now)| Ok((row.into_loaded(tx.operation())?, now))).transpose()
}

/// Writes a locked session back. Gives what this process should know once it is committed.
pub(super) fn save(
    tx: &mut Conn,
    before: &VoiceSession,
    after: &mut Loaded,
    now: Timestamp,
    rules: &Rules,
) -> Result<Vec<Nudge>, StoreError> {
    use voice_sessions::dsl;
    let became_reachable = before.reachable_agent().is_none() && after.session.reachable_agent().is_some();
    after.plan_delivery(now, became_reachable);
    let just_ended = !before.is_over() && after.session.is_over();
    if just_ended {
        after.session.welcome_message = None;
        forget_contents(tx, after)?;
        charge(tx, &after.session, now)?;
        forget_key(tx, after)?;
    }
    let record = to_json(tx, &after.session)?;
    let due_at = after.session.due_at(rules);
    on!(tx, |c| cached(diesel::update(dsl::voice_sessions.find(after.session.id.db())).set((
        dsl::record.eq(&record),
        dsl::phase.eq(phase(&after.session.state)),
        dsl::end_reason.eq(after.session.state.end().map(|end| reason(end.reason))),
        dsl::active_at.eq(after.session.state.active_at().db()),
        dsl::ended_at.eq(after.session.ended_at().db()),
        dsl::due_at.eq(due_at.db()),
        dsl::agent_token.eq(&after.agent_token),
        dsl::agent_token_before.eq(&after.agent_token_before),
        dsl::next_seq.eq(after.next_seq),
        dsl::queued.eq(after.queued),
        dsl::deliver_at.eq(after.deliver_at.db()),
        dsl::delivery_claim.eq(after.claim.db()),
        dsl::delivery_failures.eq(after.failures),
    )))
    .execute(c))?;
    tx.notify(topic(after.session.id));
    let mut nudges: Vec<Nudge> = due_at.into_iter().map(Nudge::Due).collect();
    if after.deliver_at == Some(now) {
        nudges.push(Nudge::Deliver(after.session.id));
    }
    Ok(nudges)
}

/// What was said and known is nobody's business once the session is over; how much had not arrived stays told.
fn forget_contents(tx: &mut Conn, ended: &Loaded) -> Result<(), StoreError> {
    let id = ended.session.id;
    on!(tx, |c| diesel::delete(voice_contexts::table.find(id.db())).execute(c))?;
    if ended.next_seq > 1 {
        on!(tx, |c| cached(
            diesel::update(voice_texts::table.filter(voice_texts::session.eq(id.db()))).set(voice_texts::body.eq(""))
        )
        .execute(c))?;
    }
    Ok(())
}

/// A start that failed must not be what its `Idempotency-Key` stands for.
fn forget_key(tx: &mut Conn, ended: &Loaded) -> Result<(), StoreError> {
    let failed = ended.session.state.end().is_some_and(|end| end.reason == VoiceEndReason::StartFailed);
    if let (true, Some(key)) = (failed, &ended.idempotency_key) {
        let row = (&ended.session.user_id, START_ROUTE, key);
        on!(tx, |c| diesel::delete(idempotency_keys::table.find(row)).execute(c))?;
    }
    Ok(())
}

/// Counts the seconds of a session that has just ended, for its user and for everybody, in this order.
fn charge(tx: &mut Conn, session: &VoiceSession, now: Timestamp) -> Result<(), StoreError> {
    let seconds = i64::try_from(session.duration_seconds(now)).unwrap_or(i64::MAX);
    if seconds == 0 {
        return Ok(());
    }
    let day = day(session.created_at);
    for user in [session.user_id.as_str(), ""] {
        on!(tx, |c| diesel::insert_into(voice_usage::table)
            .values((voice_usage::day.eq(&day), voice_usage::user_id.eq(user), voice_usage::seconds.eq(seconds)))
            .on_conflict((voice_usage::day, voice_usage::user_id))
            .do_update()
            .set(voice_usage::seconds.eq(voice_usage::seconds + seconds))
            .execute(c))?;
    }
    Ok(())
}

/// The day (UTC) of a time, as in `2026-03-26`.
pub(super) fn day(at: Timestamp) -> String {
    at.to_string().chars().take(10).collect()
}

pub(super) fn to_json(tx: &Conn, session: &VoiceSession) -> Result<String, StoreError> {
    serde_json::to_string(session).map_err(|error| StoreError::bad_row(tx.operation(), error))
}

pub(super) fn phase(state: &State) -> &'static str {
    match state {
        State::Creating { .. } => "creating",
        State::Live(_) => "live",
        State::Ending { .. } => "ending",
        State::Over { .. } => "over",
    }
}

/// The name on the wire.
pub(crate) fn reason(reason: VoiceEndReason) -> &'static str {
    match reason {
        VoiceEndReason::StopRequested => "stop_requested",
        VoiceEndReason::Replaced => "replaced",
        VoiceEndReason::Expired => "expired",
        VoiceEndReason::Left => "left",
        VoiceEndReason::AgentUnavailable => "agent_unavailable",
        VoiceEndReason::StartFailed => "start_failed",
        VoiceEndReason::RoomFinished => "room_finished",
    }
}
