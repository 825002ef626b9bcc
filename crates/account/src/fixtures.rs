//! What several tests begin with.

use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{BoxKeyPair, ContentRing};
use ensemble_types::devices::{DeviceList, ListedDevice, Role};
use ensemble_types::time::Timestamp;

use crate::devices::{self, List};

pub(crate) fn listed(key: &AccountKey, role: Role) -> ListedDevice {
    let box_key = BoxKeyPair::of_device(key).unwrap().public().to_text();
    ListedDevice { key: key.public_key(), box_key, role, machine_id: None, name: None, by: None }
}

/// The first list of an account, with this device as a primary one and these others, and its content keys.
pub(crate) fn first_list(key: &AccountKey, others: impl IntoIterator<Item = ListedDevice>) -> (List, ContentRing) {
    let contents = ContentRing::generate();
    let list = DeviceList {
        account: key.public_key(),
        version: 1,
        prev: None,
        created: Timestamp::from_unix_seconds(0),
        content_epoch: 1,
        content_public_key: contents.public().unwrap().to_text(),
        devices: [listed(key, Role::Primary)].into_iter().chain(others).collect(),
    };
    (List::first(&devices::signed(&list, key).unwrap(), &key.public_key()).unwrap(), contents)
}
