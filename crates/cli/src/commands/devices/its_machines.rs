//! The machines on the computer of a device that is removed, and those that have to confirm it.

use std::collections::BTreeSet;

use ensemble_account::Account;
use ensemble_account::confirmations;
use ensemble_types::devices::{Device, ListedDevice};
use ensemble_types::ids::MachineId;

use crate::machines::{Known, Machines};
use crate::print;

/// Waits until the machines that are there have confirmed that the device may command no longer. Returns those that have not.
pub(super) async fn await_machines(me: &Account, machines: &Machines, device: &str) -> Vec<MachineId> {
    let open = confirmations::awaited(me).await;
    for machine in &open {
        let (name, is_away) = (machines.called(&machine.id), if machine.was_there { "" } else { "is away and " });
        print::note(format!(
            "{name} {is_away}has not confirmed the removal. Until it does, anyone who has {device} and controls the server can still \
             command it."
        ));
    }
    open.into_iter().map(|machine| machine.id).collect()
}

/// The machines to delete with a device: the device itself if it is a machine, else those on the same computer. The list says which those
/// are. A machine with a token is not in the list, so its sealed metadata counts.
pub(super) fn machines_of(me: &Account, device: &Device, machines: &Machines, keep: bool) -> BTreeSet<MachineId> {
    let itself = device.machine_id.iter().cloned();
    if keep {
        return itself.collect();
    }
    let own = me.own();
    let by = |entry: &&ListedDevice| entry.by.as_ref() == Some(&device.public_key);
    let in_list = own.list.body().devices.iter().filter(by).filter_map(|entry| entry.machine_id.clone());
    let says_so = |known: &&Known| known.card.as_ref().is_some_and(|card| card.by.as_ref() == Some(&device.public_key));
    let others = machines.all().iter().filter(|known| !machines.is_listed(&known.machine.id));
    let in_cards = others.filter(says_so).map(|known| known.machine.id.clone());
    itself.chain(in_list).chain(in_cards).collect()
}

/// Shows all machines, and marks those that are deleted with the device.
pub(super) fn show_machines(machines: &Machines, gone: &BTreeSet<MachineId>) {
    let all = machines.ids();
    if all.is_empty() {
        return;
    }
    let row = |id: &&MachineId| format!("\n  [{}] {}", if gone.contains(id) { "x" } else { " " }, machines.called(id));
    let rows: Vec<String> = all.iter().map(row).collect();
    print::note(format!("Your machines. Those marked [x] are deleted with the device:{}", rows.concat()));
}
