//! What owners append, in one statement that commits itself: one way to the database and back.
//!
//! The statement locks the sessions (and sees each as it is once the lock is there), numbers the messages of those senders
//! that own them, stores them and moves the sessions on. An owner needs nothing but the session's row, so nothing can have
//! changed between the statement's beginning and its lock; a guest's share could have, so guests are left out.

use std::collections::HashSet;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Moment, Uid};
use ensemble_store_kit::{Conn, Raw, StoreError};
use ensemble_types::ids::MessageId;
use ensemble_types::time::Timestamp;

use super::{Appended, Job, Stored};
use crate::store::topic;

/// Stores what it can; nothing for the calls that are left to [`super::transaction`]. A `localId` that was used before ends
/// in [`StoreError::Duplicate`].
pub(super) fn run(c: &mut Conn, jobs: &[&Job]) -> Result<Vec<Option<Appended>>, StoreError> {
    let nothing = || jobs.iter().map(|_| None).collect();
    if !c.is_postgres() || repeats_itself(jobs) {
        return Ok(nothing());
    }
    let statement = Statement::new(jobs);
    let outcome = match &mut c.raw {
        Raw::Pg(pg) => (&statement).load::<(i64, i64, Timestamp)>(pg),
        Raw::Sqlite(_) => return Ok(nothing()),
    };
    let stored = c.seen(outcome)?;
    let mut numbers = vec![None; statement.id.len()];
    for (place, seq, at) in stored {
        // Places count from one.
        let slot = usize::try_from(place - 1).ok().and_then(|place| numbers.get_mut(place));
        *slot.ok_or_else(|| StoreError::bad_row(c.operation(), "a message that was not asked for"))? = Some((seq, at));
    }
    let mut numbered = statement.id.iter().zip(numbers);
    let mut outcomes = Vec::with_capacity(jobs.len());
    for job in jobs {
        let drafts = numbered.by_ref().take(job.drafts.messages.len());
        let messages: Option<Vec<Stored>> = drafts
            .map(|(id, number)| {
                number.map(|(seq, created_at)| Stored::New { id: MessageId::from_uuid(id.0), seq, created_at })
            })
            .collect::<Vec<_>>()
            .into_iter()
            .collect();
        if messages.is_some() {
            c.wake(topic(job.session));
        }
        outcomes.push(messages.map(|messages| Appended { messages }));
    }
    Ok(outcomes)
}

/// A `localId` twice in one batch: which is the first is a question for the careful.
fn repeats_itself(jobs: &[&Job]) -> bool {
    let mut names = HashSet::new();
    let mut all = jobs.iter().flat_map(|job| {
        job.drafts.messages.iter().map(move |draft| (job.session, job.sender, draft.local_id.as_str()))
    });
    !all.all(|name| names.insert(name))
}

/// One statement whatever the number of rows, so that it is planned once.
struct Statement<'a> {
    sessions: Vec<DbId>,
    session: Vec<DbId>,
    id: Vec<DbId>,
    sender: Vec<DbId>,
    local_id: Vec<&'a str>,
    content: Vec<&'a str>,
    key_epoch: Vec<Option<i64>>,
}

impl<'a> Statement<'a> {
    fn new(jobs: &[&'a Job]) -> Self {
        let mut sessions: Vec<DbId> = jobs.iter().map(|job| job.session.db()).collect();
        sessions.sort();
        sessions.dedup();
        let rows = || jobs.iter().flat_map(|job| job.drafts.messages.iter().map(move |draft| (*job, draft)));
        Self {
            sessions,
            session: rows().map(|(job, _)| job.session.db()).collect(),
            id: rows().map(|_| MessageId::generate().db()).collect(),
            sender: rows().map(|(job, _)| job.sender.db()).collect(),
            local_id: rows().map(|(_, draft)| draft.local_id.as_str()).collect(),
            content: rows().map(|(_, draft)| draft.content.as_str()).collect(),
            key_epoch: rows().map(|(_, draft)| draft.key_epoch).collect(),
        }
    }
}

impl QueryId for Statement<'_> {
    type QueryId = Statement<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for Statement<'_> {
    type SqlType = (BigInt, BigInt, Moment);
}

impl RunQueryDsl<PgConnection> for &Statement<'_> {}

impl QueryFragment<Pg> for Statement<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "WITH locked AS MATERIALIZED (SELECT id, owner_id, last_seq FROM sessions \
             WHERE deleted_at IS NULL AND id = ANY(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.sessions)?;
        // The time is asked for when all locks are there.
        out.push_sql(
            ") ORDER BY id FOR NO KEY UPDATE), \
             t AS MATERIALIZED (SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM locked) c), \
             numbered AS MATERIALIZED (SELECT d.*, \
             l.last_seq + row_number() OVER (PARTITION BY d.session_id ORDER BY d.place) AS seq FROM unnest(",
        );
        out.push_bind_param::<Array<Uid>, _>(&self.session)?;
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
            ") WITH ORDINALITY AS d (session_id, id, sender_id, local_id, content, key_epoch, place) \
             JOIN locked l ON l.id = d.session_id AND l.owner_id = d.sender_id), \
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
