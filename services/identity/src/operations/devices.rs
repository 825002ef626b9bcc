//! An account's devices: the signed list, what is sealed to each of them, and their names.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Caller;
use ensemble_chassis::auth::DeviceKey;
use ensemble_protocol::lists::{List, commitment, decode, is_possession};
use ensemble_store_kit::{Conn, Db, StoreError, hints};
use ensemble_types::devices::{
    ChangeDevices, DeviceContentRing, DeviceKind, DeviceLinkRequest, DeviceListPage, DeviceName, Devices, ListedDevice,
    PastDeviceLink, Role, SignedList,
};
use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::ids::{DeviceId, UserId};
use ensemble_types::pushes::PushKind;
use ensemble_types::time::Timestamp;

use super::{invites, signing_keys};
use crate::Identity;
use crate::domain::{
    Account, BadList, CallingDevice, Device, DeviceLink, Difference, Vouching, follow, is_link_of, lists, rings,
};
use crate::error::Error;
use crate::store::{accounts, content_rings, device_links, device_lists, devices, pushes, revocations, tokens};

/// Lists that an account can make in a day. Lists are kept for ever.
const LISTS_A_DAY: i64 = 200;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Lists on one page.
const PAGE: usize = 32;

/// The devices after a change.
pub(crate) struct Changed {
    /// False when the account had this list already.
    pub(crate) is_new: bool,
    pub(crate) devices: Devices,
}

/// The account and the device of a caller, as the database has them now. Both stay locked.
///
/// # Errors
/// The device was removed. Tokens of removed devices are refused earlier, once this replica has loaded the removal.
pub(super) fn calling(
    tx: &mut Conn,
    user: UserId,
    device: Option<DeviceKey>,
) -> Result<(Account, CallingDevice), Error> {
    let account = accounts::lock(tx, user)?.ok_or(Error::AccountNotFound)?;
    let key = device.map_or(account.public_key, |device| device.0);
    match devices::lock_by_key(tx, &key)? {
        Some(device) if device.user == user && !device.is_removed => {
            Ok((account, CallingDevice::Listed(Box::new(device))))
        }
        None if key == account.public_key => Ok((account, CallingDevice::Only)),
        _ => Err(Error::DeviceRemoved),
    }
}

pub(crate) async fn read(db: &Db, caller: &Caller) -> Result<Devices, Error> {
    let (user, device) = (caller.user, caller.device);
    db.read("read devices", move |c| of_account(c, user, device)).await
}

fn of_account(c: &mut Conn, user: UserId, caller: Option<DeviceKey>) -> Result<Devices, Error> {
    let account = accounts::find(c, user)?.ok_or(Error::AccountNotFound)?;
    let key = caller.map_or(account.public_key, |device| device.0);
    let list = device_lists::newest(c, user)?;
    let subscribed = pushes::subscribed(c, user)?;
    let seen = |device: Device| {
        let has_push = subscribed.contains(&device.id);
        device.seen_by(&key, has_push)
    };
    let devices = devices::of_account(c, user)?.into_iter().map(seen).collect();
    Ok(Devices { list, devices, next_cursor: None })
}

/// The content ring for the calling device.
pub(crate) async fn content_ring(db: &Db, caller: &Caller) -> Result<DeviceContentRing, Error> {
    let key = caller.device.ok_or(Error::DeviceNotFound)?.0;
    db.read("read a content ring", move |c| content_rings::find(c, &key)?.ok_or(Error::NoContentRing)).await
}

/// Lists of an account after that version, the oldest first.
pub(crate) async fn page(db: &Db, caller: &Caller, user: UserId, after: i32) -> Result<DeviceListPage, Error> {
    // A machine checks who has signed the commands that it gets, guests of its owner among them. Recovery words know their account.
    if caller.is_recovery && caller.user != user {
        return Err(Error::AccountNotFound);
    }
    db.read("list device lists", move |c| {
        if accounts::find(c, user)?.is_none() {
            return Err(Error::AccountNotFound);
        }
        let mut found = device_lists::after(c, user, after, PAGE as i64 + 1)?;
        let has_more = found.len() > PAGE;
        found.truncate(PAGE);
        let next_cursor = found.last().filter(|_| has_more).map(|(version, _)| version.to_string());
        Ok(DeviceListPage { lists: found.into_iter().map(|(_, list)| list).collect(), next_cursor })
    })
    .await
}

/// The versions of the newest lists of these users. Those without a list are left out.
pub(crate) async fn list_versions(db: &Db, users: Vec<UserId>) -> Result<Vec<(UserId, u32)>, Error> {
    db.read("read versions of device lists", move |c| Ok(device_lists::newest_versions(c, &users)?)).await
}

/// Takes the next list of the caller's account, with the content ring for each device that may open contents, or several that were lost
/// since a backup. Linking, removing and turning the epoch are one transaction each: the account is locked, so of two lists at once one
/// is the next.
pub(crate) async fn change(service: &Identity, caller: &Caller, mut body: ChangeDevices) -> Result<Changed, Error> {
    lists(&body)?;
    let origins: Vec<String> = service.rules.origins.iter().map(ToString::to_string).collect();
    body.links.retain(|link| is_possession(origins.iter().map(String::as_str), &link.id, &link.request));
    let token_life = service.rules.lifetimes.longest();
    let change = Arc::new(Change { caller: caller.clone(), body, token_life });
    let changed = service.db.write("change the device list", move |tx| change.run(tx)).await?;
    if changed.is_new {
        tracing::info!(user.id = %caller.user, devices = changed.devices.devices.len(), "Changed the device list");
        // This replica refuses removed devices from now on. The others load them when the commit notifies them.
        if let Err(error) = signing_keys::refresh(&service.db, &service.ring).await {
            tracing::warn!(%error, "The keys could not be loaded after a change of the device list");
        }
    }
    Ok(changed)
}

/// Gives the account's readers a hint that its devices have changed. The list is one thing, whose id is the account's.
fn notify(tx: &mut Conn, user: UserId) -> Result<(), StoreError> {
    let (kind, id, revision) = (HintKind::Device, user.to_string(), tx.now()?.micros());
    tx.notify(hints::topic(&AccountHint { user, machine: None, kind, id, revision }));
    Ok(())
}

struct Change {
    caller: Caller,
    /// Who asked with its links has signed that, at an address of this service.
    body: ChangeDevices,
    /// The longest life of a token.
    token_life: Duration,
}

impl Change {
    fn run(&self, tx: &mut Conn) -> Result<Changed, Error> {
        let user = self.caller.user;
        let (account, _) = calling(tx, user, self.caller.device)?;
        let (all, were_lost) = lists(&self.body)?;
        let mut newest = device_lists::newest(tx, user)?;
        // Another device may have sent the first of those that were lost.
        let known = all.iter().position(|list| newest.as_ref() == Some(list)).map_or(0, |at| at.saturating_add(1));
        let missing: Vec<_> = all.iter().enumerate().skip(known).collect();
        let past = self.past_links(&account);
        for (step, (at, signed)) in missing.iter().enumerate() {
            let of_list = |error| match error {
                Error::BadList(bad) if were_lost => Error::BadListOf(*at, bad),
                // The service has the list before it from the same call.
                Error::DeviceListConflict(_) if step > 0 => Error::BadListOf(*at, BadList::NotNext),
                other => other,
            };
            let list = self.apply(tx, (&account, &past), newest.as_ref(), signed).map_err(of_list)?;
            if *at + 1 == all.len() {
                self.finish(tx, &account, &list)?;
            }
            newest = Some((*signed).clone());
        }
        Ok(Changed { is_new: !missing.is_empty(), devices: of_account(tx, user, self.caller.device)? })
    }

    /// Puts a list on top of the newest one.
    fn apply(
        &self,
        tx: &mut Conn,
        (account, past): (&Account, &[&DeviceLinkRequest]),
        newest: Option<&SignedList>,
        signed: &SignedList,
    ) -> Result<List, Error> {
        let trusted = |list| List::remembered(list).map_err(|error| StoreError::bad_row("read the newest list", error));
        let old = newest.map(trusted).transpose()?;
        let list = follow(&account.public_key, old.as_ref(), signed).map_err(|bad| match bad {
            BadList::NotNext => Error::DeviceListConflict(newest.cloned().map(Box::new)),
            bad => Error::BadList(bad),
        })?;
        let difference = Difference::new(old.as_ref(), &list)?;
        let now = tx.now()?;
        let link = self.link(tx)?;
        let linked = link.as_ref().map(|link| link.asked(now)).transpose()?;
        let vouching = Vouching { account: &account.public_key, linked, past, proofs: &self.body.proofs };
        difference.check_possession(vouching)?;
        check_unused(tx, account.id, &difference.added)?;

        if device_lists::count_since(tx, account.id, now.minus(DAY))? >= LISTS_A_DAY {
            return Err(Error::TooManyLists);
        }
        device_lists::insert(tx, account.id, &list, now)?;
        for listed in &difference.added {
            let request = linked.iter().chain(past).find(|request| *request.public_key == *listed.key);
            devices::insert(tx, &self.added(account, listed, request.copied(), now)?)?;
        }
        let known = devices::of_account(tx, account.id)?;
        let find = |listed: &ListedDevice| known.iter().find(|device| decode(&listed.key) == Some(device.public_key));
        for listed in &difference.kept {
            let device =
                find(listed).ok_or_else(|| StoreError::bad_row("change the device list", "a row is missing"))?;
            let box_key = decode(&listed.box_key).unwrap_or(device.box_key);
            let name = self.name(listed);
            devices::update(tx, &Device { role: listed.role, box_key, name, ..device.clone() })?;
        }
        for device in difference.removed.iter().filter_map(|listed| find(listed)) {
            if !self.body.lists.is_empty() {
                // It may have got tokens since the backup that are unknown here.
                devices::gave_token(tx, device, now.plus(self.token_life))?;
            }
            remove(tx, device, now)?;
        }
        // Machines do not know the secrets.
        if difference.removed.iter().any(|listed| listed.role != Role::Machine) {
            invites::end_all(tx, account.id, now)?;
        }
        if let (Some(link), Some(completed)) = (link, &self.body.link) {
            device_links::update(tx, &link.approve(completed.answer.to_string(), now)?)?;
        }
        Ok(list)
    }

    /// Keeps what came with the newest list.
    fn finish(&self, tx: &mut Conn, account: &Account, list: &List) -> Result<(), Error> {
        // A device that returns lists after a restore may not know every name.
        let is_whole = self.body.lists.is_empty();
        let names = &self.body.names;
        if is_whole { list.check_names(names) } else { list.check_known_names(names) }.map_err(BadList::Names)?;
        let rings = rings(list, &self.body.sealed)?;
        content_rings::replace(tx, account.id, (list.version(), list.body().content_epoch), &rings)?;
        notify(tx, account.id)?;
        Ok(())
    }

    /// The name of an entry, if it is the one that the list is about.
    fn name(&self, listed: &ListedDevice) -> Option<DeviceName> {
        self.body
            .names
            .get(&listed.key)
            .filter(|name| listed.name.is_some() && listed.name == commitment(name))
            .cloned()
    }

    /// The devices that asked with links of this account, before the service lost those links. The account is in the id of each, so
    /// a request that was made for another account lists no device here.
    fn past_links(&self, account: &Account) -> Vec<&DeviceLinkRequest> {
        let is_own = |link: &&PastDeviceLink| decode(&link.id).is_some_and(|id| is_link_of(&id, &account.public_key));
        self.body.links.iter().filter(is_own).map(|link| &link.request).collect()
    }

    /// The link that the list completes. It stays locked.
    fn link(&self, tx: &mut Conn) -> Result<Option<DeviceLink>, Error> {
        let Some(completed) = &self.body.link else { return Ok(None) };
        let id = decode(&completed.id).ok_or(Error::LinkNotFound)?;
        let link = device_links::lock(tx, &id)?.filter(|link| link.user == self.caller.user);
        link.map(Some).ok_or(Error::LinkNotFound)
    }

    fn added(
        &self,
        account: &Account,
        listed: &ListedDevice,
        request: Option<&DeviceLinkRequest>,
        now: Timestamp,
    ) -> Result<Device, Error> {
        let bytes = |key: &str| decode(key).ok_or_else(|| StoreError::bad_row("change the device list", "no key"));
        let public_key = bytes(&listed.key)?;
        let by_role = match listed.role {
            Role::Machine => DeviceKind::Runner,
            Role::Recovery => DeviceKind::Recovery,
            Role::Primary | Role::Linked => DeviceKind::Cli,
        };
        Ok(Device {
            id: DeviceId::generate(),
            user: account.id,
            public_key,
            box_key: bytes(&listed.box_key)?,
            role: listed.role,
            kind: request.map_or(by_role, |request| request.kind),
            name: self.name(listed),
            machine: listed.machine_id.clone(),
            created_at: now,
            last_seen_at: None,
            is_removed: false,
            is_machine_deleted: false,
            // The account key signed in before there was a list, and other devices before a restore: their tokens were not counted.
            tokens_until: (public_key == account.public_key || !self.body.lists.is_empty())
                .then(|| now.plus(self.token_life)),
            notify: PushKind::ALL.into(),
        })
    }
}

/// A key is in the list of one account only, once, and for ever: what signs in with it is one account, and a removed device
/// does not come back. An account key belongs to its own account.
fn check_unused(tx: &mut Conn, user: UserId, added: &[&ListedDevice]) -> Result<(), Error> {
    let mut keys: Vec<[u8; 32]> = added.iter().filter_map(|device| decode(&device.key)).collect();
    keys.sort_unstable();
    for key in &keys {
        lock_key(tx, key)?;
    }
    if devices::is_any_known(tx, &keys)? {
        return Err(Error::KeyTaken);
    }
    for key in &keys {
        if accounts::find_by_key(tx, key)?.is_some_and(|owner| owner != user) {
            return Err(Error::KeyTaken);
        }
    }
    Ok(())
}

/// Waits until no other call is about to list this key, or to make an account of it.
pub(super) fn lock_key(tx: &mut Conn, key: &[u8; 32]) -> Result<(), StoreError> {
    tx.lock(&format!("device key {}", crate::domain::encode(key)))
}

/// Whether a key is or was in a list, or is an account.
pub(super) fn is_taken(tx: &mut Conn, key: &[u8; 32]) -> Result<bool, StoreError> {
    Ok(devices::is_any_known(tx, &[*key])? || accounts::find_by_key(tx, key)?.is_some())
}

fn remove(tx: &mut Conn, device: &Device, now: Timestamp) -> Result<(), StoreError> {
    devices::remove(tx, device.id, now)?;
    pushes::unsubscribe(tx, device.id)?;
    if let Some(machine) = &device.machine {
        for (token, expires_at) in tokens::revoke_of_machine(tx, device.user, machine, now)? {
            revocations::insert(tx, token, expires_at)?;
        }
    }
    Ok(())
}
