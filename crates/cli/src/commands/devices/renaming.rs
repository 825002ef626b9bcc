//! `ensemble devices rename`, and what `ensemble machine rename` shares with it.

use ensemble_account::Account;
use ensemble_account::devices::change;
use ensemble_account::kept_lists;
use ensemble_account::names::next_list;
use ensemble_client::devices::NameError;
use ensemble_types::devices::Role;

use super::super::link::check_primary;
use super::{called, find};
use crate::context::{Context, now};
use crate::failure::{Failure, Result};
use crate::print;

/// Renames a device: the next list has another name for it.
pub(super) async fn rename(context: &Context, me: &Account, named: &str, name: &str) -> Result<()> {
    check_primary(me)?;
    let mut device = find(context, me, named).await?;
    match device.role {
        Role::Machine => return Err(Failure::message("This is a machine. Rename it with `ensemble machine rename`.")),
        Role::Recovery => {
            return Err(Failure::message("Recovery words have no name. Choose a device from `ensemble devices`."));
        }
        Role::Primary | Role::Linked => {}
    }
    device.name = Some(in_next_list(context, me, &device.public_key, name).await?);
    if context.json {
        return print::json(&device, false);
    }
    print::line(format!("The device is called {}.", called(&device)))
}

/// Signs and sends the next list, with a new name for this entry. Returns the name.
pub(in crate::commands) async fn in_next_list(
    context: &Context,
    me: &Account,
    key: &str,
    name: &str,
) -> Result<String> {
    let own = me.own();
    let (mut next, mut names) = (own.list.successor(now()), me.names().await?);
    let entry = next.devices.iter_mut().find(|entry| entry.key == key);
    let entry = entry.ok_or_else(|| {
        Failure::message("It is no longer in your device list. Run `ensemble devices` to see the list.")
    })?;
    names.rename(entry, name).map_err(|error| refused(&error))?;
    let given = names.get(key).unwrap_or_default().to_owned();
    let (list, names) = next_list(&own.list, next, names, &me.key)?;
    let change = change(&list, &own.contents, [], names)?;
    kept_lists::send(&context.home, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await?;
    Ok(given)
}

fn refused(error: &NameError) -> Failure {
    Failure::message(match error {
        NameError::MachineForm(_) => "The name of a machine has 1 to 63 of the characters a-z, 0-9, '.', '_' and '-', and begins with a \
                                      letter or a digit."
            .to_owned(),
        NameError::Twice(name) => format!(
            "Another device or machine is called {}. Upper and lower case are the same. Choose another name.",
            print::inline(name)
        ),
        NameError::Unknown => "The server keeps back names of your devices, so none is given now. Try again. If it stays so, do not trust \
                               this server."
            .to_owned(),
        _ => "The name of a device has 1 to 64 bytes, no character that cannot be seen, and no space at its begin or end."
            .to_owned(),
    })
}
