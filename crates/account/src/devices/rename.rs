//! The devices that the checked list has, and another name for one of them.

use ensemble_types::devices::Device;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::names;

impl Account {
    /// The devices that the checked list has, with their names in it. What else the server says of them is not to be relied on.
    pub async fn devices(&self) -> Result<Vec<Device>> {
        let mut devices = self.client.devices().await?.devices;
        let own = self.own();
        let names = names::given(&self.home, (self.place(), self.id), &own.list, &devices)?;
        let is_listed = |device: &Device| {
            let entry = own.list.device(&device.public_key);
            entry.is_some_and(|entry| entry.role == device.role && entry.box_key == device.box_key)
        };
        if devices.len() != own.list.body().devices.len() || !devices.iter().all(is_listed) {
            return Err(Error::DevicesNotSigned);
        }
        for device in &mut devices {
            device.name = names.get(&device.public_key).map(str::to_owned);
            device.machine_id = own.list.device(&device.public_key).and_then(|entry| entry.machine_id.clone());
        }
        Ok(devices)
    }

    /// Signs and sends the next list, with a new name for the entry of this key. Returns the name.
    pub async fn rename_device(&self, key: &str, name: &str) -> Result<String> {
        let own = self.own();
        let (mut next, mut names) = (own.list.successor(self.client.now()), self.names().await?);
        let entry = next.devices.iter_mut().find(|entry| entry.key == key).ok_or(Error::NoLongerListed)?;
        names.rename(entry, name)?;
        let given = names.get(key).unwrap_or_default().to_owned();
        let next = self.sign_next(&own.list, (next, names), own.contents.clone(), None)?;
        self.send_next(next, Vec::new()).await?;
        Ok(given)
    }
}
