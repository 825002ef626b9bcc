//! Sessions: create, read, update, delete.

use std::time::Duration;

use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, Quota, StoreError};
use ensemble_types::ids::SessionId;
use ensemble_types::refs::{IdOrRef, Ref};
use ensemble_types::sessions::{Session, SessionStatus, StatedReason};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::{deletions_topic, lock_session, publish_change, publish_deletion, pushes, session_topic};
use crate::SessionStore;
use crate::domain::Invalid;
use crate::domain::access::{Access, Actor, Refusal};
use crate::domain::session::{Draft, SessionChange, Versioned};
use crate::error::Error;
use crate::store;
use crate::store::cannot_write;
use crate::store::sessions::{
    ContentColumns, NO_MACHINE, NewSession, SessionColumns, SessionRow, WholeSession, status,
};

/// A session, and whether this call created it.
pub(crate) struct Created {
    pub(crate) session: Session,
    pub(crate) is_new: bool,
}

/// Creates a session. The same tag or the same idempotency key gives the session that exists.
pub(crate) async fn create(
    service: &SessionStore,
    caller: Actor,
    draft: Draft,
    request: Option<IdempotencyRequest>,
) -> Result<Created, Error> {
    let hosted = caller.hosts(draft.machine.as_ref())?;
    // A tag is its owner's name for a session of people. A machine could take it first.
    if hosted && draft.tag.is_some() {
        return Err(Invalid::new("/tag", "is not for sessions that a machine makes").into());
    }
    let new = NewSession { owner: caller.user, hosted, draft };
    if let Some(machine) = &new.draft.machine {
        service.peers.require_machine(new.owner, machine).await?;
    }
    let (online_for, quota) = (service.online_for, service.quotas.sessions.clone());
    service
        .db
        .write("create a session", move |tx| {
            let (id, is_new) = create_or_find(tx, &new, &quota, request.as_ref())?;
            Ok(Created { session: load(tx, id, &caller, online_for)?, is_new })
        })
        .await
}

/// The id of a session in a path. Whether the caller may know the session is for the next step to decide.
pub(crate) async fn resolve(service: &SessionStore, path: IdOrRef<SessionId>) -> Result<SessionId, Error> {
    let find = async |reference| {
        let found =
            service.db.read("find a session by its ref", move |c| store::sessions::find_id(c, reference)).await?;
        found.ok_or(Error::Refused(Refusal::NotFound))
    };
    path.id(find).await
}

pub(crate) async fn read(service: &SessionStore, id: SessionId, caller: Actor) -> Result<Session, Error> {
    let online_for = service.online_for;
    service.db.read("read a session", move |c| load(c, id, &caller, online_for)).await
}

/// Changes a session, if the caller may make all of the change and every expected version is the current one.
pub(crate) async fn update(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    change: SessionChange,
) -> Result<Session, Error> {
    let (online_for, rules) = (service.online_for, service.push_rules);
    service
        .db
        .write("update a session", move |tx| {
            let (session, access) = lock_session(tx, id, &caller)?;
            let can_change = access.change(change.required_level(&access))?;
            change.check_host_key(session.hosted)?;
            check_versions(tx, &session, &change)?;
            let now = tx.now()?;
            let mut columns = session_columns(&session, &change, now);
            if access == Access::Host && change.key.is_some() {
                // A machine does not know who has shares. The owner's next program gives those people a key.
                columns.rekey_needed = (store::shares::count(tx, id)? > 0).then_some(true);
            }
            if let Some(set) = &change.attention {
                let wants = pushes::attention(tx, &session, set, &access, (rules, now))?;
                columns.want(&wants, session.attention.attention_version + 1);
            }
            columns.host_id = host(&session, &access, &change, now, online_for)?;
            store::sessions::update(can_change, tx, id, &columns)?;
            if let Some(columns) = content_columns(&change) {
                store::sessions::update_contents(can_change, tx, id, &columns)?;
            }
            // The process before a new host learns at once that it has to end, and people that nothing comes for want of a key.
            let is_other_host = columns.host_id.is_some_and(|host| Some(host) != session.host_id);
            let is_other_reason = columns.cannot_write.is_some_and(|why| why != session.cannot_write);
            if !change.is_heartbeat_only() || is_other_host || is_other_reason {
                publish_change(tx, id)?;
            }
            load(tx, id, &caller, online_for)
        })
        .await
}

/// Deletes a session for everyone. The purge removes its rows afterwards.
pub(crate) async fn delete(service: &SessionStore, id: SessionId, caller: Actor) -> Result<(), Error> {
    let owner = caller.user;
    service
        .db
        .write("delete a session", move |tx| {
            let (session, access) = lock_session(tx, id, &caller)?;
            store::sessions::mark_deleted(access.own()?, tx, id)?;
            publish_deletion(tx, &session)?;
            pushes::forget(tx, &session)?;
            tx.notify(deletions_topic());
            Ok::<_, Error>(())
        })
        .await?;
    // Only the owner deletes. What the session took is free now, and not when it is purged.
    service.quotas.sessions.forget(owner);
    service.quotas.message_bytes.forget(owner);
    Ok(())
}

/// Reads a session as the caller may see it.
pub(super) fn load(c: &mut Conn, id: SessionId, caller: &Actor, online_for: Duration) -> Result<Session, Error> {
    let whole = store::sessions::load(c, &[id], caller.user)?.pop().ok_or(Refusal::NotFound)?;
    view(c.operation(), whole, caller, online_for)
}

fn create_or_find(
    tx: &mut Conn,
    new: &NewSession,
    quota: &Quota,
    request: Option<&IdempotencyRequest>,
) -> Result<(SessionId, bool), Error> {
    let mut id = new.draft.id.unwrap_or_else(SessionId::generate);
    if let Some(request) = request {
        match idempotency::claim(tx, request, &id.to_string())? {
            IdempotencyOutcome::New => {}
            IdempotencyOutcome::Mismatch => return Err(Error::IdempotencyMismatch),
            IdempotencyOutcome::Replay { resource } => {
                let malformed = |error| StoreError::bad_row(tx.operation(), format!("{error}: {resource}"));
                return Ok((resource.parse().map_err(malformed)?, false));
            }
        }
    }
    let mut is_inserted = store::sessions::insert(tx, id, new)?;
    if !is_inserted && store::sessions::find_id(tx, Ref::of(&id))?.is_some_and(|other| other != id) {
        if new.draft.id.is_some() {
            return Err(Error::RefTaken);
        }
        id = SessionId::generate();
        is_inserted = store::sessions::insert(tx, id, new)?;
        if let Some(request) = request {
            idempotency::point(tx, request, &id.to_string())?;
        }
    }
    if is_inserted {
        // Afterwards, because a tag that is taken gives its session, whatever the quota says.
        let others = || store::sessions::count_owned(tx, new.owner).map(|count| count - 1);
        let reserved = quota.reserve(new.owner, 1, others)??;
        tx.hold(reserved);
        // Nothing streams it yet, but its owner gets a hint.
        tx.notify(session_topic(id));
        return Ok((id, true));
    }
    if new.draft.id.is_some() && store::sessions::exists(tx, id)? {
        return Err(Error::IdTaken);
    }
    let Some(tag) = &new.draft.tag else {
        return Err(StoreError::bad_row(tx.operation(), "a session without a tag was not inserted").into());
    };
    let existing = store::sessions::find_by_tag(tx, new.owner, tag)?;
    if let Some(request) = request {
        idempotency::point(tx, request, &existing.to_string())?;
    }
    Ok((existing, false))
}

fn check_versions(tx: &mut Conn, session: &SessionRow, change: &SessionChange) -> Result<(), Error> {
    let stale = |field: &Option<Versioned>, version: i64| {
        field.as_ref().and_then(|field| field.expected).is_some_and(|expected| expected != version)
    };
    let (version, value) = if stale(&change.metadata, session.metadata_version) {
        (session.metadata_version, Some(store::sessions::contents(tx, session.id)?.metadata))
    } else if stale(&change.agent_state, session.agent_state_version) {
        (session.agent_state_version, store::sessions::contents(tx, session.id)?.agent_state)
    } else if change.key.as_ref().is_some_and(|key| key.expected_epoch != session.key_epoch) {
        (session.key_epoch, Some(store::sessions::contents(tx, session.id)?.encryption_key))
    } else if change
        .attention
        .as_ref()
        .and_then(|set| set.expected)
        .is_some_and(|expected| expected != session.attention.attention_version)
    {
        (session.attention.attention_version, None)
    } else {
        return Ok(());
    };
    Err(Error::VersionMismatch { version, value })
}

/// The process that hosts the session from now on, if its machine sends a heartbeat.
///
/// # Errors
/// Another process does, its last beat is fresh, and the caller does not go on after it: a machine was cloned, or brought back
/// from a backup.
fn host(
    session: &SessionRow,
    access: &Access,
    change: &SessionChange,
    now: Timestamp,
    online_for: Duration,
) -> Result<Option<DbId>, Error> {
    let Some(beat) = &change.heartbeat else { return Ok(None) };
    if beat.cannot_write.is_some() && *access != Access::Host {
        return Err(Invalid::new("/heartbeat/cannotWrite", "is for the machine that hosts the session").into());
    }
    match (beat.host_id, *access == Access::Host) {
        // A person's beat would keep the machine's own process fresh after its end.
        (None, false) if session.hosted => Err(Error::HostOnly),
        (None, false) => Ok(None),
        (None, true) => {
            Err(Invalid::new("/heartbeat/hostId", "is required from the machine that hosts the session").into())
        }
        (Some(_), false) => Err(Invalid::new("/heartbeat/hostId", "is for the machine that hosts the session").into()),
        (Some(host), true) => {
            let continues = |known: Uuid| known == host || Some(known) == beat.previous_host_id;
            let is_other = session.host_id.is_some_and(|known| !continues(known.0));
            if is_other && session.last_active_at.is_some_and(|at| now.since(at) < online_for) {
                return Err(Error::OtherHost);
            }
            Ok(Some(DbId(host)))
        }
    }
}

fn session_columns(session: &SessionRow, change: &SessionChange, now: Timestamp) -> SessionColumns {
    let thinking = change.heartbeat.and_then(|heartbeat| heartbeat.thinking);
    SessionColumns {
        metadata_version: change.metadata.as_ref().map(|_| session.metadata_version + 1),
        agent_state_version: change.agent_state.as_ref().map(|_| session.agent_state_version + 1),
        key_epoch: change.key.as_ref().map(|_| session.key_epoch + 1),
        rekey_needed: change.key.as_ref().map(|_| false),
        ended_at: match change.status {
            Some(SessionStatus::Ended) if session.ended_at.is_none() => Some(Some(now.db())),
            Some(SessionStatus::Active) => Some(None),
            _ => None,
        },
        archived: change.archived,
        last_active_at: change.heartbeat.map(|_| now.db()),
        thinking,
        cannot_write: change.heartbeat.map(|beat| beat.cannot_write.and_then(cannot_write::number)),
        thinking_since: (thinking == Some(true) && !session.thinking).then(|| now.db()),
        updated_at: (!change.is_silent()).then(|| now.db()),
        ..SessionColumns::default()
    }
}

fn content_columns(change: &SessionChange) -> Option<ContentColumns> {
    let value = |field: &Option<Versioned>| field.as_ref().map(|field| field.value.clone());
    let columns = ContentColumns {
        metadata: value(&change.metadata),
        agent_state: value(&change.agent_state),
        encryption_key: change.key.as_ref().map(|key| key.value.clone()),
        content_epoch: change.key.as_ref().map(|key| key.content_epoch.map(i64::from)),
        host_key: change.key.as_ref().map(|key| key.host_key.clone()),
    };
    let is_empty = columns.metadata.is_none() && columns.agent_state.is_none() && columns.encryption_key.is_none();
    (!is_empty).then_some(columns)
}

/// The session as this caller may see it.
pub(super) fn view(
    operation: &'static str,
    (row, content, share, read_at): WholeSession,
    caller: &Actor,
    online_for: Duration,
) -> Result<Session, Error> {
    let level =
        share.as_ref().map(|share| store::shares::level_from_number(operation, share.access_level)).transpose()?;
    let access = Access::of(row.ownership(), caller, level)?;
    let (is_owner, is_host) = (access.own().is_ok(), access == Access::Host);
    let sealed_in = match &share {
        _ if is_owner => content.content_epoch,
        Some(share) if !is_host => share.content_epoch,
        _ => None,
    };
    let malformed = |error| StoreError::bad_row(operation, format!("{error}: machine {}", row.machine_id));
    let online = row.last_active_at.is_some_and(|at| read_at.since(at) < online_for);
    Ok(Session {
        id: row.id,
        reference: row.reference,
        owner_id: row.owner_id,
        machine_id: Some(row.machine_id.as_str())
            .filter(|id| *id != NO_MACHINE)
            .map(str::parse)
            .transpose()
            .map_err(malformed)?,
        hosted: row.hosted,
        tag: row.tag.filter(|_| is_owner),
        metadata: content.metadata,
        metadata_version: row.metadata_version,
        encryption_key: Some(content.encryption_key).filter(|_| is_owner),
        host_key: content.host_key.filter(|_| is_host),
        content_epoch: store::shares::epoch_from_number(operation, sealed_in)?,
        agent_state: content.agent_state,
        agent_state_version: row.agent_state_version,
        status: status(row.ended_at),
        ended_at: row.ended_at,
        archived: row.archived,
        online,
        thinking: online && row.thinking,
        cannot_write: row
            .cannot_write
            .filter(|_| online)
            .map(|number| cannot_write::from_number(operation, number).map(StatedReason::Known))
            .transpose()?,
        last_active_at: row.last_active_at,
        attention: row.attention.attention(operation)?,
        attention_version: row.attention.attention_version,
        last_seq: row.last_seq,
        access_level: access.level(),
        encrypted_key: share.filter(|_| !is_owner && !is_host).map(|share| share.encrypted_key),
        key_epoch: row.key_epoch,
        rekey_needed: row.rekey_needed,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
