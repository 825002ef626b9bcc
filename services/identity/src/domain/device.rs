//! What the service keeps of a device in addition to the signed list, and what a device may ask for.

use ensemble_protocol::lists::encode;
use ensemble_types::devices::{self, DeviceKind, DeviceName, Role};
use ensemble_types::ids::{DeviceId, MachineId, UserId};
use ensemble_types::pushes::PushKind;
use ensemble_types::time::Timestamp;

/// A key that is or was in the list of an account.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    pub(crate) user: UserId,
    /// Ed25519.
    pub(crate) public_key: [u8; 32],
    /// X25519.
    pub(crate) box_key: [u8; 32],
    pub(crate) role: Role,
    pub(crate) kind: DeviceKind,
    pub(crate) name: Option<DeviceName>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) created_at: Timestamp,
    pub(crate) last_seen_at: Option<Timestamp>,
    pub(crate) is_removed: bool,
    /// The machine that it is was deleted. The list may still have it.
    pub(crate) is_machine_deleted: bool,
    /// When the last token that it asked for expires.
    pub(crate) tokens_until: Option<Timestamp>,
    /// What it is notified of.
    pub(crate) notify: Vec<PushKind>,
}

/// Who asks, as the account's list has it now.
#[derive(Clone, Debug)]
pub(crate) enum CallingDevice {
    /// The account key of an account that has no list yet.
    Only,
    Listed(Box<Device>),
}

impl CallingDevice {
    /// Whether it may add devices.
    pub(crate) fn is_primary(&self) -> bool {
        match self {
            Self::Only => true,
            Self::Listed(device) => device.role == Role::Primary,
        }
    }
}

impl Device {
    pub(crate) fn seen_by(self, caller: &[u8; 32], has_push: bool) -> devices::Device {
        let (name, name_salt) = self.name.map(|DeviceName { salt, name }| (name.to_string(), salt.to_string())).unzip();
        devices::Device {
            id: self.id,
            name,
            name_salt,
            kind: self.kind,
            role: self.role,
            public_key: encode(&self.public_key),
            box_key: encode(&self.box_key),
            machine_id: self.machine,
            created_at: self.created_at,
            last_seen_at: self.last_seen_at,
            current: self.public_key == *caller,
            notify: self.notify,
            push: has_push,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(role: Role) -> Device {
        Device {
            id: DeviceId::generate(),
            user: UserId::generate(),
            public_key: [1; 32],
            box_key: [2; 32],
            role,
            kind: DeviceKind::Cli,
            name: None,
            machine: None,
            created_at: Timestamp::from_unix_seconds(0),
            last_seen_at: None,
            is_removed: false,
            is_machine_deleted: false,
            tokens_until: None,
            notify: Vec::new(),
        }
    }

    #[test]
    fn only_the_first_key_and_primary_devices_add_others() {
        assert!(CallingDevice::Only.is_primary());
        for role in Role::ALL {
            let is_primary = CallingDevice::Listed(Box::new(listed(role))).is_primary();
            assert_eq!(is_primary, role == Role::Primary, "{role:?}");
        }
    }

    #[test]
    fn a_device_knows_itself() {
        let device = listed(Role::Linked);
        assert!(device.clone().seen_by(&[1; 32], false).current && !device.seen_by(&[2; 32], false).current);
    }
}
