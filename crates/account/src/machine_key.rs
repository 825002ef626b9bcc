//! The key of this machine's runner: an entry of its own in the account's device list, which opens nothing of the account.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_client::devices::{Known, MOST_DEVICES};
use ensemble_protocol::AccountKey;
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::ids::MachineId;
use ensemble_types::problem::Code;

use crate::account::Account;
use crate::devices::{List, OVERTAKEN, next};
use crate::error::{Error, Result};
use crate::notice::Notice;

/// The file with this machine's key. The account's list has the key from now on, with a name, and with this device as the one on its
/// computer. `None`: this device may not sign lists, or the list is full; such a machine works with a token. `is_new`: the server says
/// that the machine is new. It keeps its key all the same, because its sessions are sealed to that.
pub(crate) async fn listed(me: &Account, machine: &MachineId, is_new: bool) -> Result<Option<PathBuf>> {
    let path = me.home.machine_key_path(me.owner(), machine);
    let key = me.home.machine_key(&path)?;
    let is_listed = key.as_ref().is_some_and(|key| of_key(&me.own().list, key, machine).is_some());
    if is_new && is_listed {
        me.say(Notice::MachineForgotten(machine.clone()));
    }
    match list_it(me, machine, (path.clone(), key)).await {
        // Its name can wait. Its work cannot.
        Err(why) if is_listed => {
            me.say(Notice::MachineNotListed(why));
            Ok(Some(path))
        }
        listed => listed,
    }
}

async fn list_it(
    me: &Account,
    machine: &MachineId,
    (path, mut key): (PathBuf, Option<AccountKey>),
) -> Result<Option<PathBuf>> {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let own = me.own();
        let entry = key.as_ref().and_then(|key| of_key(&own.list, key, machine));
        let is_of_this = entry.is_some_and(|entry| entry.by == Some(me.key.public_key()));
        if is_of_this && entry.is_some_and(|entry| entry.name.is_some()) {
            return Ok(Some(path));
        }
        if !me.is_primary() {
            return Ok(entry.map(|_| path));
        }
        if let (Some(removed), None) = (&key, entry)
            && is_removed(me, removed).await?
        {
            me.say(Notice::MachineKeyRemoved(me.home.keep_removed_key(&path, removed)?));
            key = None;
        }
        let mut names = me.names().await?;
        // It would get no name now.
        if is_of_this && names.lacks_some() {
            return Ok(Some(path));
        }
        let mut next = own.list.successor(me.client.now());
        let before = next.devices.iter().position(|device| device.machine_id.as_ref() == Some(machine));
        let before = before.map(|at| next.devices.remove(at));
        if next.devices.len() >= MOST_DEVICES {
            me.say(Notice::ListFull { most: MOST_DEVICES });
            return Ok(None);
        }
        // It is on disk before it is listed: a command that was killed continues with it.
        let used = match key.take() {
            Some(key) => key,
            None => {
                let new = AccountKey::generate();
                me.home.write_key(&path, &new)?;
                new
            }
        };
        // A machine that gets another key, because it lost the old one, keeps its name.
        let name = before
            .as_ref()
            .and_then(|before| names.get(&before.key))
            .map_or_else(|| me.home.computer().host().to_owned(), str::to_owned);
        names.keep(&next);
        let (machine_id, by) = (Some(machine.clone()), Some(me.key.public_key()));
        let mut entry = ListedDevice { machine_id, by, ..next::entry(&used, Role::Machine)? };
        names.give(&mut entry, &name);
        next.devices.push(entry);
        let is_added = own.list.device(&used.public_key()).is_none();
        let next = me.sign_next(&own.list, (next, names), own.contents.clone(), is_added.then_some(&used))?;
        match me.send_next(next, Vec::new()).await {
            Ok(()) => return Ok(Some(path)),
            // Another program of the account was faster. If the server says that the key was removed before, the lists show it.
            Err(Error::Client(error))
                if error.is(Code::DeviceListConflict) || (error.is(Code::Conflict) && is_added) =>
            {
                me.refresh_own(Duration::ZERO).await?;
                key = Some(used);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(OVERTAKEN)
}

/// Takes these machines from the account's list, if they are in it and this device may sign lists.
pub(crate) async fn unlist(me: &Account, machines: &[&MachineId]) -> Result<()> {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let own = me.own();
        let mut next = own.list.successor(me.client.now());
        let before = next.devices.len();
        next.devices.retain(|device| device.machine_id.as_ref().is_none_or(|id| !machines.contains(&id)));
        if next.devices.len() == before {
            return Ok(());
        }
        if !me.is_primary() {
            me.say(Notice::MachineStaysListed);
            return Ok(());
        }
        let next = me.sign_next(&own.list, (next, me.names().await?), own.contents.clone(), None)?;
        match me.send_next(next, Vec::new()).await {
            Err(Error::Client(error)) if error.is(Code::DeviceListConflict) => {
                me.refresh_own(Duration::ZERO).await?;
            }
            sent => return sent,
        }
    }
    Err(OVERTAKEN)
}

/// Whether an earlier list of the account had this key and the newest one does not. It is never listed again. The server's word is not
/// enough: a machine with another key does not open its sessions.
async fn is_removed(me: &Account, key: &AccountKey) -> Result<bool> {
    let (public, mut was_listed, mut is_listed) = (key.public_key(), false, false);
    let each = |list: &List| {
        is_listed = list.device(&public).is_some();
        was_listed |= is_listed;
    };
    me.client.read_lists(me.id, Known::Account(me.owner().account), each).await?;
    Ok(was_listed && !is_listed)
}

fn of_key<'l>(list: &'l List, key: &AccountKey, machine: &MachineId) -> Option<&'l ListedDevice> {
    let entry = list.device(&key.public_key());
    entry.filter(|entry| entry.role == Role::Machine && entry.machine_id.as_ref() == Some(machine))
}
