//! A session as its row holds it, and the way from the row and back.

use diesel::prelude::*;
use ensemble_store_kit::idempotency::idempotency_keys;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{GatewaySessionId, LeaseId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceEndReason;

use super::schema::voice_sessions;
use super::{contexts, texts, topic, usage};
use crate::domain::outbox::Item;
use crate::domain::session::{VoiceSession, end_reason_name};
use crate::domain::state::{Rules, State};

/// The route under which `Idempotency-Key`s of starts are kept.
pub(super) const START_ROUTE: &str = "POST /v1/voice/session/start";

/// The session with the columns that its state machine does not know.
#[derive(Clone)]
pub(crate) struct StoredSession {
    pub(crate) session: VoiceSession,
    /// SHA-256 of the agent's credential, and of the one before the last dispatch.
    pub(crate) agent_token: Vec<u8>,
    pub(crate) agent_token_before: Option<Vec<u8>>,
    pub(crate) next_seq: i64,
    /// Texts that have not reached the agent.
    pub(crate) queued: i64,
    pub(crate) deliver_at: Option<Timestamp>,
    pub(crate) delivery_claim: Option<LeaseId>,
    pub(crate) delivery_failures: i32,
    idempotency_key: Option<String>,
    /// Of the row as it was read.
    version: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = voice_sessions)]
pub(super) struct Row {
    record: String,
    version: i64,
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
    pub(super) fn into_stored(self, operation: &'static str) -> Result<StoredSession, StoreError> {
        Ok(StoredSession {
            session: serde_json::from_str(&self.record).map_err(|error| StoreError::bad_row(operation, error))?,
            version: self.version,
            agent_token: self.agent_token,
            agent_token_before: self.agent_token_before,
            idempotency_key: self.idempotency_key,
            next_seq: self.next_seq,
            queued: self.queued,
            deliver_at: self.deliver_at,
            delivery_claim: self.delivery_claim,
            delivery_failures: self.delivery_failures,
        })
    }
}

impl StoredSession {
    /// Whether the agent can take something now.
    pub(crate) fn is_deliverable(&self) -> bool {
        self.session.reachable_agent().is_some() && (self.queued > 0 || self.session.context.is_pending())
    }

    /// Failed attempts at the present delivery.
    pub(crate) fn failures(&self) -> u32 {
        u32::try_from(self.delivery_failures).unwrap_or(0)
    }

    /// Sets when to deliver after a change. A delivery that is under way, or waits after a failure, stays as it is.
    fn plan_delivery(&mut self, now: Timestamp, became_reachable: bool) {
        if !self.is_deliverable() {
            if self.delivery_claim.is_none() {
                self.deliver_at = None;
            }
        } else if self.deliver_at.is_none() || (became_reachable && self.delivery_claim.is_none()) {
            self.deliver_at = Some(now);
        }
    }
}

/// A session and the database's time.
pub(crate) fn read(c: &mut Conn, id: GatewaySessionId) -> Result<Option<(StoredSession, Timestamp)>, StoreError> {
    let query = voice_sessions::table.find(id.db());
    let found: Option<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).first(c).optional())?;
    found.map(|(row, now)| Ok((row.into_stored(c.operation())?, now))).transpose()
}

/// The same, locked until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, id: GatewaySessionId) -> Result<Option<(StoredSession, Timestamp)>, StoreError> {
    let query = voice_sessions::table.find(id.db());
    let found: Option<(Row, Timestamp)> = on!(
        tx,
        Pg | c | query.select((Row::as_select(), now())).for_update().first(c).optional(),
        Sqlite | c | query.select((Row::as_select(), now())).first(c).optional()
    )?;
    found.map(|(row, now)| Ok((row.into_stored(tx.operation())?, now))).transpose()
}

/// Writes a locked session back. What belongs to a session that has just ended is deleted, and its seconds are counted.
///
/// # Errors
/// [`StoreError::Busy`]: the row has changed since it was read.
pub(crate) fn save(
    tx: &mut Conn,
    before: &VoiceSession,
    after: &mut StoredSession,
    now: Timestamp,
    rules: &Rules,
) -> Result<(), StoreError> {
    use voice_sessions::dsl;
    let became_reachable = before.reachable_agent().is_none() && after.session.reachable_agent().is_some();
    after.plan_delivery(now, became_reachable);
    if !before.is_over() && after.session.is_over() {
        after.session.welcome_message = None;
        if let Some(error) = &mut after.session.last_error {
            error.message = None;
        }
        contexts::delete(tx, after.session.id)?;
        if after.next_seq > 1 {
            texts::empty_bodies(tx, after.session.id)?;
        }
        usage::add(tx, &after.session, now)?;
        release_key(tx, after)?;
    }
    let record = to_json(tx, &after.session)?;
    let row = dsl::voice_sessions.find(after.session.id.db()).filter(dsl::version.eq(after.version));
    let saved = on!(tx, |c| cached(diesel::update(row).set((
        dsl::record.eq(&record),
        dsl::version.eq(after.version + 1),
        dsl::phase.eq(phase(&after.session.state)),
        dsl::end_reason.eq(after.session.state.end().map(|end| end_reason_name(end.reason))),
        dsl::active_at.eq(after.session.state.active_at().db()),
        dsl::ended_at.eq(after.session.ended_at().db()),
        dsl::due_at.eq(after.session.due_at(rules).db()),
        dsl::agent_token.eq(&after.agent_token),
        dsl::agent_token_before.eq(&after.agent_token_before),
        dsl::next_seq.eq(after.next_seq),
        dsl::queued.eq(after.queued),
        dsl::deliver_at.eq(after.deliver_at.db()),
        dsl::delivery_claim.eq(after.delivery_claim.db()),
        dsl::delivery_failures.eq(after.delivery_failures),
    )))
    .execute(c))?;
    if saved != 1 {
        return Err(StoreError::Busy { operation: tx.operation() });
    }
    after.version += 1;
    tx.notify(topic(after.session.id));
    Ok(())
}

/// A start that failed releases its `Idempotency-Key`, so that the same request can be sent again.
fn release_key(tx: &mut Conn, ended: &StoredSession) -> Result<(), StoreError> {
    let failed = ended.session.state.end().is_some_and(|end| end.reason == VoiceEndReason::StartFailed);
    if let (true, Some(key)) = (failed, &ended.idempotency_key) {
        let row = (&ended.session.user_id, START_ROUTE, key);
        on!(tx, |c| diesel::delete(idempotency_keys::table.find(row)).execute(c))?;
    }
    Ok(())
}

/// What comes next for the agent: the newest context before any text, since texts may refer to it.
pub(crate) fn next_item(tx: &mut Conn, stored: &StoredSession) -> Result<Option<Item>, StoreError> {
    let id = stored.session.id;
    if stored.session.context.is_pending()
        && let Some(newest) = contexts::get(tx, id)?
    {
        return Ok(Some(Item::Context { version: newest.version, body: newest.body }));
    }
    texts::next_queued(tx, id)
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
