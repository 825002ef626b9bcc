//! What a machine signs to say which list it obeys.

use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::SeenList;

use super::bytes::is_signed;
use super::list::{List, Removal};

/// The text that a machine's key signs: `ensemble-list-seen-v1`, the account, the machine, and the list's version and digest, each in a
/// line.
pub fn seen_text(account: &str, machine: &MachineId, version: u32, digest: &str) -> Vec<u8> {
    format!("ensemble-list-seen-v1\n{account}\n{machine}\n{version}\n{digest}").into_bytes()
}

impl List {
    /// The machines of this list that obeyed a device when it was removed, and have not confirmed that they know of it. `seen` is what the
    /// server says for a machine.
    pub fn unconfirmed<'s>(&self, seen: impl Fn(&MachineId) -> Option<&'s SeenList>) -> Vec<&MachineId> {
        let Some(removal) = self.removal() else { return Vec::new() };
        let obeyed = self.body().devices.iter().filter(|device| removal.machines.contains(&device.key));
        let machines = obeyed.filter_map(|device| Some((device, device.machine_id.as_ref()?)));
        let is_open = |device: &ListedDevice, machine| {
            seen(machine).is_none_or(|seen| !removal.has(seen) || !self.has_signed(device, machine, seen))
        };
        machines.filter(|(device, machine)| is_open(device, machine)).map(|(_, machine)| machine).collect()
    }

    fn has_signed(&self, device: &ListedDevice, machine: &MachineId, seen: &SeenList) -> bool {
        let SeenList { version, digest, sig } = seen;
        is_signed(&device.key, &seen_text(&self.body().account, machine, *version, digest), sig)
    }
}

impl Removal {
    /// Whether this is the list of the removal, or one that has followed it. One that is newer than the list that is known here is read
    /// first.
    fn has(&self, seen: &SeenList) -> bool {
        let place = seen.version.checked_sub(self.version).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.digests.get(place)).is_some_and(|digest| *digest == *seen.digest)
    }
}
