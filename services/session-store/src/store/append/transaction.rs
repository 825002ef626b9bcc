//! Appends that need a transaction: of guests, whose shares must be read under the lock, and with `localId`s that were used
//! before; and all of them on SQLite.

use std::collections::{BTreeMap, HashMap};

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::shares::ShareLevel;
use ensemble_types::time::Timestamp;

use super::rows::{Number, Rows, Whose};
use super::{Appended, Job, Outcome, Stored};
use crate::domain::access::{Access, CanEdit, Refusal};
use crate::store::lock;
use crate::store::schema::{messages, sessions, shares};

/// A session that is locked until the commit.
#[derive(Queryable, Selectable)]
#[diesel(table_name = sessions)]
struct Locked {
    id: SessionId,
    owner_id: UserId,
    deleted_at: Option<Timestamp>,
}

/// A message's identity to its sender.
type Name<'a> = (SessionId, UserId, &'a str);

/// Where a name was used before this draft.
enum Used {
    /// In an earlier transaction.
    Stored(Box<Message>),
    /// By an earlier draft of this one: its row in [`Rows`].
    Here(usize),
}

enum Placed {
    Row(usize),
    Used(Used),
}

/// Appends what is permitted of each job. A `localId` that was used before is looked for only when `careful`; otherwise it
/// ends in [`StoreError::Duplicate`].
pub(super) fn run(tx: &mut Conn, jobs: &[&Job], careful: bool) -> Result<Vec<Outcome>, StoreError> {
    let locked = lock_all(tx, jobs)?;
    let levels = levels(tx, jobs, &locked)?;
    let mut used = if careful { used_before(tx, jobs)? } else { HashMap::new() };
    let mut rows = Rows::default();
    let mut placed: Vec<Result<Vec<Placed>, Refusal>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        placed.push(match locked.get(&job.session) {
            None => Err(Refusal::NotFound),
            Some(session) => {
                let level = levels.get(&(job.session, job.sender)).copied();
                Access::of(session.owner_id, job.sender, level)
                    .and_then(|access| access.edit().map(|edit| place(edit, job, &mut used, &mut rows)))
            }
        });
    }
    let numbers = rows.store(tx, Whose::Permitted)?;
    let operation = tx.operation();
    let mut outcomes = Vec::with_capacity(jobs.len());
    for placed in placed {
        outcomes.push(match placed {
            Err(refusal) => Err(refusal),
            Ok(placed) => {
                let messages: Option<_> = placed.into_iter().map(|placed| stored(placed, &rows, &numbers)).collect();
                let lost = || StoreError::bad_row(operation, "a permitted message was not stored");
                Ok(Appended { messages: messages.ok_or_else(lost)? })
            }
        });
    }
    Ok(outcomes)
}

/// Gives each new draft of a call its row.
fn place<'a>(_: CanEdit<'_>, job: &'a Job, used: &mut HashMap<Name<'a>, Used>, rows: &mut Rows<'a>) -> Vec<Placed> {
    let mut places = Vec::with_capacity(job.drafts.messages.len());
    for draft in &job.drafts.messages {
        let name = (job.session, job.sender, draft.local_id.as_str());
        places.push(match used.get(&name) {
            Some(Used::Stored(message)) => Placed::Used(Used::Stored(message.clone())),
            Some(Used::Here(row)) => Placed::Used(Used::Here(*row)),
            None => {
                let row = rows.push(job, draft);
                used.insert(name, Used::Here(row));
                Placed::Row(row)
            }
        });
    }
    places
}

fn stored(placed: Placed, rows: &Rows<'_>, numbers: &[Option<Number>]) -> Option<Stored> {
    let number = |row: usize| numbers.get(row).copied().flatten();
    match placed {
        Placed::Row(row) => rows.stored(row, number(row)?),
        Placed::Used(Used::Stored(message)) => Some(Stored::Before(message)),
        Placed::Used(Used::Here(row)) => Some(Stored::Before(Box::new(rows.message(row, number(row)?)?))),
    }
}

/// Locks every session of the batch that exists, in the order of their ids: two batches can wait for each other, but never
/// in a circle.
fn lock_all(tx: &mut Conn, jobs: &[&Job]) -> Result<BTreeMap<SessionId, Locked>, StoreError> {
    let mut ids: Vec<DbId> = jobs.iter().map(|job| job.session.db()).collect();
    ids.sort();
    ids.dedup();
    // By nothing but their ids: with a condition on `deleted_at`, too, a planner without statistics reads a partial index.
    let query = sessions::table.filter(sessions::id.eq_any(ids)).order(sessions::id);
    let locked: Vec<Locked> = on!(
        tx,
        Pg | c | query.select(Locked::as_select()).for_no_key_update().load(c),
        Sqlite | c | query.select(Locked::as_select()).load(c)
    )?;
    let there = locked.into_iter().filter(|session| session.deleted_at.is_none());
    Ok(there.map(|session| (session.id, session)).collect())
}

/// The shares of those senders that are not owners. Read after the locks, so a revoke is either seen or still to come.
fn levels(
    tx: &mut Conn,
    jobs: &[&Job],
    locked: &BTreeMap<SessionId, Locked>,
) -> Result<HashMap<(SessionId, UserId), ShareLevel>, StoreError> {
    let is_guest = |job: &&&Job| locked.get(&job.session).is_some_and(|session| session.owner_id != job.sender);
    let (sessions, users): (Vec<DbId>, Vec<DbId>) =
        jobs.iter().filter(is_guest).map(|job| (job.session.db(), job.sender.db())).unzip();
    if sessions.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<(SessionId, UserId, i16)> = on!(tx, |c| shares::table
        .filter(shares::session_id.eq_any(&sessions).and(shares::user_id.eq_any(&users)))
        .select((shares::session_id, shares::user_id, shares::access_level))
        .load(c))?;
    let operation = tx.operation();
    found.into_iter().map(|(s, u, level)| Ok(((s, u), lock::level_from(operation, level)?))).collect()
}

fn used_before<'a>(tx: &mut Conn, jobs: &[&'a Job]) -> Result<HashMap<Name<'a>, Used>, StoreError> {
    let mut asked: HashMap<(SessionId, UserId), Vec<&'a str>> = HashMap::new();
    for job in jobs {
        let names = job.drafts.messages.iter().map(|draft| draft.local_id.as_str());
        asked.entry((job.session, job.sender)).or_default().extend(names);
    }
    let mut used = HashMap::new();
    for ((session, sender), names) in asked {
        for message in find(tx, session, sender, &names)? {
            if let Some(name) = names.iter().find(|name| **name == message.local_id) {
                used.insert((session, sender, *name), Used::Stored(Box::new(message)));
            }
        }
    }
    Ok(used)
}

fn find(tx: &mut Conn, session: SessionId, sender: UserId, names: &[&str]) -> Result<Vec<Message>, StoreError> {
    type Row = (MessageId, i64, String, String, UserId, Option<i64>, Timestamp);
    let rows: Vec<Row> = on!(tx, |c| messages::table
        .filter(messages::session_id.eq(session.db()).and(messages::sender_id.eq(sender.db())))
        .filter(messages::local_id.eq_any(names))
        .select((
            messages::id,
            messages::seq,
            messages::local_id,
            messages::content,
            messages::sender_id,
            messages::key_epoch,
            messages::created_at
        ))
        .load(c))?;
    let message = |(id, seq, local_id, content, sender_id, key_epoch, created_at)| Message {
        id,
        seq,
        local_id,
        content,
        sender_id,
        key_epoch,
        created_at,
    };
    Ok(rows.into_iter().map(message).collect())
}
