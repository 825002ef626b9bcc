//! The user's machines: what they say of themselves, their keys, and how they are called.

mod named;
mod reported;
mod texts;

use std::time::Duration;

use ensemble_protocol::seal::{self, Binding, DaemonState, KeyRing, Purpose, SignedRing};
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::{Machine, RegisterMachine, UpdateMachine};
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::error::{Error, Result};
use crate::notice::Notice;
use crate::sessions::{seal_json, seal_ring};

pub use self::named::{Machines, Name};
pub use self::reported::{ProviderState, Runner, Worktrees, runner};

/// The decrypted metadata of a machine: what it says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Card {
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub arch: String,
    /// The public key of the device on the same computer that has registered it. The entry of a listed machine counts instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A machine and its decrypted metadata, if it could be decrypted.
#[derive(Clone, Debug)]
pub struct Known {
    pub machine: Machine,
    pub card: Option<Card>,
    /// What it says that it can do, under its key in the account's list.
    pub state: Option<DaemonState>,
}

/// The machines with their metadata. It counts only under a key that the machine or a device of the account has made, because anybody can
/// seal something to the account.
pub(crate) async fn opened(me: &Account, machines: Vec<Machine>) -> Result<Vec<Known>> {
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
        let state = state(me, &machine);
        Known { machine, card, state }
    };
    Ok(machines.into_iter().zip(rings).map(open).collect())
}

fn state(me: &Account, machine: &Machine) -> Option<DaemonState> {
    let (sealed, own) = (machine.daemon_state.as_deref()?, me.own());
    let entry = own.list.body().devices.iter().find(|device| device.machine_id.as_ref() == Some(&machine.id))?;
    let of = (&machine.id, machine.daemon_state_version);
    own.contents.open_with(|pair| DaemonState::open(sealed, pair, of, &entry.key)).ok()
}

/// The key of a machine, and who has made it.
fn ring(me: &Account, machine: &Machine) -> Result<SignedRing> {
    let closed = |error| Error::Seal(format!("The key of machine {}", machine.id), error);
    me.open_ring(&machine.encryption_key, Binding::Machine { machine: &machine.id }).map_err(closed)
}

/// The request that registers a machine, or gives it another key.
pub fn registration(me: &Account, id: &MachineId, card: &Card) -> Result<RegisterMachine> {
    let ring = KeyRing::generate();
    Ok(RegisterMachine {
        metadata: seal_json(&ring, Purpose::MachineMetadata(id), "metadata", card)?,
        encryption_key: seal_ring(&ring, &me.content_key()?, Binding::Machine { machine: id }, &me.key)?,
        content_epoch: me.content_epoch(),
        id: Some(id.clone()),
    })
}

/// Gives machines whose keys are from before the newest content key new ones: a removed device would read from a copy of the database what
/// they are called. Another device may be faster, and one that fails is tried again with the next removal.
pub(crate) async fn renew_keys(me: &Account) -> Result<()> {
    let all = opened(me, me.client.machines().try_collect().await?).await?;
    let is_old = |machine: &Machine| machine.content_epoch != me.content_epoch();
    for Known { machine, card, .. } in all.iter().filter(|known| is_old(&known.machine)) {
        let Some(card) = card else { continue };
        let RegisterMachine { metadata, encryption_key, content_epoch, .. } = registration(me, &machine.id, card)?;
        let update = UpdateMachine {
            metadata: Some(metadata),
            encryption_key: Some(encryption_key),
            content_epoch,
            expected_metadata_version: Some(machine.metadata_version),
            ..UpdateMachine::default()
        };
        if let Err(error) = me.client.update_machine(&machine.id, &update).await {
            me.say(Notice::MachineWithoutNewKey { machine: machine.reference, why: error.into() });
        }
    }
    Ok(())
}
