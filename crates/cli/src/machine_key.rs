//! The key of this machine's runner: an entry of its own in the account's device list, which opens nothing of the account.

use std::path::PathBuf;
use std::time::Duration;

use ensemble_client::devices::MOST_DEVICES;
use ensemble_protocol::AccountKey;
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::ids::MachineId;
use ensemble_types::problem::Code;

use crate::context::{Context, Me, now};
use crate::devices::{List, box_of, change};
use crate::failure::{Failure, Result};
use crate::kept_lists;
use crate::names::next_list;
use crate::print;

/// The file with this machine's key, which is in the account's list from now on. `None`: this device may not sign lists, or the
/// list is full; such a machine works with a token. A machine that is new at the server gets a new key.
pub(crate) async fn listed(context: &Context, me: &Me, machine: &MachineId, is_new: bool) -> Result<Option<PathBuf>> {
    const TRIES: usize = 4;
    let path = context.home.machine_key_path(me.owner(), machine);
    let mut key = context.home.machine_key(&path)?.filter(|_| !is_new);
    if key.as_ref().is_some_and(|key| is_of(&me.own().list, key, machine)) {
        return Ok(Some(path));
    }
    if !is_primary(&me.own().list, me) {
        return Ok(None);
    }
    for _ in 0..TRIES {
        let own = me.own();
        if key.as_ref().is_some_and(|key| is_of(&own.list, key, machine)) {
            return Ok(Some(path));
        }
        let mut next = own.list.successor(now());
        // A key of this machine that was lost.
        next.devices.retain(|device| device.machine_id.as_ref() != Some(machine));
        if next.devices.len() >= MOST_DEVICES {
            print::note(format!(
                "Your account has {MOST_DEVICES} devices, so this machine gets a token and no key of its own. Remove some with \
                 `ensemble devices remove`."
            ));
            return Ok(None);
        }
        // It is on disk before it is listed: a command that is killed goes on with it.
        let new = match key.take() {
            Some(key) => key,
            None => {
                let new = AccountKey::generate();
                context.home.write_key(&path, &new)?;
                new
            }
        };
        let box_key = box_of(&new)?.public().to_text();
        let (machine_id, by) = (Some(machine.clone()), Some(me.key.public_key()));
        next.devices.push(ListedDevice {
            key: new.public_key(),
            box_key,
            role: Role::Machine,
            machine_id,
            name: None,
            by,
        });
        let (list, names) = next_list(&own.list, next, me.names(context).await?, &me.key)?;
        let change = change(&list, &own.contents, [&new], names)?;
        match kept_lists::send(context, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await {
            Ok(()) => return Ok(Some(path)),
            // Another program of the account was faster.
            Err(Failure::Client(error)) if error.is(Code::DeviceListConflict) => {
                me.refresh_own(context, Duration::ZERO).await?;
                key = Some(new);
            }
            // The key was removed before. A removed key is never listed again.
            Err(Failure::Client(error)) if error.is(Code::Conflict) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::message(BUSY))
}

/// Takes these machines from the account's list, if they are in it and this device may sign lists.
pub(crate) async fn unlist(context: &Context, me: &Me, machines: &[&MachineId]) -> Result<()> {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let own = me.own();
        let mut next = own.list.successor(now());
        let before = next.devices.len();
        next.devices.retain(|device| device.machine_id.as_ref().is_none_or(|id| !machines.contains(&id)));
        if next.devices.len() == before {
            return Ok(());
        }
        if !is_primary(&own.list, me) {
            print::note(
                "The device list still has its key, so it keeps the keys of its sessions, until a primary device removes it.",
            );
            return Ok(());
        }
        let (list, names) = next_list(&own.list, next, me.names(context).await?, &me.key)?;
        let change = change(&list, &own.contents, [], names)?;
        match kept_lists::send(context, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await {
            Err(Failure::Client(error)) if error.is(Code::DeviceListConflict) => {
                me.refresh_own(context, Duration::ZERO).await?;
            }
            sent => return sent,
        }
    }
    Err(Failure::message(BUSY))
}

const BUSY: &str = "Other programs of yours change the device list at the same time. Try again.";

fn is_primary(list: &List, me: &Me) -> bool {
    list.device(&me.key.public_key()).is_some_and(|device| device.role == Role::Primary)
}

fn is_of(list: &List, key: &AccountKey, machine: &MachineId) -> bool {
    let entry = list.device(&key.public_key());
    entry.is_some_and(|entry| entry.role == Role::Machine && entry.machine_id.as_ref() == Some(machine))
}
