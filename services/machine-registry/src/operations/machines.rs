//! Registering, reading, changing and deleting machines.

use std::time::Instant;

use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::refs::{IdOrRef, Ref};

use super::deletions::{notify, record};
use super::presence::changed;
use crate::MachineRegistry;
use crate::domain::{Change, Draft, Machine, OwnMachine};
use crate::error::Error;
use crate::store::deletions;
use crate::store::machines::{self, OnlineFor};
pub(crate) use crate::store::machines::{After, Page, ShortPage};

/// A machine that was registered now or before.
pub(crate) struct Registered {
    pub(crate) machine: Machine,
    pub(crate) is_new: bool,
}

/// Registers a machine. If its id is taken, returns the stored machine unchanged.
pub(crate) async fn register(
    service: &MachineRegistry,
    owner: UserId,
    draft: Draft,
    request: Option<IdempotencyRequest>,
) -> Result<Registered, Error> {
    let (online_for, limit) = (service.online_for, service.max_machines);
    let register = move |tx: &mut Conn| {
        if let Some(request) = &request {
            match idempotency::claim(tx, request, draft.id.as_str())? {
                IdempotencyOutcome::New => {}
                IdempotencyOutcome::Mismatch => return Err(Error::IdempotencyMismatch),
                IdempotencyOutcome::Replay { resource } => return replay(tx, owner, &resource, online_for),
            }
        }
        let is_new = machines::insert(tx, owner, &draft)?;
        if is_new {
            check_quota(tx, owner, limit)?;
        }
        let own = OwnMachine { owner, id: draft.id.clone() };
        // Another id of the account has the same ref.
        let machine = machines::find(tx, &own, online_for)?.ok_or(Error::RefTaken)?;
        tx.notify(changed(&own, machine.updated_at));
        Ok(Registered { machine, is_new })
    };
    service.db.write("register a machine", register).await
}

/// Refuses a machine that was just inserted if the account has too many. One transaction of the account decides at a time.
fn check_quota(tx: &mut Conn, owner: UserId, limit: i64) -> Result<(), Error> {
    if limit <= 0 {
        return Ok(());
    }
    machines::lock_count(tx, owner)?;
    let used = machines::count(tx, owner)? - 1;
    if used >= limit { Err(Error::TooManyMachines { used, limit }) } else { Ok(()) }
}

/// The machine of an earlier request with the same idempotency key, as it is now.
fn replay(tx: &mut Conn, owner: UserId, id: &str, online_for: OnlineFor) -> Result<Registered, Error> {
    let id = machines::parse_id(tx, id)?;
    let machine = machines::find(tx, &OwnMachine { owner, id }, online_for)?.ok_or(Error::MachineNotFound)?;
    Ok(Registered { machine, is_new: false })
}

/// The machines of an account after a position of its list.
pub(crate) async fn page(
    service: &MachineRegistry,
    owner: UserId,
    after: After,
    limit: u32,
) -> Result<Page, StoreError> {
    let online_for = service.online_for;
    service.db.read("list machines", move |c| machines::page(c, owner, &after, limit, online_for)).await
}

/// The same page when it is short, or else its size.
pub(crate) async fn short_page(
    service: &MachineRegistry,
    owner: UserId,
    after: After,
    limit: u32,
) -> Result<ShortPage, StoreError> {
    let online_for = service.online_for;
    service.db.read("read a short list", move |c| machines::short_page(c, owner, &after, limit, online_for)).await
}

/// The id of a machine in a path. A text that is neither an id nor a ref of the account's machines is taken for an id, so that
/// the answer is the one for an unknown machine.
pub(crate) async fn resolve(
    service: &MachineRegistry,
    owner: UserId,
    path: IdOrRef<MachineId>,
) -> Result<MachineId, Error> {
    let find = async |text: Ref| {
        let found = service.db.read("find a machine by its ref", move |c| machines::find_id(c, owner, text)).await?;
        found.map_or_else(|| text.as_str().parse().map_err(|_| Error::MachineNotFound), Ok)
    };
    path.id(find).await
}

pub(crate) async fn read(service: &MachineRegistry, own: OwnMachine) -> Result<Machine, Error> {
    let online_for = service.online_for;
    let find = move |c: &mut Conn| machines::find(c, &own, online_for)?.ok_or(Error::MachineNotFound);
    service.db.read("read a machine", find).await
}

/// Changes a machine, unless it is at another version than the change expects.
pub(crate) async fn update(service: &MachineRegistry, own: OwnMachine, change: Change) -> Result<Machine, Error> {
    let (online_for, beats, of) = (service.online_for, change.heartbeat().is_some(), own.clone());
    let update = move |tx: &mut Conn| {
        if let Some(activity) = change.heartbeat() {
            return machines::heartbeat(tx, &own, activity, change.signs_off, online_for)?
                .ok_or(Error::MachineNotFound);
        }
        let machine = machines::lock(tx, &own, online_for)?.ok_or(Error::MachineNotFound)?;
        let now = tx.now()?;
        let machine = machine.change(change.clone(), now)?;
        machines::update(tx, &own, &change, &machine, now)?;
        tx.notify(changed(&own, now));
        Ok(machine)
    };
    let machine = service.db.write("update a machine", update).await?;
    if beats && service.presences.note(&of, &machine, Instant::now()) {
        let at = machine.presence.last_active_at.unwrap_or(machine.updated_at);
        service.db.notifier().publish([changed(&of, at)]);
    }
    Ok(machine)
}

/// Deletes a machine and notifies the peers before it returns, so that the machine is granted nothing after the answer. The
/// transaction records that they have to be notified. When one of them cannot be reached within the deadline of a call, the
/// machine is deleted all the same, and a worker notifies that peer later.
pub(crate) async fn delete(service: &MachineRegistry, own: OwnMachine) -> Result<(), Error> {
    let hold = service.notify_within;
    let delete = move |tx: &mut Conn| {
        if !machines::delete(tx, &own)? {
            return Err(Error::MachineNotFound);
        }
        let now = tx.now()?;
        tx.notify(changed(&own, now));
        Ok(deletions::insert(tx, &own, hold)?)
    };
    let deletion = service.db.write("delete a machine", delete).await?;
    let notified = notify(&service.peers, deletion).await;
    if let Err(error) = record(&service.db, notified).await {
        // The worker finds the deletion and notifies again, which changes nothing.
        tracing::warn!(%error, "It could not be recorded that peers know of a deleted machine");
    }
    Ok(())
}
