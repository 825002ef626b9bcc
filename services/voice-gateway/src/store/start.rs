//! Recording a new voice session: once per `Idempotency-Key`, and within the limits.
//!
//! The record is there before LiveKit is asked, for whoever comes after this process dies. It need not be on the disk by
//! then: no caller knows of it, the write that makes the session live brings it there, and a room whose record went down
//! with the database's machine is one without a session, which the reconciler deletes.

use std::sync::Arc;
use std::time::Instant;

use diesel::prelude::*;
use ensemble_store_kit::idempotency::{IdempotencyOutcome, IdempotencyRequest, claim};
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{AdvisoryLock, Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceRefusal;
use sha2::{Digest, Sha256};

use super::one_call::{self, Begun};
use super::rows::{START_ROUTE, phase, to_json, voice_contexts, voice_sessions};
use super::usage::{total_sessions, usage};
use super::{Nudge, Store};
use crate::domain::limits::Limits;
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
    New(Box<Recorded>),
    /// The same wish was recorded before, as this session.
    Replay(GatewaySessionId),
    /// The key was used with another body.
    Mismatch,
    Refused(VoiceRefusal),
}

/// A session that has just been recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) session: VoiceSession,
    /// Another session for the same user and application session is open, and will be replaced.
    pub(super) replaces: bool,
    /// Repetitions of this start may be waiting for it.
    pub(super) keyed: bool,
    since: Instant,
}

impl Recorded {
    /// The database's time, as far as this process can tell without asking: that of the record, and how long ago it was.
    pub(super) fn now(&self) -> Timestamp {
        self.session.created_at.plus(self.since.elapsed())
    }
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

/// So many starts may be made on all replicas from the count that one of them believes to its own commit (1,280 a second, as
/// long as a count is believed) without going beyond the limit.
const IN_FLIGHT: u64 = 256;

const OPERATION: &str = "record a voice session";
const IN_ONE_CALL: &str = "record a voice session in one call";

impl Store {
    pub(crate) async fn open(&self, new: NewSession, limits: Limits) -> Result<Opened, StoreError> {
        let new = Arc::new(new);
        let opened = match self.open_in_one_call(Arc::clone(&new), &limits).await? {
            Some(recorded) => Opened::New(Box::new(recorded)),
            None => match self.open_carefully(new, limits).await {
                Ok(opened) => opened,
                Err(Stop::Refused(refusal)) => Opened::Refused(refusal),
                Err(Stop::Store(error)) => return Err(error),
            },
        };
        if let Opened::New(recorded) = &opened
            && let Some(due_at) = recorded.session.due_at(&self.rules)
        {
            self.nudges.send(Nudge::Due(due_at));
        }
        Ok(opened)
    }

    /// `None`: nothing is recorded, and it takes a closer look to tell why.
    async fn open_in_one_call(&self, new: Arc<NewSession>, limits: &Limits) -> Result<Option<Recorded>, StoreError> {
        // SQLite's clock is never known here; it is in this process, where several calls cost little.
        if self.known.now().is_none() {
            return Ok(None);
        }
        let (known, rules) = (self.known.clone(), self.rules.clone());
        let (lasts, bounds, turn) = (limits.session, limits.bounds(IN_FLIGHT), user_turn(&new.session));
        let mut repeated = false;
        self.db
            .write(IN_ONE_CALL, move |c| {
                // Here and no earlier: what is known now may be old news when a connection is free.
                let (since, total) = (Instant::now(), known.total());
                let Some(now) = known.now() else { return Ok(None) };
                let mut session = new.session.clone();
                session.begin(now, lasts, &rules);
                let begun = Begun { session: &session, due_at: session.due_at(&rules), repeated };
                repeated = true;
                let answer = one_call::open(c, &new, &begun, turn, total, bounds)?;
                known.told(answer.now);
                if total.is_none() {
                    known.counted(answer.total_sessions);
                }
                if !answer.opened {
                    return Ok(None);
                }
                known.one_more();
                Ok(Some(Recorded { session, replaces: answer.replaces, keyed: new.key.is_some(), since }))
            })
            .await
    }

    async fn open_carefully(&self, new: Arc<NewSession>, limits: Limits) -> Result<Opened, Stop> {
        let (rules, known) = (self.rules.clone(), self.known.clone());
        self.db
            .write(OPERATION, move |tx| {
                tx.lock(user_turn(&new.session))?;
                let mut session = new.session.clone();
                if let Some(StartKey { key, body_hash }) = new.key.clone() {
                    let wish =
                        IdempotencyRequest { scope: session.user_id.clone(), route: START_ROUTE, key, body_hash };
                    match claim(tx, &wish, &session.id.to_string())? {
                        IdempotencyOutcome::New => {}
                        IdempotencyOutcome::Mismatch => return Ok(Opened::Mismatch),
                        IdempotencyOutcome::Replay { resource } => {
                            let id = resource.parse().map_err(|error| StoreError::bad_row(tx.operation(), error))?;
                            return Ok(Opened::Replay(id));
                        }
                    }
                }
                let total = known.total();
                let mut found = usage(tx, &session, &limits, total)?;
                let since = Instant::now();
                if tx.is_postgres() {
                    known.told(found.now);
                }
                if total.is_none() {
                    known.counted(found.usage.total_sessions);
                }
                if limits.must_queue(found.usage.total_sessions, IN_FLIGHT) {
                    tx.lock(turn("voice:total"))?;
                    found.usage.total_sessions = total_sessions(tx, &session)?;
                }
                let granted = limits.grant(found.usage).map_err(Stop::Refused)?;
                session.begin(found.now, granted, &rules);
                insert(tx, &new, &session, session.due_at(&rules))?;
                known.one_more();
                let keyed = new.key.is_some();
                Ok(Opened::New(Box::new(Recorded { session, replaces: found.replaces, keyed, since })))
            })
            .await
    }
}

fn user_turn(session: &VoiceSession) -> AdvisoryLock {
    turn(&format!("voice:user:{}", session.user_id))
}

/// The starts of one user take turns, and near the limit of all sessions all starts do.
fn turn(name: &str) -> AdvisoryLock {
    let digest = Sha256::digest(name.as_bytes());
    AdvisoryLock(digest.iter().take(8).fold(0, |key, byte| (key << 8) | i64::from(*byte)))
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
