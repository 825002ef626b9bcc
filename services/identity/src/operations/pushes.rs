//! Notifications: where devices are reached, what they are sent, and what becomes of it.
//!
//! An event is given at least once and sent once to each device: its attention is remembered longer than anybody gives it again. What
//! is to be sent is stored before the event is acknowledged. A try takes a delivery for a while; one that is not finished, because
//! the process was killed, is tried again then.

use std::time::Duration;

use ensemble_chassis::Caller;
use ensemble_chassis::outward::TrustedOrigins;
use ensemble_store_kit::deliveries::Due;
use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::devices;
use ensemble_types::ids::{DeviceId, UserId};
use ensemble_types::pushes::{PushKind, PushPayload, PushSubscription};
use ensemble_types::time::Timestamp;

use super::devices::calling;
use crate::clients::Sent;
use crate::domain::{CallingDevice, Device, Subscription, wait};
use crate::error::Error;
use crate::keys::{CannotOpen, Vapid, Vault};
use crate::store::pushes::{self, Delivery, NewDelivery};
use crate::store::{devices as device_rows, pushes as rows};

/// How long a notification is worth being delivered.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an event is remembered: longer than another service gives it again.
const REMEMBERED: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// Deliveries of a device that wait. The oldest goes.
const MOST_WAITING: i64 = 50;
/// How long nothing is sent to a device whose push service did not answer: an account's devices can name many push services.
const SILENT_DEVICE: Duration = Duration::from_secs(60);
/// For how long a delivery is taken: longer than the deadline of a call.
const TAKEN: Duration = Duration::from_secs(30);

/// An event that an account's devices are notified of.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) user: UserId,
    /// `None`: there is nothing to notify of any more.
    pub(crate) kind: Option<PushKind>,
    pub(crate) session: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) attention: String,
}

/// The key that signs to push services: the stored one, or a new one that is stored.
pub(crate) async fn load_key(db: &Db, vault: &Vault, contact: Option<String>) -> Result<Vapid, KeyError> {
    let made = Vapid::make(vault)?;
    let sealed = db
        .write("load the key for push services", move |tx| {
            rows::insert_key(tx, &made)?;
            Ok::<_, StoreError>(rows::key(tx)?.unwrap_or(made.clone()))
        })
        .await?;
    let key = Vapid::open(vault, &sealed, contact)?;
    if vault.is_replaced() {
        let sealed = key.reseal(vault)?;
        db.write("seal the key for push services again", move |tx| rows::reseal_key(tx, &sealed)).await?;
    }
    Ok(key)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("the key for push services: {0}")]
    Sealed(#[from] CannotOpen),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a device sets of its own notifications.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `Some(None)` ends them.
    pub(crate) subscription: Option<Option<Subscription>>,
    pub(crate) kinds: Option<Vec<PushKind>>,
}

impl Settings {
    pub(crate) fn new(
        subscription: Option<Option<PushSubscription>>,
        kinds: Option<Vec<PushKind>>,
        trusted: &TrustedOrigins,
    ) -> Result<Self, Error> {
        let subscription = subscription.map(|given| given.map(|given| Subscription::new(given, trusted)).transpose());
        if kinds.as_ref().is_some_and(|given| given.len() > PushKind::ALL.len()) {
            return Err(Error::BadField("/notify", "must have at most 5 items"));
        }
        // Each kind once, in one order.
        let kinds = kinds.map(|given| PushKind::ALL.into_iter().filter(|kind| given.contains(kind)).collect());
        Ok(Self { subscription: subscription.transpose()?, kinds })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subscription.is_none() && self.kinds.is_none()
    }
}

/// Sets the notifications of the calling device, which is the only one that can.
pub(crate) async fn set(db: &Db, caller: &Caller, id: DeviceId, settings: Settings) -> Result<devices::Device, Error> {
    let (user, key) = (caller.user, caller.device);
    db.write("set notifications of a device", move |tx| {
        let (account, caller) = calling(tx, user, key)?;
        let CallingDevice::Listed(device) = caller else { return Err(Error::DeviceNotFound) };
        let device = *device;
        if device.id != id {
            let is_own = device_rows::of_account(tx, user)?.iter().any(|other| other.id == id);
            return Err(if is_own { Error::NotTheDevice } else { Error::DeviceNotFound });
        }
        match &settings.subscription {
            Some(Some(to)) => rows::subscribe(tx, user, id, to)?,
            Some(None) => rows::unsubscribe(tx, id)?,
            None => {}
        }
        let device = Device { notify: settings.kinds.clone().unwrap_or(device.notify.clone()), ..device };
        device_rows::update(tx, &device)?;
        let has_push = rows::subscribed(tx, user)?.contains(&id);
        Ok(device.seen_by(&key.map_or(account.public_key, |key| key.0), has_push))
    })
    .await
}

/// Stores what is to be sent of these events.
pub(crate) async fn give(db: &Db, events: Vec<Event>) -> Result<(), StoreError> {
    db.write("take events to notify of", move |tx| {
        let now = tx.now()?;
        for event in &events {
            match event.kind {
                None => {
                    // One that is given late is not sent any more.
                    rows::insert_event(tx, event.user, &event.attention, now.plus(REMEMBERED))?;
                    rows::withdraw(tx, event.user, &event.attention)?;
                }
                Some(kind) => store(tx, event, kind, now)?,
            }
        }
        Ok(())
    })
    .await
}

fn store(tx: &mut Conn, event: &Event, kind: PushKind, now: Timestamp) -> Result<(), StoreError> {
    if !rows::insert_event(tx, event.user, &event.attention, now.plus(REMEMBERED))? {
        return Ok(());
    }
    let payload = PushPayload {
        kind,
        session_id: event.session.clone(),
        run_id: event.run.clone(),
        attention: event.attention.clone(),
    };
    let payload =
        serde_json::to_string(&payload).map_err(|error| StoreError::bad_row("write a notification", error))?;
    let new = NewDelivery {
        user: event.user,
        attention: &event.attention,
        payload: &payload,
        is_urgent: matches!(kind, PushKind::Permission | PushKind::Question),
        expires_at: now.plus(TTL),
    };
    let subscribed = rows::subscribed(tx, event.user)?;
    for device in device_rows::of_account(tx, event.user)? {
        if subscribed.contains(&device.id) && device.notify.contains(&kind) {
            rows::insert_delivery(tx, device.id, &new)?;
            rows::drop_oldest(tx, device.id, MOST_WAITING)?;
            tx.notify(pushes::topic());
        }
    }
    Ok(())
}

/// Takes a delivery of each of at most `limit` accounts, and says when the next is due. Accounts in `passed` get nothing now.
pub(crate) async fn take(db: &Db, limit: usize, passed: Vec<UserId>) -> Result<Due<Delivery>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.write("take notifications to send", move |tx| {
        let now = tx.now()?;
        let mut taken = Vec::new();
        for user in rows::waiting(tx, &passed, limit)? {
            taken.extend(rows::take(tx, user, (now, now.plus(TAKEN)))?);
        }
        let next = rows::next_due(tx, &passed)?.map(|due| due.since(now));
        Ok(Due { taken, next })
    })
    .await
}

/// Postpones a delivery without a try, because its push service does not answer at present.
pub(crate) async fn hold_back(db: &Db, delivery: &Delivery, wait: Duration) -> Result<(), StoreError> {
    let (device, attention, tries) = (delivery.device, delivery.attention.clone(), delivery.tries);
    db.write("hold a notification back", move |tx| {
        let to = tx.now()?.plus(wait);
        rows::postpone(tx, device, &attention, (to, tries))
    })
    .await
}

/// What is recorded of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    Gone,
    Refused,
    Later,
    Expired,
}

/// Records what became of a delivery.
pub(crate) async fn record(db: &Db, delivery: Delivery, sent: Sent) -> Result<Outcome, StoreError> {
    db.write("record a notification", move |tx| {
        let now = tx.now()?;
        match sent {
            Sent::Taken | Sent::Refused => {
                rows::delete_delivery(tx, delivery.device, &delivery.attention)?;
                Ok(if sent == Sent::Taken { Outcome::Sent } else { Outcome::Refused })
            }
            Sent::Gone => {
                rows::unsubscribe_from(tx, delivery.device, &delivery.to.endpoint)?;
                Ok(Outcome::Gone)
            }
            Sent::Later(_) | Sent::Silent => {
                let asked = if let Sent::Later(asked) = sent { asked } else { None };
                let tries = delivery.tries + 1;
                let next = now.plus(wait(tries, asked));
                if next >= delivery.expires_at {
                    rows::delete_delivery(tx, delivery.device, &delivery.attention)?;
                    return Ok(Outcome::Expired);
                }
                if sent == Sent::Silent {
                    rows::postpone_device(tx, delivery.device, now.plus(SILENT_DEVICE))?;
                }
                rows::postpone(tx, delivery.device, &delivery.attention, (next, tries))?;
                Ok(Outcome::Later)
            }
        }
    })
    .await
}
