//! Looks on their way between replicas. The table is unlogged, so that a look waits for no disk, and it is there on PostgreSQL only.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Array, Bool, Double, Nullable, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{LookId, MachineId, SessionId, UserId};
use ensemble_types::text::Blob;

use crate::domain::look::{Asked, Progress, Whose};

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Uid)]
    id: LookId,
    #[diesel(sql_type = Uid)]
    owner_id: UserId,
    #[diesel(sql_type = Text)]
    machine_id: String,
    #[diesel(sql_type = Nullable<Uid>)]
    session_id: Option<SessionId>,
    #[diesel(sql_type = Text)]
    question: String,
}

#[derive(QueryableByName)]
struct Unsent {
    #[diesel(sql_type = Uid)]
    id: LookId,
    #[diesel(sql_type = Uid)]
    owner_id: UserId,
    #[diesel(sql_type = Text)]
    machine_id: String,
}

#[derive(QueryableByName)]
struct State {
    #[diesel(sql_type = Bool)]
    sent: bool,
    #[diesel(sql_type = Nullable<Text>)]
    answer: Option<String>,
}

pub(crate) fn insert(tx: &mut Conn, Asked { id, whose, question }: &Asked) -> Result<(), StoreError> {
    const INSERT: &str =
        "INSERT INTO looks (id, owner_id, machine_id, session_id, question) VALUES ($1, $2, $3, $4, $5)";
    on!(
        tx,
        Pg | c | {
            let insert = sql_query(INSERT).bind::<Uid, _>(id.db()).bind::<Uid, _>(whose.owner.db());
            let insert = insert.bind::<Text, _>(whose.machine.as_str()).bind::<Nullable<Uid>, _>(whose.session.db());
            cached(insert.bind::<Text, _>(&**question)).execute(c).map(drop)
        },
        Sqlite | _c | Ok(()),
    )
}

/// The looks that no machine was sent yet: id, owner, machine.
pub(crate) fn unsent(c: &mut Conn, fresh_for: Duration) -> Result<Vec<(LookId, UserId, String)>, StoreError> {
    const UNSENT: &str = "SELECT id, owner_id, machine_id FROM looks \
        WHERE NOT sent AND asked_at > clock_timestamp() - make_interval(secs => $1)";
    let rows: Vec<Unsent> = on!(
        c,
        Pg | c | cached(sql_query(UNSENT).bind::<Double, _>(fresh_for.as_secs_f64())).load(c),
        Sqlite | _c | Ok(Vec::new()),
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.owner_id, row.machine_id)).collect())
}

/// Takes these, to send them. One that another replica takes at the same time is left out.
pub(crate) fn take(tx: &mut Conn, ids: &[LookId]) -> Result<Vec<Asked>, StoreError> {
    const TAKE: &str = "UPDATE looks SET sent = true WHERE id = ANY($1) AND NOT sent \
        RETURNING id, owner_id, machine_id, session_id, question";
    let rows: Vec<Row> = on!(
        tx,
        Pg | c | {
            let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
            cached(sql_query(TAKE).bind::<Array<Uid>, _>(ids)).load(c)
        },
        Sqlite | _c | Ok(Vec::new()),
    )?;
    let operation = tx.operation();
    rows.into_iter().map(|row| asked(operation, row)).collect()
}

/// The look, as long as it can be answered.
pub(crate) fn find(c: &mut Conn, id: LookId, fresh_for: Duration) -> Result<Option<Asked>, StoreError> {
    const FIND: &str = "SELECT id, owner_id, machine_id, session_id, question FROM looks \
        WHERE id = $1 AND answer IS NULL AND asked_at > clock_timestamp() - make_interval(secs => $2)";
    let row: Option<Row> = on!(
        c,
        Pg | c | {
            let find = sql_query(FIND).bind::<Uid, _>(id.db()).bind::<Double, _>(fresh_for.as_secs_f64());
            cached(find).get_result(c).optional()
        },
        Sqlite | _c | Ok(None),
    )?;
    let operation = c.operation();
    row.map(|row| asked(operation, row)).transpose()
}

/// Keeps the answer of the machine that was asked, if it has none yet.
pub(crate) fn answer(
    tx: &mut Conn,
    id: LookId,
    (owner, machine): (UserId, &MachineId),
    answer: &str,
    fresh_for: Duration,
) -> Result<bool, StoreError> {
    const ANSWER: &str = "UPDATE looks SET answer = $4 WHERE id = $1 AND owner_id = $2 AND machine_id = $3 AND sent \
        AND answer IS NULL AND asked_at > clock_timestamp() - make_interval(secs => $5)";
    on!(
        tx,
        Pg | c | {
            let keep = sql_query(ANSWER).bind::<Uid, _>(id.db()).bind::<Uid, _>(owner.db());
            let keep = keep.bind::<Text, _>(machine.as_str()).bind::<Text, _>(answer);
            cached(keep.bind::<Double, _>(fresh_for.as_secs_f64())).execute(c).map(|count| count > 0)
        },
        Sqlite | _c | Ok(false),
    )
}

pub(crate) fn progress(c: &mut Conn, id: LookId) -> Result<Progress, StoreError> {
    const STATE: &str = "SELECT sent, answer FROM looks WHERE id = $1";
    let row: Option<State> = on!(
        c,
        Pg | c | cached(sql_query(STATE).bind::<Uid, _>(id.db())).get_result(c).optional(),
        Sqlite | _c | Ok(None),
    )?;
    Ok(match row {
        Some(State { answer: Some(answer), .. }) => Progress::Answered(answer),
        Some(State { sent: false, .. }) => Progress::Waiting,
        Some(_) | None => Progress::Sent,
    })
}

pub(crate) fn remove(tx: &mut Conn, id: LookId) -> Result<(), StoreError> {
    const REMOVE: &str = "DELETE FROM looks WHERE id = $1";
    on!(tx, Pg | c | cached(sql_query(REMOVE).bind::<Uid, _>(id.db())).execute(c).map(drop), Sqlite | _c | Ok(()),)
}

/// Removes looks that are older than this: who has asked is gone.
pub(crate) fn remove_old(tx: &mut Conn, kept: Duration) -> Result<(), StoreError> {
    const REMOVE: &str = "DELETE FROM looks WHERE asked_at < clock_timestamp() - make_interval(secs => $1)";
    on!(tx, Pg | c | sql_query(REMOVE).bind::<Double, _>(kept.as_secs_f64()).execute(c).map(drop), Sqlite | _c | Ok(()),)
}

fn asked(operation: &'static str, row: Row) -> Result<Asked, StoreError> {
    let Row { id, owner_id: owner, machine_id, session_id: session, question } = row;
    let machine = machine_id.parse().map_err(|error| StoreError::bad_row(operation, error))?;
    let question = Blob::new(question).map_err(|error| StoreError::bad_row(operation, error))?;
    Ok(Asked { id, whose: Whose { owner, machine, session }, question })
}
