//! Reading histories. The hot path: one statement finds the session, the caller's standing and the messages together, and
//! the answer is written straight from the columns into one buffer.
//!
//! One statement sees one moment, so a page holds nothing that was appended after the access it was read with ended.

use std::fmt::Write as _;

use diesel::backend::Backend;
use diesel::connection::{DefaultLoadingMode, LoadConnection};
use diesel::deserialize::FromSql;
use diesel::expression::QueryMetadata;
use diesel::expression::expression_types::Untyped;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::row::{Field, Row};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Bool, HasSqlType, SmallInt};
use diesel::sqlite::Sqlite;
use diesel::{Connection, QueryResult};
use ensemble_store_kit::types::{DbId, IntoDb, Moment, Uid};
use ensemble_store_kit::{Conn, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::{Store, lock};
use crate::domain::access::{Access, Refusal};
use crate::domain::history::{PAGE_BYTES, Window};
use crate::error::Error;

/// A page as it goes out.
pub(crate) struct HistoryPage {
    pub(crate) json: Vec<u8>,
}

/// Which messages' fields a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    Members,
    /// Neither the senders nor their own names for messages.
    Public,
}

/// What of a session its streams tell about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionStamp {
    metadata_version: i64,
    agent_state_version: i64,
    ended: bool,
    key_epoch: i64,
}

/// What stands beside the messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    owner: UserId,
    share: Option<i16>,
    pub(super) last_seq: i64,
    pub(super) stamp: SessionStamp,
    /// The lowest and highest `seq` that was read.
    pub(super) span: Option<(i64, i64)>,
}

/// A message as it lies in the database's answer.
pub(super) struct RawMessage<'a> {
    pub(super) seq: i64,
    id: Uuid,
    sender: Uuid,
    local_id: &'a str,
    content: &'a str,
    key_epoch: Option<i64>,
    created_at: Timestamp,
}

impl Store {
    /// A page of a history, for whoever may see the session.
    pub(crate) async fn history(
        &self,
        session: SessionId,
        caller: UserId,
        window: Window,
    ) -> Result<HistoryPage, Error> {
        self.db
            .read("read history", move |c| {
                let mut json = String::with_capacity(8 << 10);
                let head = write_messages(c, &mut json, session, Some(caller), window, Audience::Members)?;
                head.access(caller)?;
                write_ends(&mut json, window, &head);
                json.push('}');
                Ok(HistoryPage { json: json.into_bytes() })
            })
            .await
    }
}

impl Head {
    /// The caller's standing, from the share that was read with the messages.
    pub(super) fn access(&self, caller: UserId) -> Result<Access, Error> {
        self.access_of(caller, self.share)
    }

    pub(super) fn access_of(&self, user: UserId, share: Option<i16>) -> Result<Access, Error> {
        let share = share.map(|level| lock::level_from("read history", level)).transpose()?;
        Ok(Access::of(self.owner, user, share)?)
    }
}

/// Writes `{"messages":[…]`. The caller of this checks the access in what it returns.
pub(super) fn write_messages(
    c: &mut Conn,
    json: &mut String,
    session: SessionId,
    caller: Option<UserId>,
    window: Window,
    audience: Audience,
) -> Result<Head, Error> {
    json.clear();
    json.push_str("{\"messages\":[");
    let head = read(c, session, caller, window, |message| {
        if !json.ends_with('[') {
            json.push(',');
        }
        message.write(json, audience);
    })?;
    json.push(']');
    Ok(head)
}

/// Writes `,"hasMore":…` and its companions.
pub(super) fn write_ends(json: &mut String, window: Window, head: &Head) {
    let ends = window.ends(head.span, head.last_seq);
    let number = |value: Option<i64>| value.map_or_else(|| "null".to_owned(), |value| value.to_string());
    let _ = write!(
        json,
        ",\"hasMore\":{},\"nextBefore\":{},\"nextAfter\":{},\"lastSeq\":{}",
        ends.has_more,
        number(ends.next_before),
        number(ends.next_after),
        head.last_seq
    );
}

/// Hands each message of the window to `take`, in the window's order.
pub(super) fn read(
    c: &mut Conn,
    session: SessionId,
    caller: Option<UserId>,
    window: Window,
    mut take: impl FnMut(&RawMessage<'_>),
) -> Result<Head, Error> {
    let (first, last) = window.range();
    let caller = DbId(caller.map_or(Uuid::nil(), UserId::uuid));
    let session = session.db();
    let head = if window.ascending() {
        let query = PageQuery::<true> { session, caller, first, last, limit: window.limit };
        on!(c, |c| load(c, query, &mut take))
    } else {
        let query = PageQuery::<false> { session, caller, first, last, limit: window.limit };
        on!(c, |c| load(c, query, &mut take))
    }?;
    Ok(head.ok_or(Refusal::NotFound)?)
}

impl RawMessage<'_> {
    /// As JSON, on one line.
    pub(super) fn write(&self, json: &mut String, audience: Audience) {
        json.reserve(self.content.len() + 320);
        let _ = write!(json, "{{\"id\":\"{}\",\"seq\":{}", self.id, self.seq);
        if audience == Audience::Members {
            json.push_str(",\"localId\":");
            write_text(json, self.local_id);
            let _ = write!(json, ",\"senderId\":\"{}\"", self.sender);
        }
        json.push_str(",\"content\":");
        write_text(json, self.content);
        match self.key_epoch {
            Some(epoch) => drop(write!(json, ",\"keyEpoch\":{epoch}")),
            None => json.push_str(",\"keyEpoch\":null"),
        }
        let _ = write!(json, ",\"createdAt\":\"{}\"}}", self.created_at);
    }
}

/// A JSON string. Ciphertext in base64 has nothing to escape, and then it is one copy.
fn write_text(json: &mut String, text: &str) {
    let plain = !text.bytes().fold(false, |special, b| special | (b < 0x20) | (b == b'"') | (b == b'\\'));
    if plain {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

/// The statement, as a type: so its SQL is built and planned once for each connection.
#[derive(Clone, Copy)]
struct PageQuery<const ASCENDING: bool> {
    session: DbId,
    caller: DbId,
    first: i64,
    last: i64,
    limit: i64,
}

impl<const ASCENDING: bool> QueryId for PageQuery<ASCENDING> {
    type QueryId = PageQuery<ASCENDING>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<const ASCENDING: bool> Query for PageQuery<ASCENDING> {
    type SqlType = Untyped;
}

impl<DB, const ASCENDING: bool> QueryFragment<DB> for PageQuery<ASCENDING>
where
    DB: Driver + HasSqlType<Uid> + HasSqlType<BigInt>,
    DbId: ToSql<Uid, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let order = if ASCENDING { "seq" } else { "seq DESC" };
        out.push_sql(
            "SELECT s.owner_id, h.access_level, s.last_seq, s.metadata_version, s.agent_state_version, \
             s.ended_at IS NOT NULL, s.key_epoch, \
             m.seq, m.id, m.sender_id, m.local_id, m.content, m.key_epoch, m.created_at FROM sessions s \
             LEFT JOIN shares h ON h.session_id = s.id AND h.user_id = ",
        );
        out.push_bind_param::<Uid, _>(&self.caller)?;
        // The sum ends a page at its size without reading what lies beyond: the length of a content is known without it.
        // PostgreSQL passes large contents on as pointers; SQLite would copy them, and finds them again by number instead.
        out.push_sql(if DB::COPIES {
            " LEFT JOIN (SELECT m.* FROM (SELECT seq, sum(size) OVER (ORDER BY "
        } else {
            " LEFT JOIN (SELECT * FROM (SELECT p.*, sum(size) OVER (ORDER BY "
        });
        out.push_sql(order);
        out.push_sql(" ROWS UNBOUNDED PRECEDING) AS bytes FROM (SELECT seq, octet_length(content) AS size");
        out.push_sql(if DB::COPIES { "" } else { ", id, sender_id, local_id, content, key_epoch, created_at" });
        out.push_sql(" FROM messages WHERE session_id = ");
        out.push_bind_param::<Uid, _>(&self.session)?;
        out.push_sql(" AND seq >= ");
        out.push_bind_param::<BigInt, _>(&self.first)?;
        out.push_sql(" AND seq <= ");
        out.push_bind_param::<BigInt, _>(&self.last)?;
        out.push_sql(" ORDER BY ");
        out.push_sql(order);
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.limit)?;
        out.push_sql(") p) w");
        if DB::COPIES {
            out.push_sql(" JOIN messages m ON m.seq = w.seq AND m.session_id = ");
            out.push_bind_param::<Uid, _>(&self.session)?;
        }
        out.push_sql(" WHERE w.bytes <= ");
        out.push_bind_param::<BigInt, _>(&PAGE_BYTES)?;
        out.push_sql(") m ON true WHERE s.id = ");
        out.push_bind_param::<Uid, _>(&self.session)?;
        out.push_sql(" AND s.deleted_at IS NULL ORDER BY m.");
        out.push_sql(order);
        Ok(())
    }
}

/// In what the drivers differ.
trait Driver: Backend {
    /// A window function copies whole contents.
    const COPIES: bool;

    /// Borrows a text from the driver's buffer.
    fn with_text<T>(value: Self::RawValue<'_>, read: impl FnOnce(&str) -> T) -> QueryResult<T>;
}

impl Driver for Pg {
    const COPIES: bool = false;

    fn with_text<T>(value: Self::RawValue<'_>, read: impl FnOnce(&str) -> T) -> QueryResult<T> {
        std::str::from_utf8(value.as_bytes()).map(read).map_err(|e| DieselError::DeserializationError(e.into()))
    }
}

impl Driver for Sqlite {
    const COPIES: bool = true;

    fn with_text<T>(mut value: Self::RawValue<'_>, read: impl FnOnce(&str) -> T) -> QueryResult<T> {
        Ok(read(value.read_text()))
    }
}

fn load<C, DB, const ASCENDING: bool>(
    c: &mut C,
    query: PageQuery<ASCENDING>,
    take: &mut impl FnMut(&RawMessage<'_>),
) -> QueryResult<Option<Head>>
where
    C: Connection<Backend = DB> + LoadConnection<DefaultLoadingMode>,
    DB: Backend + Driver + QueryMetadata<Untyped> + 'static,
    PageQuery<ASCENDING>: QueryFragment<DB>,
    UserId: FromSql<Uid, DB>,
    Uuid: FromSql<Uid, DB>,
    Timestamp: FromSql<Moment, DB>,
    i64: FromSql<BigInt, DB>,
    i16: FromSql<SmallInt, DB>,
    bool: FromSql<Bool, DB>,
{
    let mut head: Option<Head> = None;
    for row in LoadConnection::<DefaultLoadingMode>::load(c, query)? {
        let row = row?;
        let head = head.get_or_insert(Head {
            owner: column::<Uid, _, DB, _>(&row, 0)?,
            share: optional::<SmallInt, _, DB, _>(&row, 1)?,
            last_seq: column::<BigInt, _, DB, _>(&row, 2)?,
            stamp: SessionStamp {
                metadata_version: column::<BigInt, _, DB, _>(&row, 3)?,
                agent_state_version: column::<BigInt, _, DB, _>(&row, 4)?,
                ended: column::<Bool, _, DB, _>(&row, 5)?,
                key_epoch: column::<BigInt, _, DB, _>(&row, 6)?,
            },
            span: None,
        });
        let Some(seq) = optional::<BigInt, i64, DB, _>(&row, 7)? else { continue };
        let (id, sender) = (column::<Uid, _, DB, _>(&row, 8)?, column::<Uid, _, DB, _>(&row, 9)?);
        let key_epoch = optional::<BigInt, _, DB, _>(&row, 12)?;
        let created_at = column::<Moment, _, DB, _>(&row, 13)?;
        text::<DB, _, _>(&row, 10, |local_id| {
            text::<DB, _, _>(&row, 11, |content| {
                take(&RawMessage { seq, id, sender, local_id, content, key_epoch, created_at });
            })
        })??;
        let (lowest, highest) = head.span.unwrap_or((seq, seq));
        head.span = Some((lowest.min(seq), highest.max(seq)));
    }
    Ok(head)
}

fn column<'a, ST, T, DB, R>(row: &R, at: usize) -> QueryResult<T>
where
    DB: Backend,
    R: Row<'a, DB>,
    T: FromSql<ST, DB>,
{
    optional::<ST, T, DB, R>(row, at)?.ok_or_else(|| DieselError::DeserializationError("a column is empty".into()))
}

fn optional<'a, ST, T, DB, R>(row: &R, at: usize) -> QueryResult<Option<T>>
where
    DB: Backend,
    R: Row<'a, DB>,
    T: FromSql<ST, DB>,
{
    let field = row.get(at).ok_or_else(|| DieselError::DeserializationError("a column is missing".into()))?;
    field.value().map(T::from_sql).transpose().map_err(DieselError::DeserializationError)
}

fn text<'a, DB, R, T>(row: &R, at: usize, read: impl FnOnce(&str) -> T) -> QueryResult<T>
where
    DB: Driver,
    R: Row<'a, DB>,
{
    let missing = || DieselError::DeserializationError("a text is missing".into());
    let field = row.get(at).ok_or_else(missing)?;
    let value = field.value().ok_or_else(missing)?;
    DB::with_text(value, read)
}
