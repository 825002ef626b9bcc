//! `ensemble devices rename`.

use super::super::link::check_primary;
use super::{called, find};
use crate::context::{Context, Me, now};
use crate::devices::change;
use crate::failure::{Failure, Result};
use crate::kept_lists;
use crate::names::next_list;
use crate::print;

/// Renames a device: the next list has another name for it.
pub(super) async fn rename(context: &Context, me: &Me, named: &str, name: &str) -> Result<()> {
    check_primary(me)?;
    let mut device = find(context, me, named).await?;
    let own = me.own();
    let (mut next, mut names) = (own.list.successor(now()), me.names(context).await?);
    if names.has_other(&device.public_key, name.trim()) {
        return Err(Failure::message(format!(
            "Another device is called {}. Choose another name.",
            print::inline(name)
        )));
    }
    if let Some(entry) = next.devices.iter_mut().find(|entry| entry.key == device.public_key) {
        names.give(entry, name);
    }
    device.name = names.get(&device.public_key).map(str::to_owned);
    if device.name.is_none() {
        return Err(Failure::message("A name has 1 to 64 bytes of characters that can be seen."));
    }
    let (list, names) = next_list(&own.list, next, names, &me.key)?;
    let change = change(&list, &own.contents, [], names)?;
    kept_lists::send(context, &me.client, (&me.key, me.id), &list, (&change, Vec::new())).await?;
    if context.json {
        return print::json(&device, false);
    }
    print::line(format!("The device is called {}.", called(&device)))
}
