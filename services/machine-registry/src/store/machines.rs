//! The table `machines`.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::cursor::{self, InvalidCursor};
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::machines::Activity;
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;

use super::schema::{machines, octet_length};
use crate::domain::{Change, Draft, Machine, OwnMachine, Presence, Versioned};

/// A page ends at this size even with fewer machines than were asked for. It holds at least one.
const PAGE_BYTES: i64 = 4 << 20;
/// Longer pages are read one after the other for each caller.
const SHORT: i64 = 128 << 10;
/// Bytes of a machine in a response without its texts.
const SMALL_FIELDS: i64 = 768;

/// How long a machine counts as online after a heartbeat.
pub(crate) type OnlineFor = Duration;

/// A part of the list of an account's machines, newest first.
pub(crate) struct Page {
    pub(crate) machines: Vec<Machine>,
    /// The position of the next page, if there is one.
    pub(crate) next: Option<After>,
}

/// A page that is short, or the size of one that is long.
pub(crate) enum ShortPage {
    Whole(Page),
    /// About the length of its machines.
    Long {
        bytes: i64,
    },
}

/// A position in that list: after the machine that was made then and has this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct After {
    created_at: Timestamp,
    id: String,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = machines)]
struct Row {
    id: String,
    reference: Ref,
    metadata: String,
    metadata_version: i64,
    encryption_key: String,
    daemon_state: Option<String>,
    daemon_state_version: i64,
    activity: Option<String>,
    last_active_at: Option<Timestamp>,
    signed_off: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    content_epoch: Option<i64>,
    seen: Option<String>,
}

/// The columns of an update; `None` leaves a column as it is.
#[derive(AsChangeset)]
#[diesel(table_name = machines)]
struct Changed<'a> {
    metadata: Option<&'a str>,
    metadata_version: Option<i64>,
    daemon_state: Option<&'a str>,
    daemon_state_version: Option<i64>,
    encryption_key: Option<&'a str>,
    content_epoch: Option<Option<i64>>,
    activity: Option<&'a str>,
    last_active_at: Option<DbTime>,
    signed_off: Option<bool>,
    seen: Option<String>,
    updated_at: DbTime,
}

/// False if the account has a machine with this id, or with its ref.
pub(crate) fn insert(tx: &mut Conn, owner: UserId, draft: &Draft) -> Result<bool, StoreError> {
    let at = tx.now()?;
    let row = (
        machines::owner_id.eq(owner.db()),
        machines::id.eq(draft.id.as_str()),
        machines::reference.eq(Ref::of(&draft.id).db()),
        machines::metadata.eq(&draft.metadata),
        machines::metadata_version.eq(1),
        machines::encryption_key.eq(&draft.encryption_key),
        machines::content_epoch.eq(draft.content_epoch.map(i64::from)),
        machines::daemon_state_version.eq(0),
        machines::signed_off.eq(false),
        machines::created_at.eq(at.db()),
        machines::updated_at.eq(at.db()),
    );
    let inserted = on!(tx, |c| diesel::insert_into(machines::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(inserted == 1)
}

/// Lets one transaction at a time decide about the number of an account's machines, until its commit.
pub(crate) fn lock_count(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    tx.lock(&format!("machine-registry:machines:{owner}"))
}

pub(crate) fn count(c: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    on!(c, |c| machines::table.filter(machines::owner_id.eq(owner.db())).count().get_result(c))
}

pub(crate) fn find(c: &mut Conn, own: &OwnMachine, online_for: OnlineFor) -> Result<Option<Machine>, StoreError> {
    let query = machines::table.find(key(own));
    let found: Option<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).first(c).optional())?;
    found.map(|(row, at)| row.machine(c, at, online_for)).transpose()
}

/// The id of the account's machine that has this text as its id, or else as its ref.
pub(crate) fn find_id(c: &mut Conn, owner: UserId, text: Ref) -> Result<Option<MachineId>, StoreError> {
    let own = machines::table.filter(machines::owner_id.eq(owner.db())).select(machines::id);
    let by_id: Option<String> = on!(c, |c| own.filter(machines::id.eq(text.as_str())).first(c).optional())?;
    let found: Option<String> = match by_id {
        Some(id) => Some(id),
        None => on!(c, |c| own.filter(machines::reference.eq(text.db())).first(c).optional())?,
    };
    found.map(|id| parse_id(c, &id)).transpose()
}

/// Finds a machine and locks it until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, own: &OwnMachine, online_for: OnlineFor) -> Result<Option<Machine>, StoreError> {
    let query = machines::table.find(key(own));
    let found: Option<(Row, Timestamp)> = on!(
        tx,
        Pg | c | query.select((Row::as_select(), now())).for_update().first(c).optional(),
        Sqlite | c | query.select((Row::as_select(), now())).first(c).optional()
    )?;
    found.map(|(row, at)| row.machine(tx, at, online_for)).transpose()
}

/// Writes the fields of `change` as they are in `machine` after it.
pub(crate) fn update(
    tx: &mut Conn,
    own: &OwnMachine,
    change: &Change,
    machine: &Machine,
    now: Timestamp,
) -> Result<(), StoreError> {
    let changed = Changed {
        metadata: change.metadata.as_ref().map(|edit| edit.value.as_str()),
        metadata_version: change.metadata.as_ref().map(|_| machine.metadata.version),
        daemon_state: change.daemon_state.as_ref().map(|edit| edit.value.as_str()),
        daemon_state_version: change.daemon_state.as_ref().map(|_| machine.daemon_state.version),
        encryption_key: change.key.as_ref().map(|(key, _)| key.as_str()),
        content_epoch: change.key.as_ref().map(|(_, epoch)| epoch.map(i64::from)),
        activity: change.activity.as_ref().map(Activity::as_text),
        last_active_at: change.activity.as_ref().map(|_| now.db()),
        signed_off: change.activity.as_ref().map(|_| change.signs_off),
        seen: change.seen.as_ref().and(machine.seen.as_ref()).and_then(|seen| serde_json::to_string(seen).ok()),
        updated_at: machine.updated_at.db(),
    };
    on!(tx, |c| diesel::update(machines::table.find(key(own))).set(&changed).execute(c))?;
    Ok(())
}

/// Records a heartbeat in one statement, because heartbeats are the most frequent request.
pub(crate) fn heartbeat(
    tx: &mut Conn,
    own: &OwnMachine,
    activity: &Activity,
    signs_off: bool,
    online_for: OnlineFor,
) -> Result<Option<Machine>, StoreError> {
    let beat = (
        machines::activity.eq(activity.as_text()),
        machines::last_active_at.eq(now().nullable()),
        machines::signed_off.eq(signs_off),
    );
    let row: Option<(Row, Timestamp)> = on!(tx, |c| cached(
        diesel::update(machines::table.find(key(own))).set(beat).returning((Row::as_returning(), now()))
    )
    .get_result(c)
    .optional())?;
    row.map(|(row, at)| row.machine(tx, at, online_for)).transpose()
}

/// False if there is no such machine.
pub(crate) fn delete(tx: &mut Conn, own: &OwnMachine) -> Result<bool, StoreError> {
    Ok(on!(tx, |c| diesel::delete(machines::table.find(key(own))).execute(c))? == 1)
}

/// The machines of an account after a position of its list, at most `limit` and [`PAGE_BYTES`].
pub(crate) fn page(
    c: &mut Conn,
    owner: UserId,
    after: &After,
    limit: u32,
    online_for: OnlineFor,
) -> Result<Page, StoreError> {
    let sizes = sizes(c, owner, after, i64::from(limit) + 1)?;
    page_of(c, owner, after, (&sizes, limit), online_for)
}

/// The same page when it is short, or else its size.
pub(crate) fn short_page(
    c: &mut Conn,
    owner: UserId,
    after: &After,
    limit: u32,
    online_for: OnlineFor,
) -> Result<ShortPage, StoreError> {
    let sizes = sizes(c, owner, after, i64::from(limit) + 1)?;
    let bytes = sizes.iter().take(count_fitting(&sizes, limit)).sum();
    if bytes > SHORT {
        return Ok(ShortPage::Long { bytes });
    }
    page_of(c, owner, after, (&sizes, limit), online_for).map(ShortPage::Whole)
}

/// The page on which as many machines of these sizes stand as fit.
fn page_of(
    c: &mut Conn,
    owner: UserId,
    after: &After,
    (sizes, limit): (&[i64], u32),
    online_for: OnlineFor,
) -> Result<Page, StoreError> {
    let fitting = count_fitting(sizes, limit);
    let has_more = sizes.len() > fitting;
    let query = older(owner.db(), after.created_at.db(), &after.id).limit(i64::try_from(fitting).unwrap_or(i64::MAX));
    let rows: Vec<(Row, Timestamp)> = on!(c, |c| query.select((Row::as_select(), now())).load(c))?;
    let machines = rows.into_iter().map(|(row, at)| row.machine(c, at, online_for));
    let machines: Vec<Machine> = machines.collect::<Result<_, _>>()?;
    let next = machines.last().filter(|_| has_more).map(After::of);
    Ok(Page { machines, next })
}

impl Row {
    fn machine(self, c: &Conn, now: Timestamp, online_for: OnlineFor) -> Result<Machine, StoreError> {
        let activity = self.activity.map(Activity::from_text).transpose();
        let epoch = self.content_epoch.map(ContentEpoch::try_from).transpose();
        let seen = self.seen.as_deref().map(serde_json::from_str).transpose();
        Ok(Machine {
            id: parse_id(c, &self.id)?,
            reference: self.reference,
            metadata: Versioned { value: self.metadata, version: self.metadata_version },
            encryption_key: self.encryption_key,
            content_epoch: epoch.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            daemon_state: Versioned { value: self.daemon_state, version: self.daemon_state_version },
            activity: activity.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            seen: seen.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            presence: Presence::new(self.last_active_at, self.signed_off, now, online_for),
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

impl After {
    const LIST: &str = "machines";

    /// The beginning of the list: after a machine that is made at the end of the year 9999.
    pub(crate) fn start() -> Self {
        Self { created_at: Timestamp::from_unix_seconds(253_402_300_799), id: String::new() }
    }

    /// # Errors
    /// It is not a cursor of this list.
    pub(crate) fn decode(text: &str) -> Result<Self, InvalidCursor> {
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

/// The machines of an account after a position of its list.
#[diesel::dsl::auto_type]
fn older<'a>(owner: DbId, at: DbTime, id: &'a str) -> _ {
    machines::table
        .filter(machines::owner_id.eq(owner))
        // Implied by the next filter, and in a form that the index can be searched by.
        .filter(machines::created_at.le(at))
        .filter(machines::created_at.lt(at).or(machines::id.lt(id)))
        .order((machines::created_at.desc(), machines::id.desc()))
}

/// The sizes of the machines that a page could hold, in bytes of the response.
fn sizes(c: &mut Conn, owner: UserId, after: &After, limit: i64) -> Result<Vec<i64>, StoreError> {
    let texts = (
        octet_length(machines::metadata.nullable()),
        octet_length(machines::encryption_key.nullable()),
        octet_length(machines::daemon_state),
        octet_length(machines::activity),
    );
    let query = older(owner.db(), after.created_at.db(), &after.id).limit(limit).select(texts);
    let rows: Vec<[Option<i32>; 4]> = on!(c, |c| query
        .load::<(Option<i32>, Option<i32>, Option<i32>, Option<i32>)>(c))?
    .into_iter()
    .map(<[Option<i32>; 4]>::from)
    .collect();
    Ok(rows.iter().map(|texts| SMALL_FIELDS + texts.iter().flatten().map(|n| i64::from(*n)).sum::<i64>()).collect())
}

fn count_fitting(sizes: &[i64], limit: u32) -> usize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let totals = sizes.iter().scan(0_i64, |total, size| {
        *total += size;
        Some(*total)
    });
    totals.take(limit).take_while(|total| *total <= PAGE_BYTES).count().max(1)
}

pub(crate) fn parse_id(c: &Conn, text: &str) -> Result<MachineId, StoreError> {
    text.parse().map_err(|error| StoreError::bad_row(c.operation(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_its_bytes_but_is_never_empty() {
        assert_eq!(count_fitting(&[10, 10, 10], 2), 2);
        assert_eq!(count_fitting(&[PAGE_BYTES, 1], 9), 1);
        assert_eq!(count_fitting(&[PAGE_BYTES + 1, 1], 9), 1);
        assert_eq!(count_fitting(&[PAGE_BYTES / 2, PAGE_BYTES / 2, 1], 9), 2);
    }
}
