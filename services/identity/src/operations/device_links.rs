//! Linking a device: a primary makes a link, a new device asks, and a list answers (`operations::devices`).

use ensemble_chassis::Caller;
use ensemble_protocol::lists::{decode, is_possession};
use ensemble_store_kit::{Conn, Db};
use ensemble_types::devices::{DeviceKind, DeviceLinkRequest};
use ensemble_types::time::Timestamp;
use rand::RngCore;

use super::devices::{calling, is_taken, lock_key};
use crate::Identity;
use crate::domain::{DeviceLink, LinkClosed, LinkId, MOST_OPEN_LINKS, encode, link_id};
use crate::error::Error;
use crate::store::device_links;
pub(crate) use crate::store::device_links::topic;

pub(crate) async fn create(service: &Identity, caller: &Caller) -> Result<DeviceLink, Error> {
    let (user, key) = (caller.user, caller.device);
    let mut random = [0; 8];
    rand::rngs::OsRng.fill_bytes(&mut random);
    let lifetime = service.rules.device_link_lifetime;
    let insert = move |tx: &mut Conn| {
        // The lock makes concurrent requests of one account count each other's links.
        let (account, device) = calling(tx, user, key)?;
        if !device.is_primary() {
            return Err(Error::NotPrimary);
        }
        if device_links::count_open(tx, user)? >= MOST_OPEN_LINKS {
            return Err(Error::TooManyLinks);
        }
        let link = DeviceLink::new(link_id(random, &account.public_key), user, tx.now()?, lifetime);
        device_links::insert(tx, &link)?;
        Ok(link)
    };
    service.db.write("create a device link", insert).await
}

/// A new device asks. Its signature shows that it holds the key, and that it asks here and with this link.
pub(crate) async fn ask(
    service: &Identity,
    id: LinkId,
    request: DeviceLinkRequest,
    is_local: bool,
) -> Result<(DeviceLink, Timestamp), Error> {
    if request.kind == DeviceKind::Recovery {
        return Err(Error::BadField("/kind", "must be cli, web or runner; recovery words need no link"));
    }
    let is_key = |by: &str| request.kind == DeviceKind::Runner && decode::<32>(by).is_some();
    if request.by.as_ref().is_some_and(|by| !is_key(by)) {
        return Err(Error::BadField("/by", "must be the public key of a device, and is for runners only"));
    }
    let origins: Vec<String> = service.rules.origins.iter().map(ToString::to_string).collect();
    if !is_possession(origins.iter().map(String::as_str), &encode(&id), &request) {
        let rule = "must be by publicKey over the text of this link, at an address of this server, with a good boxKey";
        return Err(Error::BadField("/signature", rule));
    }
    let key: [u8; 32] = decode(&request.public_key).ok_or(Error::BadField("/publicKey", "must be a key"))?;
    let asked = service
        .db
        .write("ask with a device link", move |tx| {
            let link = device_links::lock(tx, &id)?.ok_or(Error::LinkNotFound)?;
            let now = tx.now()?;
            if let Some(again) = link.asked_again(&request, now) {
                device_links::update(tx, &again)?;
                return Ok(None);
            }
            let asked = link.ask(request.clone(), is_local, now)?;
            lock_key(tx, &key)?;
            if is_taken(tx, &key)? {
                return Err(Error::KeyTaken);
            }
            device_links::update(tx, &asked)?;
            Ok(Some((asked, now)))
        })
        .await?;
    // What was noted of the link is kept, although the call fails.
    asked.ok_or(Error::LinkClosed(LinkClosed::Used))
}

/// A link, and the time in the database.
pub(crate) async fn read(db: &Db, id: LinkId) -> Result<(DeviceLink, Timestamp), Error> {
    db.read("read a device link", move |c| {
        let link = device_links::find(c, &id)?.ok_or(Error::LinkNotFound)?;
        Ok((link, c.now()?))
    })
    .await
}

/// A device of the account that made the link ends it: also a linked browser, which was led to it and needs none.
pub(crate) async fn refuse(db: &Db, caller: &Caller, id: LinkId) -> Result<(DeviceLink, Timestamp), Error> {
    let (user, key) = (caller.user, caller.device);
    db.write("refuse a device link", move |tx| {
        calling(tx, user, key)?;
        let link = device_links::lock(tx, &id)?.filter(|link| link.user == user).ok_or(Error::LinkNotFound)?;
        let now = tx.now()?;
        let refused = link.refuse(now)?;
        device_links::update(tx, &refused)?;
        Ok((refused, now))
    })
    .await
}
