//! The next list of the account: this device signs it, and the server takes it.

use ensemble_client::devices::Names;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::ContentRing;
use ensemble_types::devices::{ChangeDevices, DeviceList, ListedDevice, PastDeviceLink, Role};

use super::{List, Own, box_of, change, public};
use crate::account::Account;
use crate::error::{Error, Result};
use crate::kept_lists;
use crate::names::next_list;

/// A list that this device has signed, and that the server has not taken yet.
pub(crate) struct Next {
    pub(crate) own: Own,
    pub(crate) change: ChangeDevices,
}

impl Account {
    /// Whether this is a primary device. Only such devices sign lists.
    pub fn is_primary(&self) -> bool {
        self.own().list.device(&self.key.public_key()).is_some_and(|device| device.role == Role::Primary)
    }

    pub fn check_primary(&self) -> Result<()> {
        if self.is_primary() { Ok(()) } else { Err(Error::NotPrimary) }
    }

    /// Signs the list after `before`. `added`: the key of a device in it that this program has made.
    pub(crate) fn sign_next(
        &self,
        before: &List,
        (next, names): (DeviceList, Names),
        contents: ContentRing,
        added: Option<&AccountKey>,
    ) -> Result<Next> {
        let (list, names) = next_list(before, next, names, &self.key)?;
        let change = change(&list, &contents, added, names)?;
        Ok(Next { own: Own { list, contents }, change })
    }

    /// Has the server take it. `links`: the linking that it completes, which vouches for the device should the server be restored.
    pub(crate) async fn send_next(&self, Next { own, change }: Next, links: Vec<PastDeviceLink>) -> Result<()> {
        kept_lists::send(&self.home, &self.client, (&self.key, self.id), &own.list, (&change, links)).await?;
        self.has_signed(own);
        Ok(())
    }
}

/// The entry of a device with this key, which has no name yet.
pub(crate) fn entry(key: &AccountKey, role: Role) -> Result<ListedDevice> {
    let box_key = box_of(key)?.public().to_text();
    Ok(ListedDevice { key: key.public_key(), box_key, role, machine_id: None, name: None, by: None })
}

/// The next content epoch, in a list that is not signed yet.
pub(crate) fn begin_epoch(next: &mut DeviceList, contents: &ContentRing) -> Result<ContentRing> {
    let contents = contents.next().map_err(|error| Error::Seal("The content keys".to_owned(), error))?;
    next.content_epoch = next.content_epoch.saturating_add(1);
    next.content_public_key = public(&contents)?.to_text();
    Ok(contents)
}
