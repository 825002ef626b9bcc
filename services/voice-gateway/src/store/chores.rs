//! Chores: work that one replica does for all, and when each is due next.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};

use super::schema::voice_chores::{self, dsl};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    Reconcile,
    Purge,
    Transcripts,
}

impl Chore {
    fn name(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Purge => "purge",
            Self::Transcripts => "transcripts",
        }
    }
}

/// Claims a chore if it is due; it is due again after `every`.
pub(crate) fn claim(tx: &mut Conn, chore: Chore, every: Duration) -> Result<bool, StoreError> {
    let now = tx.now()?;
    let next = dsl::due_at.eq(now.plus(every).db());
    let name = dsl::name.eq(chore.name());
    let first =
        on!(tx, |c| diesel::insert_into(voice_chores::table).values((name, next)).on_conflict_do_nothing().execute(c))?;
    if first == 1 {
        return Ok(true);
    }
    let due = voice_chores::table.filter(name).filter(dsl::due_at.le(now.db()));
    Ok(on!(tx, |c| diesel::update(due).set(next).execute(c))? == 1)
}
