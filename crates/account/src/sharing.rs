//! Who gets the key of a session. The server names users; signatures say whom the owner, or an admin of the session, has chosen.

mod giving;
mod kept;
mod people;
mod renewed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use ensemble_protocol::seal::{Admin, BoxPublicKey, Grant, KeyRing, SealError, SharedRing};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::runs::Provider;
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::{Share, ShareLevel, UpdateShare};
use ensemble_types::text::Blob;
use futures_util::TryStreamExt;

use crate::account::Account;
use crate::devices::{List, seconds};
use crate::error::{Error, Result};
use crate::known_sessions::Unfinished;
use crate::notice::Notice;
use crate::sessions::{Titles, host_of};

pub use self::people::{People, has_fingerprint};
pub(crate) use self::renewed::Guests;

/// The users who get the key of a session, and as what.
pub type Recipients = BTreeMap<UserId, ShareLevel>;

/// What a guest wants to do with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
}

/// What changes of the people of a session while it gets a new key.
#[derive(Default)]
pub struct Members {
    /// Those who lose access.
    pub without: BTreeSet<UserId>,
    /// Those whose level changes.
    pub levels: Recipients,
    /// Those who have removed a device since they got the key.
    pub renewed: BTreeSet<UserId>,
    /// Devices that were just removed. The people to whom they have given the key keep it.
    pub by_removed: BTreeSet<String>,
}

impl Members {
    pub fn without(user: UserId) -> Self {
        Self { without: BTreeSet::from([user]), ..Self::default() }
    }

    pub fn with_level(user: UserId, level: ShareLevel) -> Self {
        Self { levels: Recipients::from([(user, level)]), ..Self::default() }
    }

    pub(crate) fn given_by(removed: &BTreeSet<String>) -> Self {
        Self { by_removed: removed.clone(), ..Self::default() }
    }

    pub fn renewed(users: BTreeSet<UserId>) -> Self {
        Self { renewed: users, ..Self::default() }
    }

    /// Whether no user loses access, and no level changes.
    pub fn is_empty(&self) -> bool {
        self.without.is_empty() && self.levels.is_empty()
    }
}

impl Account {
    /// Checks who gave this user the key of another user's session. Returns whether no device that was removed since can have it.
    pub(crate) async fn check_grant(&self, session: &Session, why: Use) -> Result<bool> {
        let closed = |error| Error::Seal(format!("The key of session {}", session.id), error);
        let sealed = session.encrypted_key.as_deref().ok_or_else(|| closed(SealError::Format))?;
        let shared = SharedRing::from_text(sealed).map_err(closed)?;
        let signer = shared.signer(session.id, self.id, self.owner().account);
        let signer = signer.ok_or_else(|| closed(SealError::RingSignature))?;
        let owner = self.list_of(session.owner_id).await?;
        let (granted, by) = match shared.admin() {
            None => (Some(signer.clone()), None),
            Some(admin) => (admin.granted_by(session.id), Some(admin)),
        };
        let granted = granted.ok_or_else(|| closed(SealError::RingSignature))?;
        let mut is_current = shares(&owner, &granted);
        if !is_current && !self.client.ever_shared(session.owner_id, &owner.body().account, &granted).await? {
            return Err(from_stranger(session));
        }
        if let Some(admin) = by {
            // With the next key the owner grants it directly. An admin of an earlier epoch may have lost that.
            if admin.epoch() != shared.epoch() {
                return Err(from_stranger(session));
            }
            let list = self.list_of(admin.user).await?;
            let is_known = list.body().account == admin.account();
            let is_listed = shares(&list, &signer);
            if !is_known || !(is_listed || self.client.ever_shared(admin.user, &admin.account(), &signer).await?) {
                return Err(from_stranger(session));
            }
            is_current &= is_listed;
        }
        let own = self.own();
        let newest = own.contents.pair(own.contents.epoch()).map_err(closed)?;
        let is_newest = shared.open(&newest, (session.id, self.id), host_of(session)).is_ok();
        // Who granted it knew an older list of the owner than there is: a device that was removed since may have the key.
        is_current &= shared.content_epoch() >= owner.body().content_epoch;
        // A machine that was removed keeps the key that it had.
        let is_listed = |host| owner.body().devices.iter().any(|device| device.machine_id.as_ref() == Some(host));
        if why == Use::Write && session.hosted && !host_of(session).is_some_and(is_listed) {
            return Err(Error::MachineGone(session.reference));
        }
        if why == Use::Write && !(is_current && is_newest) {
            return Err(Error::StaleKey { reference: session.reference, session: session.id });
        }
        Ok(is_current && is_newest)
    }

    /// The users whom the owner, or an admin of the session, has given the present key.
    ///
    /// # Errors
    /// It cannot be found out now. A user who is named without a good signature is left out, and named.
    pub(crate) async fn recipients(&self, session: &Session, ring: &KeyRing, members: &Members) -> Result<Recipients> {
        let removed = self.home.removed_shares(self.place(), session.id)?;
        let known = self.home.known_session(self.place(), session.id)?;
        let counts = ring.floor().max(known.floor)..=ring.epoch().max(known.epoch);
        // A user who was to get this key, and has not got it yet, has the grant of an earlier one.
        let unfinished = self.home.unfinished(self.place(), session.id)?;
        let unfinished = unfinished.and_then(|unfinished| unfinished.of(ring));
        let waiting = unfinished.map(|unfinished| unfinished.recipients).unwrap_or_default();
        let named: Vec<Share> = self.client.shares(session.id).try_collect().await?;
        let is_gone = |share: &&Share| removed.contains(&share.user_id) || members.without.contains(&share.user_id);
        let mut recipients = Recipients::new();
        let mut by_admins = Vec::new();
        for share in named.iter().filter(|share| !is_gone(share)) {
            if !known.may_have_next(ring, share.user_id) {
                let why = Error::NotGranted("They did not have the key that this device has used.");
                self.left_out(session, share.user_id, why);
                continue;
            }
            match self.granted(share, &counts, members).await {
                Ok((level, None)) => drop(recipients.insert(share.user_id, level)),
                Ok((level, Some(admin))) => by_admins.push((share, level, admin)),
                // No user loses access because of a connection.
                Err(failure @ Error::Client(_)) => return Err(failure),
                Err(failure) => match waiting.get(&share.user_id) {
                    Some(level) => drop(recipients.insert(share.user_id, *level)),
                    None => self.left_out(session, share.user_id, failure),
                },
            }
        }
        for user in known.people_of_lost(ring) {
            let is_named = named.iter().any(|share| share.user_id == user);
            if !is_named && !removed.contains(&user) && !members.without.contains(&user) {
                self.left_out(session, user, Error::NotGranted("The server has lost their share."));
            }
        }
        let admins: Recipients = recipients.clone();
        for (share, level, admin) in by_admins {
            match self.granted_by_admin(share, &admin).await {
                Ok(()) if admins.get(&admin.user) == Some(&ShareLevel::Admin) && level != ShareLevel::Admin => {
                    recipients.insert(share.user_id, level);
                }
                Ok(()) => {
                    let why = Error::NotGranted("Who shared it with them is no admin of the session.");
                    self.left_out(session, share.user_id, why);
                }
                Err(failure @ Error::Client(_)) => return Err(failure),
                Err(failure) => self.left_out(session, share.user_id, failure),
            }
        }
        for (user, level) in &members.levels {
            let known = recipients.get_mut(user).ok_or(Error::NotShared(*user))?;
            *known = *level;
        }
        Ok(recipients)
    }

    /// The level that a device of the owner has granted, or that an admin has.
    async fn granted(
        &self,
        share: &Share,
        counts: &RangeInclusive<u32>,
        members: &Members,
    ) -> Result<(ShareLevel, Option<Admin>)> {
        let refused = || Error::NotGranted("No device of yours has shared it with them.");
        let shared = SharedRing::from_text(&share.encrypted_key).map_err(|_| refused())?;
        let account = self.account_of(share.user_id).await?;
        let signer = shared.signer(share.session_id, share.user_id, &account).ok_or_else(refused)?;
        // A share that was removed was granted before a person's device made a new key.
        if !counts.contains(&shared.epoch()) {
            return Err(Error::NotGranted("They were not given the key before this one."));
        }
        match shared.admin() {
            Some(admin) => Ok((shared.level(), Some(admin.clone()))),
            None if shares(&self.own().list, &signer) || members.by_removed.contains(&signer) => {
                Ok((shared.level(), None))
            }
            None => Err(refused()),
        }
    }

    async fn granted_by_admin(&self, share: &Share, admin: &Admin) -> Result<()> {
        let refused = || Error::NotGranted("No admin of the session has shared it with them.");
        let shared = SharedRing::from_text(&share.encrypted_key).map_err(|_| refused())?;
        let account = self.account_of(share.user_id).await?;
        let signer = shared.signer(share.session_id, share.user_id, &account).ok_or_else(refused)?;
        let list = self.list_of(admin.user).await?;
        let is_good = list.body().account == admin.account() && shares(&list, &signer);
        if is_good { Ok(()) } else { Err(refused()) }
    }

    /// The session of `ensemble demo` is for its owner alone.
    pub(crate) async fn refuse_demo(&self, session: &Session) -> Result<()> {
        let is_owned = session.hosted && session.access_level == AccessLevel::Owner;
        if is_owned && Titles::of(self)?.title(session).await.agent() == Some(Provider::DEMO) {
            return Err(Error::Demo(session.reference));
        }
        Ok(())
    }

    /// Seals the ring to these users, and stores it in their shares.
    pub(crate) async fn pass_on(&self, session: &Session, ring: &KeyRing, recipients: &Recipients) -> Result<()> {
        let mut failed = None;
        for (user, level) in recipients {
            match self.sealed_for(session, *user, *level, ring).await {
                Ok((key, epoch)) => {
                    let update =
                        UpdateShare { encrypted_key: Some(key), access_level: None, content_epoch: Some(epoch) };
                    match self.client.update_share(session.id, *user, &update).await {
                        // The share was removed in the meantime.
                        Err(error) if error.is_not_found() => {}
                        other => failed = failed.or(other.err().map(Error::from)),
                    }
                }
                // They are tried again with the next command.
                Err(failure @ Error::Client(_)) => failed = failed.or(Some(failure)),
                // A user whose key cannot be trusted must not prevent the others from getting theirs.
                Err(why) => self.say(Notice::KeyNotGiven { user: *user, why }),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Seals a session's ring to a user, after verifying the user's devices, with a signature that says who may have it. Returns the
    /// user's content epoch, too. The ring must come from [`Account::writable`] or be a new one: a removed device knows an older one.
    pub(crate) async fn sealed_for(
        &self,
        session: &Session,
        recipient: UserId,
        level: ShareLevel,
        ring: &KeyRing,
    ) -> Result<(Blob<1, 8_192>, ContentEpoch)> {
        let of_owner = if session.access_level == AccessLevel::Owner {
            self.own().list.body().content_epoch
        } else {
            self.list_of(session.owner_id).await?.body().content_epoch
        };
        self.sealed_at(session, (recipient, level), (ring, of_owner)).await
    }

    /// The same with the content epoch of the owner that the grant names.
    pub(super) async fn sealed_at(
        &self,
        session: &Session,
        (recipient, level): (UserId, ShareLevel),
        (ring, of_owner): (&KeyRing, u32),
    ) -> Result<(Blob<1, 8_192>, ContentEpoch)> {
        let closed = |error| Error::Seal(format!("The session's key for user {recipient}"), error);
        let list = self.list_of(recipient).await?;
        let key = BoxPublicKey::from_text(&list.body().content_public_key).map_err(closed)?;
        let admin = if session.access_level == AccessLevel::Owner {
            None
        } else {
            let own = session.encrypted_key.as_deref().ok_or_else(|| closed(SealError::Format))?;
            let own = SharedRing::from_text(own).map_err(closed)?;
            Some(own.as_admin(self.id, self.owner().account).map_err(closed)?)
        };
        let account = &list.body().account;
        let recipient_epoch = list.body().content_epoch;
        let grant = Grant { session: session.id, recipient, account, level, content_epoch: of_owner, recipient_epoch };
        let sealed = SharedRing::seal(ring, &key, (grant, host_of(session)), &self.key, admin).map_err(closed)?;
        let epoch = ContentEpoch::new(recipient_epoch).map_err(|_| closed(SealError::Format))?;
        Ok((Blob::new(sealed.to_text()).map_err(|_| closed(SealError::TooManyKeys))?, epoch))
    }

    /// Gives users the keys that a killed command has not given them.
    pub(crate) async fn finish_rekeys(&self) -> Result<()> {
        let unfinished = self.home.settings()?.unfinished_rekeys.remove(self.place()).unwrap_or_default();
        let mut failed = None;
        for id in unfinished.into_keys() {
            failed = failed.or(self.finish_rekey(id).await.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives sessions a new key from which a command has removed a user that has ended before.
    pub(crate) async fn finish_share_removals(&self) -> Result<()> {
        let removed = self.home.settings()?.removed_shares.remove(self.place()).unwrap_or_default();
        let mut failed = None;
        for id in removed.into_keys() {
            failed = failed.or(self.finish_share_removal(id).await.err());
        }
        failed.map_or(Ok(()), Err)
    }

    async fn finish_rekey(&self, id: SessionId) -> Result<()> {
        let lock = self.home.lock_keys().await?;
        // As it is now: another command may have finished it meanwhile, or begun another one.
        let Some(unfinished) = self.home.unfinished(self.place(), id)? else { return Ok(()) };
        let Some(session) = self.still_there(id).await? else { return Ok(()) };
        let (session, ring, known) = self.newest(session).await?;
        if known.lost(&ring) > 0 {
            return self.rekey_locked(session, &Members::default(), false, &lock).await.map(drop);
        }
        // Another ring was made by another program, which has given it to the people.
        if let Some(Unfinished { mut recipients, .. }) = unfinished.of(&ring) {
            // A device that was removed since has it: the people get the next one.
            if self.due(&session)?.is_some() {
                return self.rekey_locked(session, &Members::default(), false, &lock).await.map(drop);
            }
            let removed = self.home.removed_shares(self.place(), id)?;
            recipients.retain(|user, _| !removed.contains(user));
            self.pass_on(&session, &ring, &recipients).await?;
        }
        self.home.end_rekey(self.place(), id)
    }

    async fn finish_share_removal(&self, id: SessionId) -> Result<()> {
        let lock = self.home.lock_keys().await?;
        // As it is now: another command may have finished it meanwhile.
        if self.home.removed_shares(self.place(), id)?.is_empty() {
            return Ok(());
        }
        let Some(session) = self.still_there(id).await? else { return Ok(()) };
        self.rekey_locked(session, &Members::default(), false, &lock).await.map(drop)
    }

    fn left_out(&self, session: &Session, user: UserId, why: Error) {
        self.say(Notice::LeftOut { user, session: session.id, why });
    }

    /// A session of which something is not finished, unless the server calls it missing. That ends nothing here.
    pub(crate) async fn still_there(&self, id: SessionId) -> Result<Option<Session>> {
        let place = self.place();
        if self.home.is_missing(place, id, seconds())? {
            return Ok(None);
        }
        match self.session(id).await {
            Ok(session) => self.home.end_missing(place, id).map(|()| Some(session)),
            Err(Error::Client(error)) if error.is_not_found() => {
                self.home.note_missing(place, id, seconds())?;
                self.say(Notice::SessionMissing(id));
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Whether a device in this list may give people sessions.
pub(crate) fn shares(list: &List, key: &str) -> bool {
    list.device(key).is_some_and(|device| device.role.shares_sessions())
}

fn from_stranger(session: &Session) -> Error {
    Error::KeyFromStranger(session.reference)
}
