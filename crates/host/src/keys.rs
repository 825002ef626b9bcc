//! The keys of one session, as its machine has them.

mod no_key;
mod old;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ensemble_client::devices::List;
use ensemble_client::{Client, Error};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{
    Binding, BoxKeyPair, BoxPublicKey, KeyRing, SealError, SignedMetadata, open_host_ring, open_metadata, seal_ring,
};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::problem::Code;
use ensemble_types::sessions::{CannotWrite, Metadata, Session, UpdateSession};
use ensemble_types::text::Blob;
use tokio::sync::{Mutex as AsyncMutex, watch};

pub(crate) use self::no_key::NoKey;
use self::old::{Old, Wanted};
use super::account::Lists;
use super::titles::{self, Given, Said, Shown};

/// The session's ring, which changes when its owner or this machine makes a new key.
#[derive(Clone)]
pub(crate) struct Keys {
    client: Client,
    session: SessionId,
    /// What this machine says of it.
    said: Said,
    /// How long the owner's program has to make the next key after a share was removed.
    grace: Duration,
    machine: MachineId,
    own: AccountKey,
    boxed: Arc<BoxKeyPair>,
    lists: Arc<Lists>,
    held: Arc<Mutex<Held>>,
    old: Arc<Mutex<Old>>,
    /// Held while this machine makes a new key.
    renewing: Arc<AsyncMutex<Renewing>>,
    /// The newest epoch, and the ring sealed to this machine.
    changed: watch::Sender<(u32, String)>,
    /// Why nothing can be written, since that was tried last.
    cannot_write: watch::Sender<Option<CannotWrite>>,
}

/// A ring, and the content epoch of the owner's list that its maker knew. A device that was removed later may have it.
#[derive(Clone)]
struct Held {
    ring: KeyRing,
    content_epoch: u32,
    /// The device or machine key that has signed it.
    maker: String,
}

/// The results of earlier attempts to make a new key.
#[derive(Default)]
struct Renewing {
    failed: Option<Instant>,
    /// A key that the server may have, though it did not answer. It is the one that the next try sends, while no other device was removed.
    made: Option<Held>,
}

/// What the server says of a session.
pub(crate) struct Seen {
    pub(crate) last_seq: i64,
    pub(crate) key_epoch: i64,
    /// The version of its metadata, and the metadata.
    metadata: (i64, String),
}

impl Seen {
    fn of(session: &Session) -> Self {
        let metadata = (session.metadata_version, session.metadata.clone());
        Self { last_seq: session.last_seq, key_epoch: session.key_epoch, metadata }
    }
}

/// A key that could not be made is tried again after this time.
const AFTER_A_FAILURE: Duration = Duration::from_secs(2);

impl Keys {
    /// Opens the ring that the host has kept.
    pub(crate) async fn open(
        (client, machine): (Client, MachineId),
        (own, boxed): (AccountKey, Arc<BoxKeyPair>),
        lists: Arc<Lists>,
        (session, said, grace): (SessionId, Said, Duration),
        sealed: &str,
    ) -> Result<Self, SealError> {
        let (signed, content_epoch) = open_host_ring(sealed, &boxed, (session, &machine), lists.content_epoch().await)?;
        let changed = watch::Sender::new((signed.ring.epoch(), sealed.to_owned()));
        let held = Arc::new(Mutex::new(Held { ring: signed.ring, content_epoch, maker: signed.signer }));
        let (old, renewing, cannot_write) = (Arc::default(), Arc::default(), watch::Sender::default());
        Ok(Self {
            client,
            session,
            said,
            grace,
            machine,
            own,
            boxed,
            lists,
            held,
            old,
            renewing,
            changed,
            cannot_write,
        })
    }

    /// A new ring, sealed to this machine.
    pub(crate) fn seal_own(
        ring: &KeyRing,
        (own, boxed): (&AccountKey, &BoxKeyPair),
        (session, machine): (SessionId, &MachineId),
        content_epoch: u32,
    ) -> Result<String, SealError> {
        seal_ring(ring, &boxed.public(), Binding::Host { session, machine, content_epoch }, own)
    }

    fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys for reading.
    pub(crate) fn ring(&self) -> KeyRing {
        self.held().ring
    }

    /// The keys for writing: ones that neither a removed device has, by the owner's list of at most a minute ago, nor a person whose share
    /// was removed. Where there are none yet, this machine makes them.
    pub(crate) async fn writing_ring(&self) -> Result<KeyRing, NoKey> {
        self.ring_for(u64::MAX).await
    }

    /// The same for the machine's messages up to this count.
    pub(crate) async fn ring_for(&self, last: u64) -> Result<KeyRing, NoKey> {
        const TRIES: usize = 3;
        let content_epoch = self.lists.recent_content_epoch().await;
        let old = *self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = Wanted { content_epoch, above: old.below(last) };
        if let Some(ring) = self.fresh(wanted) {
            return Ok(ring);
        }
        let mut renewing = self.renewing.lock().await;
        // Frames and beats ask as often as messages do.
        if renewing.failed.is_some_and(|failed: Instant| failed.elapsed() < AFTER_A_FAILURE) {
            return Err(NoKey::Old);
        }
        for _ in 0..TRIES {
            if let Some(ring) = self.fresh(wanted) {
                return Ok(ring);
            }
            let renewed = match self.refresh().await {
                Ok(_) if self.fresh(wanted).is_some() => Ok(()),
                Ok(_) if old.waits(self.grace) && self.fresh(Wanted { above: 0, ..wanted }).is_some() => {
                    Err(NoKey::Soon)
                }
                Ok(seen) => self.renew(&seen, &mut renewing.made).await,
                Err(why) => Err(why),
            };
            if let Err(why) = renewed {
                return Err(self.failed(why, wanted, &mut renewing));
            }
        }
        Err(self.failed(NoKey::Old, wanted, &mut renewing))
    }

    fn failed(&self, why: NoKey, wanted: Wanted, renewing: &mut Renewing) -> NoKey {
        renewing.failed = Some(Instant::now());
        // Another task may have read the key meanwhile.
        if self.fresh(wanted).is_none() {
            self.cannot_write_as(&why);
        }
        why
    }

    /// Why nothing can be written, as it changes.
    pub(crate) fn cannot_write(&self) -> watch::Receiver<Option<CannotWrite>> {
        self.cannot_write.subscribe()
    }

    /// The next heartbeat says this.
    pub(crate) fn cannot_write_as(&self, why: &NoKey) {
        if let Some(why) = why.shown() {
            self.say(Some(why));
        }
    }

    /// The server has taken something under the newest key.
    pub(crate) fn has_written(&self) {
        self.say(None);
    }

    fn say(&self, why: Option<CannotWrite>) {
        self.cannot_write.send_if_modified(|said| std::mem::replace(said, why) != why);
    }

    fn fresh(&self, Wanted { content_epoch, above }: Wanted) -> Option<KeyRing> {
        let is_fresh = |held: &Held| held.content_epoch >= content_epoch && held.ring.epoch() > above;
        Some(self.held()).filter(is_fresh).map(|held| held.ring)
    }

    /// Gives the session a new key, sealed to the owner's newest content key and to this machine. Guests get theirs from the owner's
    /// programs. `seen` is what the server has: one that was restored is behind, and gets the same key for each epoch that it lacks.
    /// What is signed for the key before counts no more, so the metadata is signed again with its title.
    async fn renew(&self, seen: &Seen, made: &mut Option<Held>) -> Result<(), NoKey> {
        let (before, shown) = (self.ring(), seen.key_epoch);
        // The server says that there is a newer one, and has not shown it.
        if shown > i64::from(before.epoch()) {
            return Err(NoKey::NotGiven);
        }
        let (to, content_epoch) = self.lists.content_key().await.map_err(NoKey::List)?;
        let is_next =
            |held: &Held| held.content_epoch == content_epoch.get() && held.ring.epoch() == before.epoch() + 1;
        let ring = match made.take().filter(is_next) {
            Some(held) => held.ring,
            None => before.next_by_machine()?,
        };
        let held = Held { ring, content_epoch: content_epoch.get(), maker: self.own.public_key() };
        *made = Some(held.clone());
        self.give(held, &before, (&to, content_epoch), seen).await
    }

    /// Gives a server that was restored the keys that it has lost, for as long as no device was removed that has them.
    pub(crate) async fn offer(&self, seen: &Seen) -> Result<(), NoKey> {
        let held = self.held();
        if seen.key_epoch >= i64::from(held.ring.epoch()) {
            return Ok(());
        }
        let _one_at_a_time = self.renewing.lock().await;
        let (to, content_epoch) = self.lists.content_key().await.map_err(NoKey::List)?;
        if content_epoch.get() != held.content_epoch {
            return Ok(());
        }
        let ring = held.ring.clone();
        self.give(held, &ring, (&to, content_epoch), seen).await
    }

    /// Makes this ring the server's, in one step for each epoch that it lacks. `before` is the ring that was used until now.
    async fn give(
        &self,
        Held { ring, .. }: Held,
        before: &KeyRing,
        (to, content_epoch): (&BoxPublicKey, ContentEpoch),
        seen: &Seen,
    ) -> Result<(), NoKey> {
        let shown = seen.key_epoch;
        let (version, sealed) = &seen.metadata;
        let epoch = u32::try_from(shown).unwrap_or_default();
        let given = self.given((before, epoch), (*version, sealed)).await.map_err(NoKey::List)?;
        let next = version.checked_add(1);
        let metadata = next.and_then(|version| self.metadata(&ring, version, given.as_ref()));
        let owner = Binding::Hosted { session: self.session, owner: self.lists.owner(), machine: &self.machine };
        let for_owner = seal_ring(&ring, to, owner, &self.own)?;
        let sealed =
            Self::seal_own(&ring, (&self.own, &self.boxed), (self.session, &self.machine), content_epoch.get())?;
        let too_long = |_| SealError::TooLong;
        for expected in shown.max(i64::from(KeyRing::FIRST_EPOCH))..i64::from(ring.epoch()) {
            let is_last = expected + 1 == i64::from(ring.epoch());
            let metadata = metadata.clone().filter(|_| is_last);
            let update = UpdateSession {
                expected_metadata_version: metadata.as_ref().map(|_| *version),
                metadata,
                encryption_key: Some(Blob::new(for_owner.clone()).map_err(too_long)?),
                host_key: Some(Blob::new(sealed.clone()).map_err(too_long)?),
                expected_key_epoch: Some(expected),
                content_epoch: Some(content_epoch),
                ..UpdateSession::default()
            };
            match self.client.update_session(self.session, &update).await {
                Ok(_) => {}
                // The owner's program was faster, and its key is read next.
                Err(error) if error.is(Code::VersionMismatch) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(version) = next.filter(|_| metadata.is_some()) {
            self.said.keep(&given.unwrap_or_default().signed_in((ring.epoch(), version))).await;
        }
        self.take(Held { ring, content_epoch: content_epoch.get(), maker: self.own.public_key() }, sealed);
        Ok(())
    }

    /// What people have given the session, in metadata that the server shows under a key of this epoch.
    async fn given(
        &self,
        (ring, epoch): (&KeyRing, u32),
        (version, sealed): (i64, &str),
    ) -> Result<Option<Given>, Error> {
        let own = self.own.public_key();
        let (session, machine) = (self.session, &self.machine);
        let shown = Shown { session, machine, own: &own, ring, epoch, version, sealed };
        titles::given((&self.client, &self.lists), &shown, self.said.given()).await
    }

    fn metadata(&self, ring: &KeyRing, version: i64, given: Option<&Given>) -> Option<Metadata> {
        self.said.sealed(ring, (self.session, version), given, (self.lists.owner(), &self.own))
    }

    /// Looks at the key and the metadata that the server shows. One that was restored may lack the key, and gets it. A title counts as it
    /// was judged while its signer was listed; and what this machine says of the session is signed again where others have left it out.
    pub(crate) async fn look_at(&self, shown: &Session) -> Result<(), NoKey> {
        let (ring, version, sealed) = (self.ring(), shown.metadata_version, shown.metadata.as_str());
        let at = (ring.epoch(), version);
        if shown.key_epoch < i64::from(ring.epoch()) {
            return self.offer(&Seen::of(shown)).await;
        }
        if shown.key_epoch != i64::from(ring.epoch()) || self.said.has_seen(at, sealed) {
            return Ok(());
        }
        let given = self.given((&ring, ring.epoch()), (version, sealed)).await.map_err(NoKey::List)?;
        if let Some(given) = &given {
            self.said.keep(given).await;
        }
        let own = self.own.public_key();
        // A public page shows the title that this machine has signed.
        let has_title = |body: &str| given.as_ref().is_none_or(|given| given.has_title_of(body));
        let is_said =
            |signed: &SignedMetadata| signed.body_of(&own).is_some_and(|body| signed.key == own || has_title(body));
        if open_metadata(&ring, (self.session, version), sealed).is_ok_and(|signed| is_said(&signed)) {
            self.said.saw(at, sealed);
            return Ok(());
        }
        let Some(next) = version.checked_add(1).filter(|_| self.said.may_sign()) else { return Ok(()) };
        let ring = self.writing_ring().await?;
        // A key that was made meanwhile has its metadata.
        let Some(metadata) = self.metadata(&ring, next, given.as_ref()).filter(|_| ring.epoch() == at.0) else {
            return Ok(());
        };
        let update = UpdateSession {
            metadata: Some(metadata),
            expected_metadata_version: Some(version),
            ..UpdateSession::default()
        };
        match self.client.update_session(self.session, &update).await {
            // Another writer was faster. The next beat looks at the result.
            Err(error) if error.is(Code::VersionMismatch) => return Ok(()),
            changed => drop(changed?),
        }
        self.said.keep(&given.unwrap_or_default().signed_in((ring.epoch(), next))).await;
        Ok(())
    }

    /// A server that shows an older ring does not bring an old key back.
    fn take(&self, new: Held, sealed: String) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if new.ring.epoch() > held.ring.epoch() {
            self.changed.send_replace((new.ring.epoch(), sealed));
            *held = new;
            self.say(None);
        }
    }

    pub(crate) fn changes(&self) -> watch::Receiver<(u32, String)> {
        self.changed.subscribe()
    }

    /// Reads the newest ring from the server, and checks who made it.
    pub(crate) async fn refresh(&self) -> Result<Seen, NoKey> {
        let session = self.client.session(self.session).await?;
        let seen = Seen::of(&session);
        if session.key_epoch <= i64::from(self.ring().epoch()) {
            return Ok(seen);
        }
        let sealed = session.host_key.ok_or(NoKey::NotGiven)?;
        let open = |list: &List| {
            let newest = list.body().content_epoch;
            let opened = open_host_ring(&sealed, &self.boxed, (self.session, &self.machine), newest);
            let (signed, content_epoch) = opened.map_err(|_| NoKey::NotGiven)?;
            let is_own = signed.signer == self.own.public_key();
            if !is_own && !list.device(&signed.signer).is_some_and(|device| device.role.shares_sessions()) {
                return Err(NoKey::Stranger);
            }
            Ok(Held { ring: signed.ring, content_epoch, maker: signed.signer })
        };
        let held = match open(&self.lists.refreshed().await.map_err(NoKey::List)?) {
            Ok(held) => held,
            // Its maker may know a newer list than was asked for a moment ago.
            Err(_) => {
                self.lists.reread().await;
                open(&self.lists.refreshed().await.map_err(NoKey::List)?)?
            }
        };
        self.take(held, sealed);
        Ok(seen)
    }
}

#[cfg(test)]
mod tests;
