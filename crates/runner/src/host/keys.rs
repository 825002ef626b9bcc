//! The keys of one session, as its machine has them.

use std::sync::{Arc, Mutex, PoisonError};

use ensemble_client::seal::{Binding, BoxKeyPair, KeyRing, SealError, open_ring, seal_ring};
use ensemble_client::{AccountKey, Client, Error};
use ensemble_types::ids::{MachineId, SessionId};
use tokio::sync::watch;

use super::account::Lists;

/// The session's ring, which changes when its owner makes a new key.
#[derive(Clone)]
pub(crate) struct Keys {
    client: Client,
    session: SessionId,
    machine: MachineId,
    own: AccountKey,
    boxed: Arc<BoxKeyPair>,
    lists: Arc<Lists>,
    ring: Arc<Mutex<KeyRing>>,
    /// The newest epoch, and the ring sealed to this machine.
    changed: watch::Sender<(u32, String)>,
}

/// Why there is no newer key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoKey {
    #[error(transparent)]
    Client(#[from] Error),
    #[error("the owner's programs have not sealed the session's new key to this machine yet")]
    NotGiven,
    #[error("the session's new key was not made by a device of its owner")]
    Stranger,
    #[error("the session's new key does not open")]
    Sealed(#[from] SealError),
}

impl Keys {
    /// Opens the ring that the host has kept.
    pub(crate) fn open(
        (client, machine): (Client, MachineId),
        (own, boxed): (AccountKey, Arc<BoxKeyPair>),
        lists: Arc<Lists>,
        session: SessionId,
        sealed: &str,
    ) -> Result<Self, SealError> {
        let signed = open_ring(sealed, &boxed, Binding::Host { session, machine: &machine })?;
        let changed = watch::Sender::new((signed.ring.epoch(), sealed.to_owned()));
        Ok(Self { client, session, machine, own, boxed, lists, ring: Arc::new(Mutex::new(signed.ring)), changed })
    }

    /// A new ring, sealed to this machine.
    pub(crate) fn seal_own(
        ring: &KeyRing,
        (own, boxed): (&AccountKey, &BoxKeyPair),
        session: SessionId,
        machine: &MachineId,
    ) -> Result<String, SealError> {
        seal_ring(ring, &boxed.public(), Binding::Host { session, machine }, own)
    }

    pub(crate) fn ring(&self) -> KeyRing {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<(u32, String)> {
        self.changed.subscribe()
    }

    /// Reads the newest ring from the server, and checks who made it.
    ///
    /// Returns the `seq` of the session's last message, as the server has it.
    pub(crate) async fn refresh(&self) -> Result<i64, NoKey> {
        let session = self.client.session(self.session).await?;
        let known = self.ring();
        if session.key_epoch <= i64::from(known.epoch()) {
            return Ok(session.last_seq);
        }
        let sealed = session.host_key.ok_or(NoKey::NotGiven)?;
        let binding = Binding::Host { session: self.session, machine: &self.machine };
        let signed = open_ring(&sealed, &self.boxed, binding)?;
        let is_own = signed.signer == self.own.public_key();
        let list = self.lists.refreshed().await?;
        if !is_own && !list.device(&signed.signer).is_some_and(|device| device.role.shares_sessions()) {
            return Err(NoKey::Stranger);
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that shows an older ring does not bring an old key back.
        if signed.ring.epoch() > ring.epoch() {
            self.changed.send_replace((signed.ring.epoch(), sealed));
            *ring = signed.ring;
        }
        Ok(session.last_seq)
    }
}
