//! Sessions. Their rows are also the locks: everything that changes a session, its messages, shares or link locks the row
//! first, so that what it reads afterwards stays true until the commit.

use std::collections::{BTreeMap, BTreeSet};

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Array, BigInt};
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Moment, Uid, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::SessionStatus;
use ensemble_types::time::Timestamp;

use super::attention::AttentionRow;
use super::schema::{session_contents, sessions, shares};
use crate::domain::access::{CanChange, CanOwn, Ownership};
use crate::domain::message::ROW_BYTES;
use crate::domain::session::Draft;
use crate::domain::stream::SessionStamp;

/// What decisions about a session are made from.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub(crate) struct SessionRow {
    pub(crate) id: SessionId,
    pub(crate) owner_id: UserId,
    pub(crate) machine_id: String,
    pub(crate) hosted: bool,
    pub(crate) metadata_version: i64,
    pub(crate) agent_state_version: i64,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) last_seq: i64,
    pub(crate) key_epoch: i64,
    pub(crate) last_active_at: Option<Timestamp>,
    pub(crate) host_id: Option<DbId>,
    pub(crate) thinking: bool,
    /// When its program last began to think.
    pub(crate) thinking_since: Option<Timestamp>,
    pub(crate) cannot_write: Option<i16>,
    #[diesel(embed)]
    pub(crate) attention: AttentionRow,
}

/// What `machine_id` holds for a session without a machine. No machine has this id.
pub(crate) const NO_MACHINE: &str = "";

/// A new session.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) owner: UserId,
    /// Its machine makes it.
    pub(crate) hosted: bool,
    pub(crate) draft: Draft,
}

/// New values for columns of `sessions`; `None` leaves a column as it is.
#[derive(Clone, Debug, Default, AsChangeset)]
#[diesel(table_name = sessions)]
pub(crate) struct SessionColumns {
    pub(crate) metadata_version: Option<i64>,
    pub(crate) agent_state_version: Option<i64>,
    pub(crate) key_epoch: Option<i64>,
    pub(crate) rekey_needed: Option<bool>,
    pub(crate) ended_at: Option<Option<DbTime>>,
    pub(crate) archived: Option<bool>,
    pub(crate) last_active_at: Option<DbTime>,
    pub(crate) thinking: Option<bool>,
    pub(crate) thinking_since: Option<DbTime>,
    pub(crate) cannot_write: Option<Option<i16>>,
    pub(crate) host_id: Option<DbId>,
    pub(crate) attention_kind: Option<i16>,
    pub(crate) attention_open: Option<i16>,
    pub(crate) attention_since: Option<Option<DbTime>>,
    pub(crate) attention_id: Option<Option<String>>,
    pub(crate) attention_version: Option<i64>,
    pub(crate) updated_at: Option<DbTime>,
}

/// New values for columns of `session_contents`.
#[derive(Clone, Debug, Default, AsChangeset)]
#[diesel(table_name = session_contents)]
pub(crate) struct ContentColumns {
    pub(crate) metadata: Option<String>,
    pub(crate) agent_state: Option<String>,
    pub(crate) encryption_key: Option<String>,
    pub(crate) content_epoch: Option<Option<i64>>,
    pub(crate) host_key: Option<Option<String>>,
}

/// The large values of a session.
#[derive(Queryable, Selectable)]
#[diesel(table_name = session_contents)]
pub(crate) struct ContentRow {
    pub(crate) metadata: String,
    pub(crate) encryption_key: String,
    pub(crate) agent_state: Option<String>,
    pub(crate) content_epoch: Option<i64>,
    pub(crate) host_key: Option<String>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub(crate) struct DetailRow {
    pub(crate) id: SessionId,
    pub(crate) reference: Ref,
    pub(crate) owner_id: UserId,
    pub(crate) machine_id: String,
    pub(crate) hosted: bool,
    pub(crate) tag: Option<String>,
    pub(crate) metadata_version: i64,
    pub(crate) agent_state_version: i64,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) archived: bool,
    pub(crate) thinking: bool,
    pub(crate) cannot_write: Option<i16>,
    pub(crate) last_active_at: Option<Timestamp>,
    pub(crate) last_seq: i64,
    pub(crate) key_epoch: i64,
    pub(crate) rekey_needed: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    #[diesel(embed)]
    pub(crate) attention: AttentionRow,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = shares)]
pub(crate) struct CallerShareRow {
    pub(crate) access_level: i16,
    pub(crate) encrypted_key: String,
    pub(crate) content_epoch: Option<i64>,
}

/// A session, its contents, the caller's share of it, and the database's time of the read.
pub(crate) type WholeSession = (DetailRow, ContentRow, Option<CallerShareRow>, Timestamp);

/// `last_seq` and `revision`: changes with everything that streams must look at.
pub(crate) type Revision = (i64, i64);

impl SessionRow {
    /// Whose the session is.
    pub(crate) fn ownership(&self) -> Ownership<'_> {
        ownership(self.owner_id, self.hosted, &self.machine_id)
    }

    pub(crate) fn stamp(&self) -> SessionStamp {
        SessionStamp {
            metadata_version: self.metadata_version,
            agent_state_version: self.agent_state_version,
            ended: self.ended_at.is_some(),
            key_epoch: self.key_epoch,
            attention_version: self.attention.attention_version,
            cannot_write: self.cannot_write,
            host: self.host_id.map(|id| id.0),
        }
    }
}

impl DetailRow {
    /// Whose the session is.
    pub(crate) fn ownership(&self) -> Ownership<'_> {
        ownership(self.owner_id, self.hosted, &self.machine_id)
    }
}

fn ownership(owner: UserId, hosted: bool, machine: &str) -> Ownership<'_> {
    Ownership { owner, host: hosted.then_some(machine) }
}

/// Locks a session until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
    let query = sessions::table.find(id.db()).filter(sessions::deleted_at.is_null());
    on!(
        tx,
        Pg | c | query.select(SessionRow::as_select()).for_no_key_update().first(c).optional(),
        Sqlite | c | query.select(SessionRow::as_select()).first(c).optional()
    )
}

type Locked = (Vec<SessionRow>, Option<Timestamp>);

/// Locks several sessions, in the order of their ids so that two batches cannot deadlock. Leaves out deleted sessions. The time comes
/// with them. PostgreSQL reads its clock again for a row that has changed while it waited (its documentation, "Read Committed").
pub(crate) fn lock_all(tx: &mut Conn, ids: BTreeSet<SessionId>) -> Result<Locked, StoreError> {
    let ids: Vec<DbId> = ids.into_iter().map(IntoDb::db).collect();
    // Filters deleted sessions here and not in SQL: without statistics, PostgreSQL would read a whole partial index for it.
    let query = sessions::table.filter(sessions::id.eq_any(ids)).order(sessions::id);
    let exists = sessions::deleted_at.is_null();
    let rows: Vec<(SessionRow, bool, Timestamp)> = on!(
        tx,
        Pg | c | query.select((SessionRow::as_select(), exists, now())).for_no_key_update().load(c),
        Sqlite | c | query.select((SessionRow::as_select(), exists, now())).load(c)
    )?;
    let now = rows.iter().map(|(_, _, now)| *now).max();
    Ok((rows.into_iter().filter_map(|(row, exists, _)| exists.then_some(row)).collect(), now))
}

/// Whether a session, also a deleted one, has this id.
pub(crate) fn exists(tx: &mut Conn, id: SessionId) -> Result<bool, StoreError> {
    let count: i64 = on!(tx, |c| sessions::table.filter(sessions::id.eq(id.db())).count().get_result(c))?;
    Ok(count > 0)
}

/// The session with this ref, also one that was deleted.
pub(crate) fn find_id(c: &mut Conn, reference: Ref) -> Result<Option<SessionId>, StoreError> {
    on!(c, |c| sessions::table.filter(sessions::reference.eq(reference.db())).select(sessions::id).first(c).optional())
}

/// Reads a session without a lock.
pub(crate) fn find(c: &mut Conn, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
    on!(c, |c| sessions::table
        .find(id.db())
        .filter(sessions::deleted_at.is_null())
        .select(SessionRow::as_select())
        .first(c)
        .optional())
}

/// Reads whole sessions with the caller's share, in no particular order. Leaves out deleted sessions.
pub(crate) fn load(c: &mut Conn, ids: &[SessionId], caller: UserId) -> Result<Vec<WholeSession>, StoreError> {
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(c, |c| sessions::table
        .inner_join(session_contents::table.on(session_contents::session_id.eq(sessions::id)))
        .left_join(shares::table.on(shares::session_id.eq(sessions::id).and(shares::user_id.eq(caller.db()))))
        .filter(sessions::id.eq_any(&ids).and(sessions::deleted_at.is_null()))
        .select((DetailRow::as_select(), ContentRow::as_select(), Option::<CallerShareRow>::as_select(), now()))
        .load(c))
}

/// Inserts a session. False when the owner has one with this tag, or a session has its id or its ref.
pub(crate) fn insert(tx: &mut Conn, id: SessionId, new: &NewSession) -> Result<bool, StoreError> {
    let row = (
        sessions::id.eq(id.db()),
        sessions::reference.eq(Ref::of(&id).db()),
        sessions::owner_id.eq(new.owner.db()),
        sessions::machine_id.eq(new.draft.machine.as_ref().map_or(NO_MACHINE, MachineId::as_str)),
        sessions::hosted.eq(new.hosted),
        sessions::tag.eq(new.draft.tag.as_deref()),
        sessions::metadata_version.eq(1),
        sessions::agent_state_version.eq(0),
        sessions::archived.eq(false),
        sessions::thinking.eq(false),
        sessions::last_seq.eq(0),
        sessions::content_bytes.eq(0),
        sessions::key_epoch.eq(1),
        sessions::rekey_needed.eq(false),
        sessions::revision.eq(0),
        sessions::created_at.eq(now()),
        sessions::updated_at.eq(now()),
    );
    // A concurrent insert with the same tag or ref waits here for the first one's commit.
    let insert = diesel::insert_into(sessions::table).values(row);
    let inserted = on!(tx, |c| insert.on_conflict_do_nothing().execute(c))?;
    if inserted == 0 {
        return Ok(false);
    }
    on!(tx, |c| diesel::insert_into(session_contents::table)
        .values((
            session_contents::session_id.eq(id.db()),
            session_contents::metadata.eq(&new.draft.metadata),
            session_contents::encryption_key.eq(&new.draft.encryption_key),
            session_contents::content_epoch.eq(new.draft.content_epoch.map(i64::from)),
        ))
        .execute(c))?;
    Ok(true)
}

pub(crate) fn find_by_tag(tx: &mut Conn, owner: UserId, tag: &str) -> Result<SessionId, StoreError> {
    on!(tx, |c| sessions::table
        .filter(sessions::owner_id.eq(owner.db()).and(sessions::tag.eq(tag)).and(sessions::deleted_at.is_null()))
        .select(sessions::id)
        .first(c))
}

pub(crate) fn contents(tx: &mut Conn, id: SessionId) -> Result<ContentRow, StoreError> {
    on!(tx, |c| session_contents::table.find(id.db()).select(ContentRow::as_select()).first(c))
}

/// Updates the columns that have a new value; at least one must.
pub(crate) fn update(
    _: CanChange<'_>,
    tx: &mut Conn,
    id: SessionId,
    columns: &SessionColumns,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(sessions::table.find(id.db())).set(columns).execute(c)).map(drop)
}

/// Updates the columns that have a new value; at least one must.
pub(crate) fn update_contents(
    _: CanChange<'_>,
    tx: &mut Conn,
    id: SessionId,
    columns: &ContentColumns,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(session_contents::table.find(id.db())).set(columns).execute(c)).map(drop)
}

/// Hides a session from everyone; the purge removes its rows later.
pub(crate) fn mark_deleted(_: CanOwn<'_>, tx: &mut Conn, id: SessionId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(sessions::table.find(id.db())).set(sessions::deleted_at.eq(now().nullable())).execute(c))
        .map(drop)
}

/// Asks the owner for a new key, because a user who knew the current one lost access.
pub(crate) fn require_rekey(tx: &mut Conn, id: SessionId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(sessions::table.find(id.db())).set(sessions::rekey_needed.eq(true)).execute(c)).map(drop)
}

/// Marks that a session's streams have something to look at besides new messages.
pub(crate) fn bump_revision(tx: &mut Conn, id: SessionId) -> Result<(), StoreError> {
    let revision = sessions::revision.eq(sessions::revision + 1);
    on!(tx, |c| diesel::update(sessions::table.find(id.db())).set(revision).execute(c)).map(drop)
}

/// How a session grows with its new messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// Of the newest message.
    pub(crate) last_seq: i64,
    /// The length of the new contents.
    pub(crate) content_bytes: i64,
}

/// Advances locked sessions to their newest messages.
pub(crate) fn advance(tx: &mut Conn, grown: &BTreeMap<SessionId, Growth>, at: Timestamp) -> Result<(), StoreError> {
    // One text for any number of sessions, and a plan that does not depend on how many messages there are.
    const ADVANCE: &str = "UPDATE sessions SET last_seq = grown.last_seq, updated_at = $1, \
        content_bytes = sessions.content_bytes + grown.content_bytes \
        FROM unnest($2, $3, $4) AS grown (id, last_seq, content_bytes) WHERE sessions.id = grown.id";
    on!(
        tx,
        Pg | c | {
            let ids: Vec<DbId> = grown.keys().map(|id| id.db()).collect();
            let seqs: Vec<i64> = grown.values().map(|growth| growth.last_seq).collect();
            let bytes: Vec<i64> = grown.values().map(|growth| growth.content_bytes).collect();
            let advanced = sql_query(ADVANCE).bind::<Moment, _>(at.db()).bind::<Array<Uid>, _>(ids);
            cached(advanced.bind::<Array<BigInt>, _>(seqs).bind::<Array<BigInt>, _>(bytes)).execute(c).map(drop)
        },
        Sqlite
            | c
            | grown.iter().try_for_each(|(id, growth)| {
                let advanced = diesel::update(sessions::table.find(id.db())).set((
                    sessions::last_seq.eq(growth.last_seq),
                    sessions::content_bytes.eq(sessions::content_bytes + growth.content_bytes),
                    sessions::updated_at.eq(at.db()),
                ));
                cached(advanced).execute(c).map(drop)
            })
    )
}

/// How many sessions a user owns.
pub(crate) fn count_owned(c: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    on!(c, |c| sessions::table
        .filter(sessions::owner_id.eq(owner.db()).and(sessions::deleted_at.is_null()))
        .count()
        .get_result(c))
}

/// What the messages of a user's sessions count for the quota.
pub(crate) fn message_bytes(c: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    // PostgreSQL's sum of bigints is a numeric, which SQLite does not have.
    let bytes = format!("CAST(COALESCE(sum(content_bytes + {ROW_BYTES} * last_seq), 0) AS bigint)");
    on!(c, |c| sessions::table
        .filter(sessions::owner_id.eq(owner.db()).and(sessions::deleted_at.is_null()))
        .select(sql::<BigInt>(&bytes))
        .get_result(c))
}

/// What the messages of each account's sessions take, of all accounts that have some.
pub(crate) fn bytes_of_accounts(c: &mut Conn) -> Result<Vec<i64>, StoreError> {
    let bytes = format!("CAST(sum(content_bytes + {ROW_BYTES} * last_seq) AS bigint)");
    on!(c, |c| sessions::table
        .filter(sessions::deleted_at.is_null())
        .group_by(sessions::owner_id)
        .select(sql::<BigInt>(&bytes))
        .load(c))
}

/// The revisions of those sessions that exist.
pub(crate) fn revisions(c: &mut Conn, ids: &[SessionId]) -> Result<Vec<(SessionId, Revision)>, StoreError> {
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(c, |c| sessions::table
        .filter(sessions::id.eq_any(&ids))
        .select((sessions::id, (sessions::last_seq, sessions::revision)))
        .load(c))
}

pub(crate) fn status(ended_at: Option<Timestamp>) -> SessionStatus {
    if ended_at.is_some() { SessionStatus::Ended } else { SessionStatus::Active }
}
