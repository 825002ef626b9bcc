//! What happens inside the commit of a batch: locks, permissions, numbers, rows.

mod insert;

use std::collections::{BTreeMap, HashMap};

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::shares::ShareLevel;
use ensemble_types::time::Timestamp;

use self::insert::Rows;
use super::{Appended, Job, Outcome, Stored};
use crate::domain::access::{Access, CanEdit, Refusal};
use crate::domain::draft::Draft;
use crate::store::schema::{messages, sessions, shares};
use crate::store::{lock, topic};

/// A session that is locked until the commit.
#[derive(Queryable, Selectable)]
#[diesel(table_name = sessions)]
struct Locked {
    id: SessionId,
    owner_id: UserId,
    last_seq: i64,
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
    let mut spines = lock_all(tx, jobs)?;
    let levels = levels(tx, jobs, &spines)?;
    let mut used = if careful { used_before(tx, jobs)? } else { HashMap::new() };
    let mut rows = Rows::default();
    let mut placed: Vec<Result<Vec<Placed>, Refusal>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        placed.push(match spines.get_mut(&job.session) {
            None => Err(Refusal::NotFound),
            Some(spine) => {
                let level = levels.get(&(job.session, job.sender)).copied();
                Access::of(spine.owner_id, job.sender, level)
                    .and_then(|access| access.edit().map(|edit| place(edit, job, spine, &mut used, &mut rows)))
            }
        });
    }
    let at = if rows.is_empty() { Timestamp::from_micros(0) } else { rows.insert(tx)? };
    for session in rows.sessions() {
        tx.wake(topic(session));
    }
    Ok(placed.into_iter().map(|placed| Ok(Appended { messages: stored(placed?, &rows, at) })).collect())
}

/// Numbers the drafts of one call.
fn place<'a>(
    _: CanEdit<'_>,
    job: &'a Job,
    spine: &mut Locked,
    used: &mut HashMap<Name<'a>, Used>,
    rows: &mut Rows<'a>,
) -> Vec<Placed> {
    let mut numbered = Vec::with_capacity(job.drafts.messages.len());
    for draft in &job.drafts.messages {
        let name = (job.session, job.sender, draft.local_id.as_str());
        numbered.push(match used.get(&name) {
            Some(Used::Stored(message)) => Placed::Used(Used::Stored(message.clone())),
            Some(Used::Here(row)) => Placed::Used(Used::Here(*row)),
            None => {
                spine.last_seq += 1;
                let row = rows.push(job.session, job.sender, spine.last_seq, MessageId::generate(), draft);
                used.insert(name, Used::Here(row));
                Placed::Row(row)
            }
        });
    }
    numbered
}

fn stored(placed: Vec<Placed>, rows: &Rows<'_>, at: Timestamp) -> Vec<Stored> {
    let of = |placed| match placed {
        Placed::Row(row) => rows.get(row).map(|row| Stored::New { id: row.id, seq: row.seq, created_at: at }),
        Placed::Used(Used::Stored(message)) => Some(Stored::Before(message)),
        Placed::Used(Used::Here(row)) => rows.get(row).map(|row| {
            let Draft { local_id, content, key_epoch } = row.draft;
            Stored::Before(Box::new(Message {
                id: row.id,
                seq: row.seq,
                local_id: local_id.clone(),
                content: content.clone(),
                sender_id: row.sender,
                key_epoch: *key_epoch,
                created_at: at,
            }))
        }),
    };
    placed.into_iter().filter_map(of).collect()
}

/// Locks every session of the batch that exists, in the order of their ids: two batches can wait for each other, but never
/// in a circle.
fn lock_all(tx: &mut Conn, jobs: &[&Job]) -> Result<BTreeMap<SessionId, Locked>, StoreError> {
    let mut ids: Vec<DbId> = jobs.iter().map(|job| job.session.db()).collect();
    ids.sort();
    ids.dedup();
    let query =
        sessions::table.filter(sessions::id.eq_any(ids)).filter(sessions::deleted_at.is_null()).order(sessions::id);
    let locked: Vec<Locked> = on!(
        tx,
        Pg | c | query.select(Locked::as_select()).for_no_key_update().load(c),
        Sqlite | c | query.select(Locked::as_select()).load(c)
    )?;
    Ok(locked.into_iter().map(|session| (session.id, session)).collect())
}

/// The shares of those senders that are not owners. Read after the locks, so a revoke is either seen or still to come.
fn levels(
    tx: &mut Conn,
    jobs: &[&Job],
    spines: &BTreeMap<SessionId, Locked>,
) -> Result<HashMap<(SessionId, UserId), ShareLevel>, StoreError> {
    let is_guest = |job: &&&Job| spines.get(&job.session).is_some_and(|spine| spine.owner_id != job.sender);
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
