//! The metadata of machines: what they say of themselves.

use std::time::Duration;

use ensemble_protocol::seal::{self, Binding, Purpose, SignedRing};
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;

use super::Known;
use crate::context::Me;
use crate::failure::{Failure, Result};

/// The machines with their metadata. It counts only under a key that the machine or a device of the account has made, because anybody can
/// seal something to the account.
pub(crate) async fn opened(me: &Me, machines: Vec<Machine>) -> Result<Vec<Known>> {
    let rings: Vec<_> = machines.iter().map(|machine| ring(me, machine).ok()).collect();
    let may = |devices: &[ListedDevice], signer: &str, machine: &MachineId| {
        devices.iter().any(|device| device.key == signer && device.makes_keys(Some(machine)))
    };
    let own = me.own();
    let listed = own.list.body().devices.as_slice();
    let is_unknown = |(machine, ring): (&Machine, &Option<SignedRing>)| {
        ring.as_ref().is_some_and(|ring| !may(listed, &ring.signer, &machine.id))
    };
    // A device that was removed since may have made it.
    let every =
        if machines.iter().zip(&rings).any(is_unknown) { Some(me.every_device(Duration::ZERO).await?) } else { None };
    let devices = every.as_deref().unwrap_or(listed);
    let open = |(machine, ring): (Machine, Option<SignedRing>)| {
        let card =
            ring.filter(|ring| may(devices, &ring.signer, &machine.id)).and_then(|SignedRing { ring, .. }| {
                seal::open_json(&ring, Purpose::MachineMetadata(&machine.id), &machine.metadata).ok()
            });
        Known { machine, card }
    };
    Ok(machines.into_iter().zip(rings).map(open).collect())
}

/// The key of a machine, and who has made it.
fn ring(me: &Me, machine: &Machine) -> Result<SignedRing> {
    let closed = |error| Failure::Seal(format!("The key of machine {}", machine.id), error);
    me.open_ring(&machine.encryption_key, Binding::Machine { machine: &machine.id }).map_err(closed)
}
