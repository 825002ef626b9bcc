//! Whose keys of sessions and machines count: those that a device of the account has made, or the machine itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ensemble_types::devices::ListedDevice;
use ensemble_types::sessions::Session;

use super::{OLDEST, host_of};
use crate::account::Account;
use crate::error::{Error, Result};

/// Within this time a key that no list had is not looked for again: a list of sessions may have many made-up ones.
const ONE_LISTING: Duration = Duration::from_secs(5);

impl Account {
    /// Whether a device in the newest list may make rings of this session: those of people, and the machine that hosts it.
    pub(super) fn may_make(&self, session: &Session, signer: &str) -> bool {
        self.own().list.device(signer).is_some_and(|device| device.makes_keys(host_of(session)))
    }

    /// Checks that a device of the account has made the key of an own session. One that was removed since made those of its time.
    pub(super) async fn check_maker(&self, session: &Session, signer: &str) -> Result<()> {
        let host = host_of(session);
        let made =
            |devices: &[ListedDevice]| devices.iter().any(|device| device.key == signer && device.makes_keys(host));
        let is_own = self.may_make(session, signer)
            || made(&self.every_device(OLDEST).await?)
            || made(&self.every_device(ONE_LISTING).await?);
        if is_own {
            return Ok(());
        }
        Err(Error::KeyOfStranger(session.reference))
    }

    /// The devices that the account has or had, read again when that was longer ago.
    pub async fn every_device(&self, max_age: Duration) -> Result<Arc<[ListedDevice]>> {
        let mut known = self.every_device.lock().await;
        match known.as_ref().filter(|(_, read)| read.elapsed() < max_age) {
            Some((devices, _)) => Ok(devices.clone()),
            None => {
                let devices: Arc<[ListedDevice]> =
                    self.client.every_device(self.id, self.owner().account).await?.into();
                *known = Some((devices.clone(), Instant::now()));
                Ok(devices)
            }
        }
    }
}
