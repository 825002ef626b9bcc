//! Messages on their way into the database, and the statement that numbers and stores them.
//!
//! On PostgreSQL it is one statement whatever the number of rows, so that it is planned once for each connection. It locks
//! the sessions (and sees each as it is once the lock is there), gives out the numbers, stores the messages and moves the
//! sessions on. A single message of an owner has a smaller one, [`Single`]. SQLite runs in this process, so there a statement
//! for each row costs no round trip.

use std::collections::{BTreeMap, BTreeSet};

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Moment, Uid, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::time::Timestamp;

use super::{Job, Stored};
use crate::domain::draft::Draft;
use crate::store::schema::{messages, sessions};
use crate::store::topic;

/// Whose messages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of the sessions' owners; the statement itself finds out who that is. An owner needs nothing but the session's
    /// row, so nothing can have changed between the statement's beginning and its lock; a guest's share could have.
    Owners,
    /// All: that they may was decided in this transaction, from rows that are still locked.
    Permitted,
}

/// What a message that was stored got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    seq: i64,
    at: Timestamp,
}

#[derive(Default)]
pub(super) struct Rows<'a> {
    session: Vec<DbId>,
    id: Vec<DbId>,
    sender: Vec<DbId>,
    local_id: Vec<&'a str>,
    content: Vec<&'a str>,
    key_epoch: Vec<Option<i64>>,
}

impl<'a> Rows<'a> {
    /// Gives the row's place.
    pub(super) fn push(&mut self, job: &Job, draft: &'a Draft) -> usize {
        self.session.push(job.session.db());
        self.id.push(MessageId::generate().db());
        self.sender.push(job.sender.db());
        self.local_id.push(&draft.local_id);
        self.content.push(&draft.content);
        self.key_epoch.push(draft.key_epoch);
        self.id.len() - 1
    }

    /// Numbers and stores them in their order, and wakes who waits for them. Nothing for those that are not stored. A
    /// `localId` that was used before ends in [`StoreError::Duplicate`].
    pub(super) fn store(&self, c: &mut Conn, whose: Whose) -> Result<Vec<Option<Number>>, StoreError> {
        let mut numbers = vec![None; self.id.len()];
        if numbers.is_empty() {
            return Ok(numbers);
        }
        let sessions: Vec<DbId> = self.session.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let stored = on!(
            c,
            Pg | pg
                | if whose == Whose::Owners && self.id.len() == 1 {
                    Single(self).load(pg)
                } else {
                    Statement { rows: self, sessions: &sessions, permitted: whose == Whose::Permitted }.load(pg)
                },
            Sqlite | sqlite | self.one_by_one(sqlite, whose)
        )?;
        for (place, seq, at) in stored {
            // Places count from one.
            let slot = usize::try_from(place - 1).ok().and_then(|place| numbers.get_mut(place));
            *slot.ok_or_else(|| StoreError::bad_row(c.operation(), "a message that was not asked for"))? =
                Some(Number { seq, at });
        }
        let stored = self.session.iter().zip(&numbers).filter(|(_, number)| number.is_some());
        for session in stored.map(|(session, _)| *session).collect::<BTreeSet<DbId>>() {
            c.notify(topic(SessionId::from_uuid(session.0)));
        }
        Ok(numbers)
    }

    /// What became of a row.
    pub(super) fn stored(&self, row: usize, number: Number) -> Option<Stored> {
        let id = MessageId::from_uuid(self.id.get(row)?.0);
        Some(Stored::New { id, seq: number.seq, created_at: number.at })
    }

    /// A row that has just been stored, for a draft that has the same name.
    pub(super) fn message(&self, row: usize, number: Number) -> Option<Message> {
        Some(Message {
            id: MessageId::from_uuid(self.id.get(row)?.0),
            seq: number.seq,
            local_id: (*self.local_id.get(row)?).to_owned(),
            content: (*self.content.get(row)?).to_owned(),
            sender_id: UserId::from_uuid(self.sender.get(row)?.0),
            key_epoch: *self.key_epoch.get(row)?,
            created_at: number.at,
        })
    }

    fn one_by_one(&self, c: &mut SqliteConnection, whose: Whose) -> QueryResult<Vec<(i64, i64, Timestamp)>> {
        if whose == Whose::Owners {
            return Ok(Vec::new());
        }
        let at: Timestamp = diesel::select(now()).get_result(c)?;
        let mut last: BTreeMap<DbId, i64> = BTreeMap::new();
        let mut numbers = Vec::with_capacity(self.id.len());
        let ids = self.session.iter().zip(&self.id).zip(&self.sender);
        let contents = self.local_id.iter().zip(&self.content).zip(&self.key_epoch);
        for (place, (((session, id), sender), ((local_id, content), key_epoch))) in (1..).zip(ids.zip(contents)) {
            let last_seq = match last.get(session) {
                Some(last_seq) => *last_seq,
                None => sessions::table.find(session).select(sessions::last_seq).first(c)?,
            };
            let seq = last_seq + 1;
            last.insert(*session, seq);
            numbers.push((place, seq, at));
            diesel::insert_into(messages::table)
                .values((
                    messages::session_id.eq(session),
                    messages::seq.eq(seq),
                    messages::id.eq(id),
                    messages::sender_id.eq(sender),
                    messages::local_id.eq(local_id),
                    messages::content.eq(content),
                    messages::key_epoch.eq(key_epoch),
                    messages::created_at.eq(at.db()),
                ))
                .execute(c)?;
        }
        for (session, last_seq) in &last {
            cached(
                diesel::update(sessions::table.find(session))
                    .set((sessions::last_seq.eq(last_seq), sessions::updated_at.eq(at.db()))),
            )
            .execute(c)?;
        }
        Ok(numbers)
    }
}

/// One message of a session's owner, which is all there is to do when one person writes: a third less work than
/// [`Statement`], which also puts many in order.
struct Single<'a, 'r>(&'r Rows<'a>);

impl QueryId for Single<'_, '_> {
    type QueryId = Single<'static, 'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Single<'_, '_> {
    type SqlType = (BigInt, BigInt, Moment);
}

impl RunQueryDsl<PgConnection> for Single<'_, '_> {}

impl QueryFragment<Pg> for Single<'_, '_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let rows = self.0;
        let columns = rows.session.iter().zip(&rows.id).zip(&rows.sender);
        let contents = rows.local_id.iter().zip(&rows.content).zip(&rows.key_epoch);
        for (((session, id), sender), ((local_id, content), key_epoch)) in columns.zip(contents) {
            // Whoever waited here for the row reads the clock again when it has it.
            out.push_sql("WITH moved AS (UPDATE sessions SET last_seq = last_seq + 1, updated_at = clock_timestamp() WHERE id = ");
            out.push_bind_param::<Uid, _>(session)?;
            out.push_sql(" AND owner_id = ");
            out.push_bind_param::<Uid, _>(sender)?;
            out.push_sql(
                " AND deleted_at IS NULL RETURNING id, owner_id, last_seq, updated_at) INSERT INTO messages \
                 (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at) \
                 SELECT id, last_seq, ",
            );
            out.push_bind_param::<Uid, _>(id)?;
            out.push_sql(", owner_id, ");
            out.push_bind_param::<Text, _>(local_id)?;
            out.push_sql(", ");
            out.push_bind_param::<Text, _>(content)?;
            out.push_sql(", ");
            out.push_bind_param::<Nullable<BigInt>, _>(key_epoch)?;
            out.push_sql(", updated_at FROM moved RETURNING 1::bigint, seq, created_at");
        }
        Ok(())
    }
}

struct Statement<'a, 'r> {
    rows: &'r Rows<'a>,
    /// Sorted, each once.
    sessions: &'r [DbId],
    permitted: bool,
}

impl QueryId for Statement<'_, '_> {
    type QueryId = Statement<'static, 'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Statement<'_, '_> {
    type SqlType = (BigInt, BigInt, Moment);
}

impl RunQueryDsl<PgConnection> for Statement<'_, '_> {}

impl QueryFragment<Pg> for Statement<'_, '_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        // Sessions are found by nothing but their ids: with a condition on `deleted_at` here, a planner without statistics
        // reads a whole partial index beside them.
        out.push_sql(
            "WITH locked AS MATERIALIZED (SELECT id, owner_id, deleted_at, last_seq FROM sessions WHERE id = ANY(",
        );
        out.push_bind_param::<Array<Uid>, _>(self.sessions)?;
        // The time is asked for when all locks are there.
        out.push_sql(
            ") ORDER BY id FOR NO KEY UPDATE), \
             t AS MATERIALIZED (SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM locked) c), \
             numbered AS MATERIALIZED (SELECT d.*, \
             l.last_seq + row_number() OVER (PARTITION BY d.session_id ORDER BY d.place) AS seq FROM unnest(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.rows.session)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Uid>, _>(&self.rows.id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Uid>, _>(&self.rows.sender)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.rows.local_id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Text>, _>(&self.rows.content)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<BigInt>>, _>(&self.rows.key_epoch)?;
        out.push_sql(
            ") WITH ORDINALITY AS d (session_id, id, sender_id, local_id, content, key_epoch, place) \
             JOIN locked l ON l.id = d.session_id AND l.deleted_at IS NULL AND (l.owner_id = d.sender_id OR ",
        );
        out.push_bind_param::<Bool, _>(&self.permitted)?;
        out.push_sql(
            ")), \
             stored AS (INSERT INTO messages \
             (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at) \
             SELECT n.session_id, n.seq, n.id, n.sender_id, n.local_id, n.content, n.key_epoch, t.at \
             FROM numbered n, t), \
             moved AS (UPDATE sessions s SET last_seq = n.last_seq, updated_at = t.at FROM \
             (SELECT session_id, max(seq) AS last_seq FROM numbered GROUP BY session_id) n, t \
             WHERE s.id = n.session_id) \
             SELECT n.place, n.seq, t.at FROM numbered n, t",
        );
        Ok(())
    }
}
