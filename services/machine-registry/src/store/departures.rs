//! The table `departures`: deleted machines, until both peers were told of them.
//!
//! A row is written in the transaction that deletes the machine, so that no deletion is forgotten. Whoever takes a row
//! puts its next try off by a while; a worker that dies with it costs that while and nothing else.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Subscription, Topic, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::Store;
use super::schema::departures;
use crate::domain::OwnMachine;

/// How many are taken at once.
const BATCH: i64 = 16;

/// A deleted machine that somebody is still to be told of.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
pub(crate) struct Departure {
    pub(crate) owner_id: UserId,
    pub(crate) machine_id: String,
    pub(crate) deleted_at: Timestamp,
    pub(crate) identity_told: bool,
    pub(crate) orchestrator_told: bool,
}

impl Store {
    /// Notifier when there is something to tell.
    pub(crate) fn departures_come(&self) -> Subscription {
        self.db.notifier().subscribe(topic())
    }

    /// Takes some that are due, for `hold`: until then nobody else takes them.
    pub(crate) async fn take_departures(&self, hold: Duration) -> Result<Vec<Departure>, StoreError> {
        self.db
            .write("take departures", move |tx| {
                let due = departures::table
                    .filter(departures::next_try_at.le(now()))
                    .order(departures::next_try_at)
                    .limit(BATCH);
                let taken: Vec<Departure> = on!(
                    tx,
                    Pg | c | due.select(Departure::as_select()).for_update().skip_locked().load(c),
                    Sqlite | c | due.select(Departure::as_select()).load(c)
                )?;
                let next_try_at = tx.now()?.plus(hold);
                for departure in &taken {
                    let row = departures::table.find(departure.key());
                    let put_off = departures::next_try_at.eq(next_try_at.db());
                    on!(tx, |c| diesel::update(row).set(put_off).execute(c))?;
                }
                Ok(taken)
            })
            .await
    }

    /// Notes who has been told; gone when both were. Nothing happens when the machine was deleted again meanwhile.
    pub(crate) async fn note_told(&self, departure: Departure) -> Result<(), StoreError> {
        self.db
            .write("note who was told of a departure", move |tx| {
                let row = departures::table
                    .find(departure.key())
                    .filter(departures::deleted_at.eq(departure.deleted_at.db()));
                let told = (
                    departures::identity_told.eq(departure.identity_told),
                    departures::orchestrator_told.eq(departure.orchestrator_told),
                );
                if departure.identity_told && departure.orchestrator_told {
                    on!(tx, |c| diesel::delete(row).execute(c))?;
                } else {
                    on!(tx, |c| diesel::update(row).set(told).execute(c))?;
                }
                Ok(())
            })
            .await
    }
}

impl Departure {
    fn key(&self) -> (DbId, &str) {
        (self.owner_id.db(), &self.machine_id)
    }
}

/// Notes a deletion; a second one of the same id takes the place of the first.
pub(super) fn insert(tx: &mut Conn, own: &OwnMachine) -> Result<(), StoreError> {
    let at = tx.now()?;
    let news = (
        departures::deleted_at.eq(at.db()),
        departures::identity_told.eq(false),
        departures::orchestrator_told.eq(false),
        departures::next_try_at.eq(at.db()),
    );
    let row = (departures::owner_id.eq(own.owner.db()), departures::machine_id.eq(own.id.as_str()), news);
    on!(tx, |c| diesel::insert_into(departures::table)
        .values(row)
        .on_conflict((departures::owner_id, departures::machine_id))
        .do_update()
        .set(news)
        .execute(c))?;
    tx.notify(topic());
    Ok(())
}

fn topic() -> Topic {
    Topic::new("departures", "all")
}
