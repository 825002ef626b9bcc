//! The table `machines`.

use diesel::prelude::*;
use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, cursor, on};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::machines::Activity;
use ensemble_types::time::Timestamp;

use super::schema::{machines, octet_length};
use super::{Store, departures};
use crate::domain::{Change, Draft, Machine, OwnMachine, Presence, Versioned};
use crate::error::Error;

/// A page ends here even when it holds fewer machines than were asked for; one it always holds.
const PAGE_BYTES: i64 = 4 << 20;
/// What a machine takes up in an answer beside its texts.
const SMALL_FIELDS: i64 = 512;

/// A machine that was registered now or before.
pub(crate) struct Registered {
    pub(crate) machine: Machine,
    pub(crate) is_new: bool,
}

/// A part of the list of an account's machines, newest first.
pub(crate) struct Page {
    pub(crate) machines: Vec<Machine>,
    /// Where the next part begins, if there is one.
    pub(crate) next: Option<After>,
}

/// A place in that list: behind the machine that was made then and has this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct After {
    created_at: Timestamp,
    id: String,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = machines)]
struct Row {
    id: String,
    metadata: String,
    metadata_version: i64,
    encryption_key: String,
    daemon_state: Option<String>,
    daemon_state_version: i64,
    activity: Option<String>,
    last_active_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// What an update writes; `None` leaves the column alone.
#[derive(AsChangeset)]
#[diesel(table_name = machines)]
struct Changed<'a> {
    metadata: Option<&'a str>,
    metadata_version: Option<i64>,
    daemon_state: Option<&'a str>,
    daemon_state_version: Option<i64>,
    activity: Option<&'a str>,
    last_active_at: Option<DbTime>,
    updated_at: DbTime,
}

impl Store {
    /// Registers a machine, or gives the one that has the id already, as it is.
    pub(crate) async fn register(
        &self,
        owner: UserId,
        draft: Draft,
        wish: Option<IdempotencyRequest>,
    ) -> Result<Registered, Error> {
        let store = self.clone();
        self.db
            .write("register a machine", move |tx| {
                if let Some(wish) = &wish {
                    match idempotency::claim(tx, wish, draft.id.as_str())? {
                        IdempotencyOutcome::New => {}
                        IdempotencyOutcome::Mismatch => return Err(Error::OtherBody),
                        IdempotencyOutcome::Replay { resource } => return store.replay(tx, owner, &resource),
                    }
                }
                let is_new = insert(tx, owner, &draft)?;
                let own = OwnMachine { owner, id: draft.id.clone() };
                let machine = store.get(tx, &own)?.ok_or(Error::NoSuchMachine)?;
                Ok(Registered { machine, is_new })
            })
            .await
    }

    /// The machines of an account behind a place in the list, at most `limit` and [`PAGE_BYTES`].
    pub(crate) async fn page(&self, owner: UserId, after: After, limit: u32) -> Result<Page, Error> {
        let store = self.clone();
        self.db
            .read("list machines", move |c| {
                let sizes = sizes(c, owner, &after, i64::from(limit) + 1)?;
                let fitting = how_many_fit(&sizes, usize::try_from(limit).unwrap_or(usize::MAX));
                let more = sizes.len() > fitting;
                let query = behind(owner.db(), after.created_at.db(), &after.id)
                    .limit(i64::try_from(fitting).unwrap_or(i64::MAX));
                let rows: Vec<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).load(c))?;
                let machines = rows.into_iter().map(|(row, at)| store.machine(c, row, at));
                let machines: Vec<Machine> = machines.collect::<Result<_, _>>()?;
                let next = machines.last().filter(|_| more).map(After::of);
                Ok(Page { machines, next })
            })
            .await
    }

    pub(crate) async fn find(&self, own: OwnMachine) -> Result<Machine, Error> {
        let store = self.clone();
        self.db.read("read a machine", move |c| store.get(c, &own)?.ok_or(Error::NoSuchMachine)).await
    }

    /// Changes a machine, unless it is at another version than the change expects.
    pub(crate) async fn update(&self, own: OwnMachine, change: Change) -> Result<Machine, Error> {
        let store = self.clone();
        self.db
            .write("update a machine", move |tx| {
                if let Some(activity) = change.heartbeat() {
                    return store.beat(tx, &own, activity);
                }
                let machine = store.lock(tx, &own)?.ok_or(Error::NoSuchMachine)?;
                let at = tx.now()?;
                let machine = machine.change(change.clone(), at)?;
                let changed = Changed {
                    metadata: change.metadata.as_ref().map(|edit| edit.value.as_str()),
                    metadata_version: change.metadata.as_ref().map(|_| machine.metadata.version),
                    daemon_state: change.daemon_state.as_ref().map(|edit| edit.value.as_str()),
                    daemon_state_version: change.daemon_state.as_ref().map(|_| machine.daemon_state.version),
                    activity: change.activity.as_ref().map(Activity::as_text),
                    last_active_at: change.activity.as_ref().map(|_| at.db()),
                    updated_at: machine.updated_at.db(),
                };
                on!(tx, |c| cached(diesel::update(machines::table.find(key(&own))).set(&changed)).execute(c))?;
                Ok(machine)
            })
            .await
    }

    /// Deletes a machine and notes, in the same transaction, that peers are to be told.
    pub(crate) async fn delete(&self, own: OwnMachine) -> Result<(), Error> {
        self.db
            .write("delete a machine", move |tx| {
                let deleted = on!(tx, |c| diesel::delete(machines::table.find(key(&own))).execute(c))?;
                if deleted == 0 {
                    return Err(Error::NoSuchMachine);
                }
                Ok(departures::insert(tx, &own)?)
            })
            .await
    }

    /// The resource of an earlier request with the same idempotency key, as it is now.
    fn replay(&self, tx: &mut Conn, owner: UserId, id: &str) -> Result<Registered, Error> {
        let id = machine_id(tx, id)?;
        let machine = self.get(tx, &OwnMachine { owner, id })?.ok_or(Error::NoSuchMachine)?;
        Ok(Registered { machine, is_new: false })
    }

    /// A heartbeat: one statement, because there are many.
    fn beat(&self, tx: &mut Conn, own: &OwnMachine, activity: &Activity) -> Result<Machine, Error> {
        let beaten = (machines::activity.eq(activity.as_text()), machines::last_active_at.eq(now().nullable()));
        let row: Option<(Row, Timestamp)> = on!(tx, |c| cached(
            diesel::update(machines::table.find(key(own))).set(beaten).returning((Row::as_returning(), now()))
        )
        .get_result(c)
        .optional())?;
        let (row, at) = row.ok_or(Error::NoSuchMachine)?;
        Ok(self.machine(tx, row, at)?)
    }

    fn get(&self, c: &mut Conn, own: &OwnMachine) -> Result<Option<Machine>, StoreError> {
        let query = machines::table.find(key(own));
        let found: Option<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).first(c).optional())?;
        found.map(|(row, at)| self.machine(c, row, at)).transpose()
    }

    /// The machine, and nobody else may change it until the transaction ends.
    fn lock(&self, tx: &mut Conn, own: &OwnMachine) -> Result<Option<Machine>, StoreError> {
        let query = machines::table.find(key(own));
        let found: Option<(Row, Timestamp)> = on!(
            tx,
            Pg | c | query.select((Row::as_select(), now())).for_update().first(c).optional(),
            Sqlite | c | query.select((Row::as_select(), now())).first(c).optional()
        )?;
        found.map(|(row, at)| self.machine(tx, row, at)).transpose()
    }

    fn machine(&self, c: &Conn, row: Row, at: Timestamp) -> Result<Machine, StoreError> {
        let activity = row.activity.map(Activity::from_text).transpose();
        Ok(Machine {
            id: machine_id(c, &row.id)?,
            metadata: Versioned { value: row.metadata, version: row.metadata_version },
            encryption_key: row.encryption_key,
            daemon_state: Versioned { value: row.daemon_state, version: row.daemon_state_version },
            activity: activity.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            presence: Presence::new(row.last_active_at, at, self.online_for),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

impl After {
    const LIST: &str = "machines";

    /// The beginning: behind a machine that is made at the end of the year 9999.
    pub(crate) fn start() -> Self {
        Self { created_at: Timestamp::from_unix_seconds(253_402_300_799), id: String::new() }
    }

    /// # Errors
    /// It is not a cursor of this list.
    pub(crate) fn decode(text: &str) -> Result<Self, Error> {
        let (micros, id) = cursor::decode(Self::LIST, text)?;
        Ok(Self { created_at: Timestamp::from_micros(micros), id })
    }

    pub(crate) fn encode(&self) -> String {
        cursor::encode(Self::LIST, &(self.created_at.micros(), &self.id))
    }

    fn of(machine: &Machine) -> Self {
        Self { created_at: machine.created_at, id: machine.id.to_string() }
    }
}

fn key(own: &OwnMachine) -> (DbId, &str) {
    (own.owner.db(), own.id.as_str())
}

/// False when the id is taken already.
fn insert(tx: &mut Conn, owner: UserId, draft: &Draft) -> Result<bool, StoreError> {
    let at = tx.now()?;
    let row = (
        machines::owner_id.eq(owner.db()),
        machines::id.eq(draft.id.as_str()),
        machines::metadata.eq(&draft.metadata),
        machines::metadata_version.eq(1),
        machines::encryption_key.eq(&draft.encryption_key),
        machines::daemon_state_version.eq(0),
        machines::created_at.eq(at.db()),
        machines::updated_at.eq(at.db()),
    );
    let inserted = on!(tx, |c| diesel::insert_into(machines::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(inserted == 1)
}

/// The machines of an account behind a place in its list.
#[diesel::dsl::auto_type]
fn behind<'a>(owner: DbId, at: DbTime, id: &'a str) -> _ {
    machines::table
        .filter(machines::owner_id.eq(owner))
        // Says again what the next filter says, in a way that an index understands.
        .filter(machines::created_at.le(at))
        .filter(machines::created_at.lt(at).or(machines::id.lt(id)))
        .order((machines::created_at.desc(), machines::id.desc()))
}

/// How large the machines are that a page could hold, in bytes of the answer.
fn sizes(c: &mut Conn, owner: UserId, after: &After, limit: i64) -> Result<Vec<i64>, StoreError> {
    let texts = (
        octet_length(machines::metadata.nullable()),
        octet_length(machines::encryption_key.nullable()),
        octet_length(machines::daemon_state),
        octet_length(machines::activity),
    );
    let query = behind(owner.db(), after.created_at.db(), &after.id).limit(limit).select(texts);
    let rows: Vec<[Option<i32>; 4]> = on!(c, |c| query
        .load::<(Option<i32>, Option<i32>, Option<i32>, Option<i32>)>(c))?
    .into_iter()
    .map(<[Option<i32>; 4]>::from)
    .collect();
    Ok(rows.iter().map(|texts| SMALL_FIELDS + texts.iter().flatten().map(|n| i64::from(*n)).sum::<i64>()).collect())
}

fn how_many_fit(sizes: &[i64], limit: usize) -> usize {
    let totals = sizes.iter().scan(0_i64, |total, size| {
        *total += size;
        Some(*total)
    });
    totals.take(limit).take_while(|total| *total <= PAGE_BYTES).count().max(1)
}

fn machine_id(c: &Conn, text: &str) -> Result<MachineId, StoreError> {
    text.parse().map_err(|error| StoreError::bad_row(c.operation(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_its_bytes_but_is_never_empty() {
        assert_eq!(how_many_fit(&[10, 10, 10], 2), 2);
        assert_eq!(how_many_fit(&[PAGE_BYTES, 1], 9), 1);
        assert_eq!(how_many_fit(&[PAGE_BYTES + 1, 1], 9), 1);
        assert_eq!(how_many_fit(&[PAGE_BYTES / 2, PAGE_BYTES / 2, 1], 9), 2);
    }
}
