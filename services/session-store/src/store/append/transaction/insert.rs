//! The rows of a batch, and the one statement that stores them and moves the sessions on.

use std::collections::BTreeMap;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Moment, Uid, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::time::Timestamp;

use crate::domain::draft::Draft;
use crate::store::schema::{messages, sessions};

/// A message with its number.
pub(super) struct Row<'a> {
    session: SessionId,
    pub(super) sender: UserId,
    pub(super) seq: i64,
    pub(super) id: MessageId,
    pub(super) draft: &'a Draft,
}

#[derive(Default)]
pub(super) struct Rows<'a> {
    rows: Vec<Row<'a>>,
    /// The highest number of each session.
    last: BTreeMap<SessionId, i64>,
}

impl<'a> Rows<'a> {
    /// Gives the row's place.
    pub(super) fn push(
        &mut self,
        session: SessionId,
        sender: UserId,
        seq: i64,
        id: MessageId,
        draft: &'a Draft,
    ) -> usize {
        self.rows.push(Row { session, sender, seq, id, draft });
        self.last.insert(session, seq);
        self.rows.len() - 1
    }

    pub(super) fn get(&self, row: usize) -> Option<&Row<'a>> {
        self.rows.get(row)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.last.keys().copied()
    }

    /// Stores them all; gives the time that they were stored at.
    pub(super) fn insert(&self, tx: &mut Conn) -> Result<Timestamp, StoreError> {
        on!(tx, Pg | c | self.as_arrays().get_result::<Timestamp>(c), Sqlite | c | self.one_by_one(c))
    }

    /// SQLite runs in this process, so a statement for each row costs no round trip.
    fn one_by_one(&self, c: &mut SqliteConnection) -> QueryResult<Timestamp> {
        let at: Timestamp = diesel::select(now()).get_result(c)?;
        for row in &self.rows {
            diesel::insert_into(messages::table)
                .values((
                    messages::session_id.eq(row.session.db()),
                    messages::seq.eq(row.seq),
                    messages::id.eq(DbId(row.id.uuid())),
                    messages::sender_id.eq(row.sender.db()),
                    messages::local_id.eq(row.draft.local_id.as_str()),
                    messages::content.eq(row.draft.content.as_str()),
                    messages::key_epoch.eq(row.draft.key_epoch),
                    messages::created_at.eq(at.db()),
                ))
                .execute(c)?;
        }
        for (session, last_seq) in &self.last {
            diesel::update(sessions::table.find(session.db()))
                .set((sessions::last_seq.eq(last_seq), sessions::updated_at.eq(at.db())))
                .execute(c)?;
        }
        Ok(at)
    }

    fn as_arrays(&self) -> Insert<'_> {
        let rows = || self.rows.iter();
        Insert {
            session: rows().map(|row| row.session.db()).collect(),
            seq: rows().map(|row| row.seq).collect(),
            id: rows().map(|row| DbId(row.id.uuid())).collect(),
            sender: rows().map(|row| row.sender.db()).collect(),
            local_id: rows().map(|row| row.draft.local_id.as_str()).collect(),
            content: rows().map(|row| row.draft.content.as_str()).collect(),
            key_epoch: rows().map(|row| row.draft.key_epoch).collect(),
            moved: self.last.keys().map(|session| session.db()).collect(),
            last_seq: self.last.values().copied().collect(),
        }
    }
}

/// One statement whatever the number of rows, so that it is planned once.
struct Insert<'a> {
    session: Vec<DbId>,
    seq: Vec<i64>,
    id: Vec<DbId>,
    sender: Vec<DbId>,
    local_id: Vec<&'a str>,
    content: Vec<&'a str>,
    key_epoch: Vec<Option<i64>>,
    moved: Vec<DbId>,
    last_seq: Vec<i64>,
}

impl QueryId for Insert<'_> {
    type QueryId = Insert<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Insert<'_> {
    type SqlType = Moment;
}

impl RunQueryDsl<PgConnection> for Insert<'_> {}

impl QueryFragment<Pg> for Insert<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "WITH t AS MATERIALIZED (SELECT clock_timestamp() AS at), stored AS (INSERT INTO messages \
             (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at) \
             SELECT d.session_id, d.seq, d.id, d.sender_id, d.local_id, d.content, d.key_epoch, t.at FROM t, unnest(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.session)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.seq)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Uid>, _>(&self.id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Uid>, _>(&self.sender)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.local_id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.content)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<BigInt>>, _>(&self.key_epoch)?;
        out.push_sql(
            ") AS d (session_id, seq, id, sender_id, local_id, content, key_epoch)), \
             moved AS (UPDATE sessions s SET last_seq = n.last_seq, updated_at = t.at FROM t, unnest(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.moved)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.last_seq)?;
        out.push_sql(") AS n (id, last_seq) WHERE s.id = n.id) SELECT at FROM t");
        Ok(())
    }
}
