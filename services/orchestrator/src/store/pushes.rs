//! The table `pushes`: runs that have ended, and that identity still has to be notified of.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::time::Timestamp;

use super::schema::pushes;

#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = pushes)]
pub(crate) struct Push {
    pub(crate) run_id: RunId,
    pub(crate) owner_id: UserId,
    pub(crate) kind: String,
    pub(crate) attention: String,
}

/// Has the end of a run given now. An earlier end of the same run that was not given is forgotten.
pub(crate) fn insert(tx: &mut Conn, push: &Push) -> Result<(), StoreError> {
    let of_run = pushes::table.find(push.run_id.db());
    on!(tx, |c| diesel::delete(of_run).execute(c))?;
    let row = (
        pushes::run_id.eq(push.run_id.db()),
        pushes::owner_id.eq(push.owner_id.db()),
        pushes::kind.eq(&push.kind),
        pushes::attention.eq(&push.attention),
        pushes::due_at.eq(now()),
    );
    on!(tx, |c| diesel::insert_into(pushes::table).values(row).execute(c))?;
    Ok(())
}

/// Takes those that are due; no other process takes them before `until`.
pub(crate) fn take(tx: &mut Conn, limit: i64, until: Timestamp) -> Result<Vec<Push>, StoreError> {
    let due = pushes::table.filter(pushes::due_at.le(now())).order(pushes::due_at).limit(limit);
    let taken: Vec<Push> = on!(
        tx,
        Pg | c | due.select(Push::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due.select(Push::as_select()).load(c)
    )?;
    for push in &taken {
        let row = pushes::table.find(push.run_id.db());
        on!(tx, |c| diesel::update(row).set(pushes::due_at.eq(until.db())).execute(c))?;
    }
    Ok(taken)
}

/// identity has it.
pub(crate) fn given(tx: &mut Conn, push: &Push) -> Result<(), StoreError> {
    let row = pushes::table.filter(pushes::run_id.eq(push.run_id.db()).and(pushes::attention.eq(&push.attention)));
    on!(tx, |c| diesel::delete(row).execute(c))?;
    Ok(())
}
