//! Sessions: made once, read by whoever may, changed by version, deleted for everyone at once.

use diesel::prelude::*;
use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions::{AccessLevel, Session, SessionStatus};
use ensemble_types::time::Timestamp;

use super::schema::{session_contents, sessions, shares};
use super::{Store, deletions, lock, topic};
use crate::domain::access::{Access, Refusal};
use crate::domain::change::{Change, Versioned};
use crate::error::Error;

/// A session that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) metadata: String,
    pub(crate) encryption_key: String,
    pub(crate) tag: Option<String>,
    pub(crate) wish: Option<IdempotencyRequest>,
}

/// A session, and whether this call made it.
pub(crate) struct Created {
    pub(crate) session: Session,
    pub(crate) is_new: bool,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sessions)]
struct Row {
    id: SessionId,
    owner_id: UserId,
    machine_id: String,
    tag: Option<String>,
    metadata_version: i64,
    agent_state_version: i64,
    ended_at: Option<Timestamp>,
    archived: bool,
    thinking: bool,
    last_active_at: Option<Timestamp>,
    last_seq: i64,
    key_epoch: i64,
    rekey_needed: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = session_contents)]
struct ContentRow {
    metadata: String,
    encryption_key: String,
    agent_state: Option<String>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = shares)]
struct OwnShare {
    access_level: i16,
    encrypted_key: String,
}

/// A session with all that its reader's view of it depends on, and the time it was read.
type Whole = (Row, ContentRow, Option<OwnShare>, Timestamp);

impl Store {
    /// Makes a session; the same tag, or the same wish, again gives the one that is there.
    pub(crate) async fn create_session(&self, new: NewSession) -> Result<Created, Error> {
        let store = self.clone();
        self.db.write("create a session", move |tx| store.create_in(tx, &new)).await
    }

    pub(crate) async fn session(&self, id: SessionId, caller: UserId) -> Result<Session, Error> {
        let store = self.clone();
        self.db.read("read a session", move |c| store.read_in(c, id, caller)).await
    }

    /// Changes a session, if the caller may do all of it and every expected version is the present one.
    pub(crate) async fn update_session(&self, id: SessionId, caller: UserId, change: Change) -> Result<Session, Error> {
        let store = self.clone();
        self.db
            .write("update a session", move |tx| {
                let (spine, access) = lock::session(tx, id, caller)?;
                match change.needs() {
                    AccessLevel::Owner => drop(access.own()?),
                    AccessLevel::Admin => drop(access.administer()?),
                    _ => drop(access.edit()?),
                }
                apply(tx, &spine, &change)?;
                store.read_in(tx, id, caller)
            })
            .await
    }

    /// Ends a session's existence for everyone. What it held is purged afterwards.
    pub(crate) async fn delete_session(&self, id: SessionId, caller: UserId) -> Result<(), Error> {
        self.db
            .write("delete a session", move |tx| {
                let (_, access) = lock::session(tx, id, caller)?;
                access.own()?;
                on!(tx, |c| cached(
                    diesel::update(sessions::table.find(id.db())).set((
                        sessions::deleted_at.eq(now().nullable()),
                        sessions::revision.eq(sessions::revision + 1)
                    ))
                )
                .execute(c))?;
                tx.notify(topic(id));
                tx.notify(deletions());
                Ok(())
            })
            .await
    }

    fn create_in(&self, tx: &mut Conn, new: &NewSession) -> Result<Created, Error> {
        let id = SessionId::generate();
        if let Some(wish) = &new.wish {
            match idempotency::claim(tx, wish, &id.to_string())? {
                IdempotencyOutcome::New => {}
                IdempotencyOutcome::Mismatch => return Err(Error::IdempotencyMismatch),
                IdempotencyOutcome::Replay { resource } => {
                    let id = resource
                        .parse()
                        .map_err(|e| StoreError::bad_row(tx.operation(), format!("{e}: {resource}")))?;
                    return Ok(Created { session: self.read_in(tx, id, new.owner)?, is_new: false });
                }
            }
        }
        let is_new = insert(tx, id, new)?;
        let id = match &new.tag {
            Some(tag) if !is_new => {
                let there = tagged(tx, new.owner, tag)?;
                if let Some(wish) = &new.wish {
                    idempotency::point(tx, wish, &there.to_string())?;
                }
                there
            }
            _ => id,
        };
        Ok(Created { session: self.read_in(tx, id, new.owner)?, is_new })
    }

    pub(super) fn read_in(&self, c: &mut Conn, id: SessionId, caller: UserId) -> Result<Session, Error> {
        let whole: Option<Whole> = on!(c, |c| sessions::table
            .inner_join(session_contents::table.on(session_contents::session_id.eq(sessions::id)))
            .left_join(shares::table.on(shares::session_id.eq(sessions::id).and(shares::user_id.eq(caller.db()))))
            .filter(sessions::id.eq(id.db()).and(sessions::deleted_at.is_null()))
            .select((Row::as_select(), ContentRow::as_select(), Option::<OwnShare>::as_select(), now()))
            .first(c)
            .optional())?;
        self.view(c.operation(), whole.ok_or(Refusal::NotFound)?, caller)
    }

    /// Several sessions as one caller sees them, in no particular order; without those that are gone or not theirs to see.
    pub(super) fn read_all_in(&self, c: &mut Conn, ids: &[DbId], caller: UserId) -> Result<Vec<Session>, Error> {
        let found: Vec<Whole> = on!(c, |c| sessions::table
            .inner_join(session_contents::table.on(session_contents::session_id.eq(sessions::id)))
            .left_join(shares::table.on(shares::session_id.eq(sessions::id).and(shares::user_id.eq(caller.db()))))
            .filter(sessions::id.eq_any(ids).and(sessions::deleted_at.is_null()))
            .select((Row::as_select(), ContentRow::as_select(), Option::<OwnShare>::as_select(), now()))
            .load(c))?;
        let operation = c.operation();
        let seen = found.into_iter().map(|whole| self.view(operation, whole, caller));
        seen.filter(|session| !matches!(session, Err(Error::Refused(_)))).collect()
    }

    /// A session as this caller may see it.
    fn view(&self, operation: &'static str, whole: Whole, caller: UserId) -> Result<Session, Error> {
        let (row, content, share, read_at) = whole;
        let level = share.as_ref().map(|share| lock::level_from(operation, share.access_level)).transpose()?;
        let access = Access::of(row.owner_id, caller, level)?;
        let is_owner = access.own().is_ok();
        let machine_id = row
            .machine_id
            .parse()
            .map_err(|e| StoreError::bad_row(operation, format!("{e}: machine {}", row.machine_id)))?;
        let online = row.last_active_at.is_some_and(|at| read_at.since(at) < self.online_for);
        Ok(Session {
            id: row.id,
            owner_id: row.owner_id,
            machine_id,
            tag: row.tag.filter(|_| is_owner),
            metadata: content.metadata,
            metadata_version: row.metadata_version,
            encryption_key: Some(content.encryption_key).filter(|_| is_owner),
            agent_state: content.agent_state,
            agent_state_version: row.agent_state_version,
            status: if row.ended_at.is_some() { SessionStatus::Ended } else { SessionStatus::Active },
            ended_at: row.ended_at,
            archived: row.archived,
            online,
            thinking: online && row.thinking,
            last_active_at: row.last_active_at,
            last_seq: row.last_seq,
            access_level: access.level(),
            encrypted_key: share.filter(|_| !is_owner).map(|share| share.encrypted_key),
            key_epoch: row.key_epoch,
            rekey_needed: row.rekey_needed,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// Makes it; false when there is one with this tag.
fn insert(tx: &mut Conn, id: SessionId, new: &NewSession) -> Result<bool, StoreError> {
    let row = (
        sessions::id.eq(id.db()),
        sessions::owner_id.eq(new.owner.db()),
        sessions::machine_id.eq(new.machine.as_str()),
        sessions::tag.eq(new.tag.as_deref()),
        sessions::metadata_version.eq(1),
        sessions::agent_state_version.eq(0),
        sessions::archived.eq(false),
        sessions::thinking.eq(false),
        sessions::last_seq.eq(0),
        sessions::key_epoch.eq(1),
        sessions::rekey_needed.eq(false),
        sessions::revision.eq(0),
        sessions::created_at.eq(now()),
        sessions::updated_at.eq(now()),
    );
    // Of two that come at once with one tag, the second waits here for the first.
    let inserted = on!(tx, |c| diesel::insert_into(sessions::table).values(row).on_conflict_do_nothing().execute(c))?;
    if inserted == 0 {
        return Ok(false);
    }
    on!(tx, |c| diesel::insert_into(session_contents::table)
        .values((
            session_contents::session_id.eq(id.db()),
            session_contents::metadata.eq(&new.metadata),
            session_contents::encryption_key.eq(&new.encryption_key),
        ))
        .execute(c))?;
    Ok(true)
}

fn tagged(tx: &mut Conn, owner: UserId, tag: &str) -> Result<SessionId, StoreError> {
    on!(tx, |c| sessions::table
        .filter(sessions::owner_id.eq(owner.db()).and(sessions::tag.eq(tag)).and(sessions::deleted_at.is_null()))
        .select(sessions::id)
        .first(c))
}

/// Checks every expected version, then makes the change.
fn apply(tx: &mut Conn, spine: &lock::Spine, change: &Change) -> Result<(), Error> {
    let id = spine.id.db();
    let of_session = || sessions::table.find(id);
    let of_contents = || session_contents::table.find(id);
    expect(change.metadata.as_ref(), spine.metadata_version, || {
        Ok(Some(on!(tx, |c| of_contents().select(session_contents::metadata).first(c))?))
    })?;
    expect(change.agent_state.as_ref(), spine.agent_state_version, || {
        on!(tx, |c| of_contents().select(session_contents::agent_state).first(c))
    })?;
    expect(change.key.as_ref(), spine.key_epoch, || {
        Ok(Some(on!(tx, |c| of_contents().select(session_contents::encryption_key).first(c))?))
    })?;
    if let Some(Versioned { value, .. }) = &change.metadata {
        on!(tx, |c| cached(diesel::update(of_contents()).set(session_contents::metadata.eq(value))).execute(c))?;
        let version = sessions::metadata_version.eq(sessions::metadata_version + 1);
        on!(tx, |c| cached(diesel::update(of_session()).set(version)).execute(c))?;
    }
    if let Some(Versioned { value, .. }) = &change.agent_state {
        on!(tx, |c| cached(diesel::update(of_contents()).set(session_contents::agent_state.eq(value))).execute(c))?;
        let version = sessions::agent_state_version.eq(sessions::agent_state_version + 1);
        on!(tx, |c| cached(diesel::update(of_session()).set(version)).execute(c))?;
    }
    if let Some(Versioned { value, .. }) = &change.key {
        on!(tx, |c| cached(diesel::update(of_contents()).set(session_contents::encryption_key.eq(value))).execute(c))?;
        let epoch = (sessions::key_epoch.eq(sessions::key_epoch + 1), sessions::rekey_needed.eq(false));
        on!(tx, |c| cached(diesel::update(of_session()).set(epoch)).execute(c))?;
    }
    match change.status {
        Some(SessionStatus::Ended) if spine.ended_at.is_none() => {
            on!(tx, |c| cached(diesel::update(of_session()).set(sessions::ended_at.eq(now().nullable()))).execute(c))?;
        }
        Some(SessionStatus::Active) => {
            let none = None::<Timestamp>.db();
            on!(tx, |c| cached(diesel::update(of_session()).set(sessions::ended_at.eq(none))).execute(c))?;
        }
        _ => {}
    }
    if let Some(archived) = change.archived {
        on!(tx, |c| cached(diesel::update(of_session()).set(sessions::archived.eq(archived))).execute(c))?;
    }
    if let Some(heartbeat) = change.heartbeat {
        on!(tx, |c| cached(diesel::update(of_session()).set(sessions::last_active_at.eq(now().nullable())))
            .execute(c))?;
        if let Some(thinking) = heartbeat.thinking {
            on!(tx, |c| cached(diesel::update(of_session()).set(sessions::thinking.eq(thinking))).execute(c))?;
        }
    }
    if !change.is_quiet() {
        on!(tx, |c| cached(diesel::update(of_session()).set(sessions::updated_at.eq(now()))).execute(c))?;
        lock::touch(tx, spine.id, false)?;
    }
    Ok(())
}

fn expect(
    wanted: Option<&Versioned>,
    version: i64,
    value: impl FnOnce() -> Result<Option<String>, StoreError>,
) -> Result<(), Error> {
    match wanted.and_then(|wanted| wanted.expected) {
        Some(expected) if expected != version => Err(Error::VersionMismatch { version, value: value()? }),
        _ => Ok(()),
    }
}
