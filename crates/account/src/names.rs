//! The names of the account's devices. The list has commitments to them, and they are kept here, so no command asks for them twice.

use std::collections::BTreeMap;

use ensemble_client::Client;
use ensemble_client::devices::Names;
use ensemble_protocol::AccountKey;
use ensemble_types::devices::{Device, DeviceList, DeviceName};
use ensemble_types::ids::UserId;
use ensemble_types::text::{Blob, Text};

use crate::account::Account;
use crate::devices::{List, signed};
use crate::error::Result;
use crate::home::Home;

/// The names, by place, user and public key.
const FILE: &str = "device-names.json";
type Given = BTreeMap<String, DeviceName>;
type Kept = BTreeMap<String, BTreeMap<UserId, Given>>;

impl Home {
    /// A file that cannot be read is replaced: the server is asked again.
    fn kept_names(&self, (place, user): (&str, UserId)) -> Given {
        let mut all: Kept = self.read_json(FILE).ok().flatten().unwrap_or_default();
        all.remove(place).and_then(|mut users| users.remove(&user)).unwrap_or_default()
    }

    /// Keeps the names of a list, in place of those of the list before.
    pub(crate) fn keep_names(&self, (place, user): (&str, UserId), names: &Given) -> Result<()> {
        if self.kept_names((place, user)) == *names {
            return Ok(());
        }
        self.renew_json(FILE, |all: &mut Kept| {
            all.entry(place.to_owned()).or_default().insert(user, names.clone());
            Ok(())
        })
    }
}

impl Account {
    /// The names of the own devices.
    pub async fn names(&self) -> Result<Names> {
        of(&self.home, &self.client, self.id, &self.own().list).await
    }
}

/// The names of an account's devices. The server is asked where one of them is not known.
pub async fn of(home: &Home, client: &Client, user: UserId, list: &List) -> Result<Names> {
    let place = home.place(client.origin(), user)?;
    let kept = Names::opened(list.body(), home.kept_names((&place, user)));
    if kept.are_all_of(list.body()) {
        return Ok(kept);
    }
    given(home, (&place, user), list, &client.devices().await?.devices)
}

/// The names in what the server says of an account's devices, where they open their commitments.
pub fn given(home: &Home, account: (&str, UserId), list: &List, devices: &[Device]) -> Result<Names> {
    let named = |device: &Device| {
        let (salt, name) = (device.name_salt.clone()?, device.name.clone()?);
        Some((device.public_key.clone(), DeviceName { salt: Blob::new(salt).ok()?, name: Text::new(name).ok()? }))
    };
    let mut all: Given = devices.iter().filter_map(named).collect();
    // What was checked before stays, whatever the server says now.
    let kept = Names::opened(list.body(), home.kept_names(account));
    all.extend(kept.given().iter().map(|(key, name)| (key.clone(), name.clone())));
    let names = Names::opened(list.body(), all);
    home.keep_names(account, names.given())?;
    Ok(names)
}

/// The list after this one, signed, and the names that are sent with it.
pub fn next_list(
    before: &List,
    mut next: DeviceList,
    names: Names,
    signer: &AccountKey,
) -> Result<(List, BTreeMap<String, DeviceName>)> {
    let names = names.for_next(&mut next);
    let list = before.next(&signed(&next, signer)?).map_err(ensemble_client::Error::from)?;
    Ok((list, names))
}
