//! Takes a device out of the account's list, and the machines on its computer with it.

use std::collections::BTreeSet;

use ensemble_types::devices::{Device, ListedDevice, Role};
use ensemble_types::ids::MachineId;

use super::next::begin_epoch;
use crate::account::Account;
use crate::error::Result;
use crate::notice::Notice;
use crate::pins::Shared;
use crate::removal::{Finished, begin_removal};
use crate::store::Lock;

/// A device that is in the list no more. Until [`Self::finish`] no other program of the person gives sessions new keys because of it.
pub struct Removed<'a> {
    me: &'a Account,
    /// What it and the other devices had written down for each other.
    shared: Shared,
    _lock: Lock,
}

impl Account {
    /// Has the server take a list without a device and these machines. `keep_rights`: what the device has shared, and what it has let
    /// people do, stays.
    pub async fn remove_device(
        &self,
        device: &Device,
        machines: &BTreeSet<MachineId>,
        keep_rights: bool,
    ) -> Result<Removed<'_>> {
        self.check_primary()?;
        let own = self.own();
        let mut next = own.list.successor(self.client.now());
        let is_gone = |entry: &ListedDevice| entry.machine_id.as_ref().is_some_and(|id| machines.contains(id));
        next.devices.retain(|entry| entry.key != device.public_key && !is_gone(entry));
        let contents = match device.role {
            Role::Machine => own.contents.clone(),
            _ => begin_epoch(&mut next, &own.contents)?,
        };
        let next = self.sign_next(&own.list, (next, self.names().await?), contents, None)?;
        // What it has written last is read before it is removed: its signature is not trusted afterwards.
        let shared = self.shared_state().await.unwrap_or_else(|why| {
            // A device that is to be removed could make it unreadable.
            self.say(Notice::SharedStateLost(why));
            Shared::default()
        });
        self.see_all_titles().await;
        let lock = self.home.lock_removal().await?;
        self.home.change_settings(|settings| {
            let kept = settings.keep_rights.entry(self.place().to_owned()).or_default();
            match keep_rights {
                true => drop(kept.insert(device.public_key.clone(), next.own.list.digest_text())),
                false => drop(kept.remove(&device.public_key)),
            }
        })?;
        begin_removal(&self.home, self.place(), next.own.list.version())?;
        self.send_next(next, Vec::new()).await?;
        Ok(Removed { me: self, shared, _lock: lock })
    }
}

impl Removed<'_> {
    /// Signs again what the devices have written down for each other, with the content keys of the new epoch.
    pub async fn keep_state(&self) {
        if let Err(why) = self.me.keep_state(&self.shared).await {
            self.me.say(Notice::SharedStateNotKept(why));
        }
    }

    /// Gives sessions and machines new keys, and takes back the rights that the device gave. Comes after [`Account::settle`].
    pub async fn finish(self) -> Result<Finished> {
        self.me.finish_removal().await
    }
}
