//! The table `departures`: deleted machines that a peer has not been notified of yet.
//!
//! A row is written in the transaction that deletes the machine, so that no deletion is lost.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::schema::deletions;
use crate::domain::OwnMachine;

/// Rows that are taken at once.
const BATCH: i64 = 16;

/// A deleted machine, and the peers that know of it.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
pub(crate) struct Deletion {
    pub(crate) owner_id: UserId,
    pub(crate) machine_id: String,
    pub(crate) deleted_at: Timestamp,
    pub(crate) identity_notified: bool,
    pub(crate) orchestrator_notified: bool,
}

/// Adds a deletion. It replaces an earlier one of a machine with the same id. The worker takes it after `hold`, unless both
/// peers have been notified by then.
pub(crate) fn insert(tx: &mut Conn, own: &OwnMachine, hold: Duration) -> Result<Deletion, StoreError> {
    let at = tx.now()?;
    let values = (
        deletions::deleted_at.eq(at.db()),
        deletions::identity_notified.eq(false),
        deletions::orchestrator_notified.eq(false),
        deletions::next_try_at.eq(at.plus(hold).db()),
    );
    let row = (deletions::owner_id.eq(own.owner.db()), deletions::machine_id.eq(own.id.as_str()), values);
    on!(tx, |c| diesel::insert_into(deletions::table)
        .values(row)
        .on_conflict((deletions::owner_id, deletions::machine_id))
        .do_update()
        .set(values)
        .execute(c))?;
    Ok(Deletion {
        owner_id: own.owner,
        machine_id: own.id.to_string(),
        deleted_at: at,
        identity_notified: false,
        orchestrator_notified: false,
    })
}

/// Some deletions that are due and that no other transaction has locked.
pub(crate) fn lock_due(tx: &mut Conn) -> Result<Vec<Deletion>, StoreError> {
    let due = deletions::table.filter(deletions::next_try_at.le(now())).order(deletions::next_try_at).limit(BATCH);
    on!(
        tx,
        Pg | c | due.select(Deletion::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due.select(Deletion::as_select()).load(c)
    )
}

pub(crate) fn postpone(tx: &mut Conn, deletion: &Deletion, until: Timestamp) -> Result<(), StoreError> {
    let row = deletions::table.find(deletion.key());
    on!(tx, |c| diesel::update(row).set(deletions::next_try_at.eq(until.db())).execute(c))?;
    Ok(())
}

/// Does nothing if a machine with the same id was deleted again meanwhile.
pub(crate) fn update(tx: &mut Conn, deletion: &Deletion) -> Result<(), StoreError> {
    let row = deletions::table.find(deletion.key()).filter(deletions::deleted_at.eq(deletion.deleted_at.db()));
    let notified = (
        deletions::identity_notified.eq(deletion.identity_notified),
        deletions::orchestrator_notified.eq(deletion.orchestrator_notified),
    );
    on!(tx, |c| diesel::update(row).set(notified).execute(c))?;
    Ok(())
}

/// Does nothing if a machine with the same id was deleted again meanwhile.
pub(crate) fn delete(tx: &mut Conn, deletion: &Deletion) -> Result<(), StoreError> {
    let row = deletions::table.find(deletion.key()).filter(deletions::deleted_at.eq(deletion.deleted_at.db()));
    on!(tx, |c| diesel::delete(row).execute(c))?;
    Ok(())
}

impl Deletion {
    fn key(&self) -> (DbId, &str) {
        (self.owner_id.db(), &self.machine_id)
    }
}
