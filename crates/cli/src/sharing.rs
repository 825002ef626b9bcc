//! Who gets the key of a session. The server names users; signatures say whom the owner, or an admin of the session, has chosen.

use std::collections::{BTreeMap, HashMap};

use ensemble_client::seal::{Admin, BoxPublicKey, Grant, KeyRing, SealError, SharedRing};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::sessions::{AccessLevel, Session};
use ensemble_types::shares::{Share, ShareLevel, UpdateShare};
use ensemble_types::text::Blob;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::context::{Context, Me};
use crate::devices::{self, List};
use crate::failure::{Failure, Result};
use crate::home::Home;
use crate::print;

/// The users who get the key of a session, and as what.
pub(crate) type Recipients = BTreeMap<UserId, ShareLevel>;

/// What a guest wants to do with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The newest lists of other users, as this command has read and checked them.
#[derive(Default)]
pub(crate) struct People(Mutex<HashMap<UserId, List>>);

impl Me {
    /// The newest device list of a user. The account key that was first seen is remembered, and another one later is refused.
    async fn list_of(&self, context: &Context, user: UserId) -> Result<List> {
        if user == self.id {
            return Ok(self.own.list.clone());
        }
        let mut known = self.people.0.lock().await;
        if let Some(list) = known.get(&user) {
            return Ok(list.clone());
        }
        let account = self.account_of(context, user).await?;
        let list = devices::of_user(context, &self.client, user, &account).await?.ok_or_else(|| {
            Failure::message(format!("{user} has no devices yet: nobody has signed in with a client that makes them."))
        })?;
        known.insert(user, list.clone());
        Ok(list)
    }

    /// The account key of a user: the one that was first seen here.
    async fn account_of(&self, context: &Context, user: UserId) -> Result<String> {
        let (origin, id) = (self.client.origin(), user.to_string());
        let seen = self.client.user(user).await.map_err(|error| {
            if error.is_not_found() {
                Failure::message(format!("There is no user {user}. `ensemble whoami` shows users their own id."))
            } else {
                error.into()
            }
        })?;
        let settings = context.home.settings()?;
        let known = settings.known_users.get(origin).and_then(|users| users.get(&id)).cloned();
        let (first, is_new) = match known {
            Some(key) => (key, false),
            None => (self.pinned_anywhere(user, &seen.public_key).await?, true),
        };
        if first != seen.public_key {
            return Err(Failure::message(format!(
                "The account key of user {id} is not the one that was seen before. Nothing was shared. Ask them for the \
                 fingerprint that `ensemble whoami` shows; if it has really changed, they have another account, and another id."
            )));
        }
        if is_new {
            context.home.change_settings(|settings| {
                settings.known_users.entry(origin.to_owned()).or_default().insert(id, first.clone());
            })?;
        }
        Ok(first)
    }

    /// Checks who gave this user the key of somebody else's session.
    pub(crate) async fn check_grant(&self, context: &Context, session: &Session, why: Use) -> Result<()> {
        let closed = |error| Failure::Seal(format!("The key of session {}", session.id), error);
        let sealed = session.encrypted_key.as_deref().ok_or_else(|| closed(SealError::Format))?;
        let shared = SharedRing::from_text(sealed).map_err(closed)?;
        let signer = shared.signer(session.id, self.id, &self.own.list.body().account);
        let signer = signer.ok_or_else(|| closed(SealError::RingSignature))?;
        let owner = self.list_of(context, session.owner_id).await?;
        let (granted, by) = match shared.admin() {
            None => (Some(signer.clone()), None),
            Some(admin) => (admin.granted_by(session.id), Some(admin)),
        };
        let granted = granted.ok_or_else(|| closed(SealError::RingSignature))?;
        let mut is_current = shares(&owner, &granted);
        if !is_current && !self.client.ever_shared(session.owner_id, &owner.body().account, &granted).await? {
            return Err(stranger(session));
        }
        if let Some(admin) = by {
            let list = self.list_of(context, admin.user).await?;
            let is_known = list.body().account == admin.account();
            let is_listed = shares(&list, &signer);
            if !is_known || !(is_listed || self.client.ever_shared(admin.user, &admin.account(), &signer).await?) {
                return Err(stranger(session));
            }
            is_current &= is_listed;
        }
        let newest = self.own.contents.pair(self.own.contents.epoch()).map_err(closed)?;
        let is_newest = shared.open(&newest, session.id, self.id).is_ok();
        if why == Use::Write && !(is_current && is_newest) {
            return Err(Failure::message(format!(
                "A device was removed since you got the key of session {}, and it may have that key. Nothing was written. Ask its \
                 owner to run `ensemble session rekey {}`.",
                session.reference, session.id
            )));
        }
        Ok(())
    }

    /// The users whom the owner, or an admin of the session, has given the present key.
    pub(crate) async fn recipients(&self, context: &Context, session: &Session, ring: &KeyRing) -> Result<Recipients> {
        let named: Vec<Share> = self.client.shares(session.id).try_collect().await?;
        let mut recipients = Recipients::new();
        let mut by_admins = Vec::new();
        for share in &named {
            match self.granted(context, share, ring).await {
                Ok((level, None)) => drop(recipients.insert(share.user_id, level)),
                Ok((level, Some(admin))) => by_admins.push((share, level, admin)),
                Err(failure) => left_out(share, &failure),
            }
        }
        let admins: Recipients = recipients.clone();
        for (share, level, admin) in by_admins {
            match self.granted_by_admin(context, share, &admin).await {
                Ok(()) if admins.get(&admin.user) == Some(&ShareLevel::Admin) && level != ShareLevel::Admin => {
                    recipients.insert(share.user_id, level);
                }
                Ok(()) => left_out(share, &Failure::message("Who shared it with them is no admin of the session.")),
                Err(failure) => left_out(share, &failure),
            }
        }
        Ok(recipients)
    }

    /// The level that a device of the owner has granted, or that an admin has.
    async fn granted(&self, context: &Context, share: &Share, ring: &KeyRing) -> Result<(ShareLevel, Option<Admin>)> {
        let refused = || Failure::message("No device of yours has shared it with them.");
        let shared = SharedRing::from_text(&share.encrypted_key).map_err(|_| refused())?;
        let account = self.account_of(context, share.user_id).await?;
        let signer = shared.signer(share.session_id, share.user_id, &account).ok_or_else(refused)?;
        // A share that was removed was granted in an earlier epoch.
        if shared.epoch() != ring.epoch() {
            return Err(Failure::message("They were not given the key before this one."));
        }
        match shared.admin() {
            Some(admin) => Ok((shared.level(), Some(admin.clone()))),
            None if shares(&self.own.list, &signer) => Ok((shared.level(), None)),
            None => Err(refused()),
        }
    }

    async fn granted_by_admin(&self, context: &Context, share: &Share, admin: &Admin) -> Result<()> {
        let refused = || Failure::message("No admin of the session has shared it with them.");
        let shared = SharedRing::from_text(&share.encrypted_key).map_err(|_| refused())?;
        let account = self.account_of(context, share.user_id).await?;
        let signer = shared.signer(share.session_id, share.user_id, &account).ok_or_else(refused)?;
        let list = self.list_of(context, admin.user).await?;
        let is_good = list.body().account == admin.account() && shares(&list, &signer);
        if is_good { Ok(()) } else { Err(refused()) }
    }

    /// Seals the ring to these users, and stores it in their shares.
    pub(crate) async fn pass_on(
        &self,
        context: &Context,
        session: &Session,
        ring: &KeyRing,
        recipients: &Recipients,
    ) -> Result<()> {
        for (user, level) in recipients {
            match self.sealed_for(context, session, *user, *level, ring).await {
                Ok(key) => {
                    let update = UpdateShare { encrypted_key: Some(key), access_level: None };
                    match self.client.update_share(session.id, *user, &update).await {
                        // The share was removed in the meantime.
                        Err(error) if error.is_not_found() => {}
                        other => drop(other?),
                    }
                }
                // A user whose key cannot be trusted must not prevent the others from getting theirs.
                Err(failure) => print::note(format!("{user} did not get the new key: {failure}")),
            }
        }
        Ok(())
    }

    /// Seals a session's ring to a user, after verifying the user's devices, with a signature that says who may have it.
    pub(crate) async fn sealed_for(
        &self,
        context: &Context,
        session: &Session,
        recipient: UserId,
        level: ShareLevel,
        ring: &KeyRing,
    ) -> Result<Blob<1, 8_192>> {
        let closed = |error| Failure::Seal(format!("The session's key for user {recipient}"), error);
        let list = self.list_of(context, recipient).await?;
        let key = BoxPublicKey::from_text(&list.body().content_public_key).map_err(closed)?;
        let admin = if session.access_level == AccessLevel::Owner {
            None
        } else {
            let own = session.encrypted_key.as_deref().ok_or_else(|| closed(SealError::Format))?;
            let own = SharedRing::from_text(own).map_err(closed)?;
            Some(own.as_admin(self.id, &self.own.list.body().account).map_err(closed)?)
        };
        let grant = Grant { session: session.id, recipient, account: &list.body().account, level };
        let sealed = SharedRing::seal(ring, &key, grant, &self.key, admin).map_err(closed)?;
        Blob::new(sealed.to_text()).map_err(|_| closed(SealError::TooManyKeys))
    }

    /// Gives the users their keys whom a killed command has left without.
    pub(crate) async fn finish_rekeys(&self, context: &Context) -> Result<()> {
        let unfinished = context.home.settings()?.unfinished_rekeys.remove(self.client.origin()).unwrap_or_default();
        for (session, recipients) in unfinished {
            match self.client.session(session).await {
                Err(error) if error.is_not_found() => {}
                found => {
                    let found = found?;
                    let ring = self.ring(&found)?;
                    self.pass_on(context, &found, &ring, &recipients).await?;
                }
            }
            context.home.end_rekey(self.client.origin(), session)?;
        }
        Ok(())
    }
}

fn shares(list: &List, key: &str) -> bool {
    list.device(key).is_some_and(|device| device.role.shares_sessions())
}

fn stranger(session: &Session) -> Failure {
    Failure::message(format!(
        "The key of session {} was not given to you by a device of its owner, so it was not used. Do not trust this server.",
        session.reference
    ))
}

fn left_out(share: &Share, why: &Failure) {
    print::note(format!(
        "{} does not get the new key: {why} If they are to have it: `ensemble share add {} {}`.",
        share.user_id, share.session_id, share.user_id
    ));
}

const EPOCHS: &str = "epochs.json";

/// The newest key epoch that was used in a session, where it is not the first one.
#[derive(Default, Serialize, Deserialize)]
struct Epochs(BTreeMap<String, BTreeMap<SessionId, u32>>);

impl Home {
    /// The newest epoch in which this computer has written to a session, or given it a key.
    pub(crate) fn known_epoch(&self, origin: &str, session: SessionId) -> Result<u32> {
        let epochs: Epochs = self.read_json(EPOCHS)?.unwrap_or_default();
        Ok(epochs.0.get(origin).and_then(|sessions| sessions.get(&session)).copied().unwrap_or(KeyRing::FIRST_EPOCH))
    }

    pub(crate) fn remember_epoch(&self, origin: &str, session: SessionId, epoch: u32) -> Result<()> {
        if epoch <= self.known_epoch(origin, session)? {
            return Ok(());
        }
        let _lock = self.lock("epochs.lock")?;
        let mut epochs: Epochs = self.read_json(EPOCHS)?.unwrap_or_default();
        let known = epochs.0.entry(origin.to_owned()).or_default().entry(session).or_default();
        *known = epoch.max(*known);
        self.write_json(EPOCHS, &epochs)
    }

    /// Notes who is to get the next key, before there is one: a command that is killed after that is finished by the next one.
    pub(crate) fn begin_rekey(&self, origin: &str, session: SessionId, recipients: &Recipients) -> Result<()> {
        if recipients.is_empty() {
            return Ok(());
        }
        self.change_settings(|settings| {
            let sessions = settings.unfinished_rekeys.entry(origin.to_owned()).or_default();
            sessions.insert(session, recipients.clone());
        })
    }

    pub(crate) fn end_rekey(&self, origin: &str, session: SessionId) -> Result<()> {
        let is_begun = self.settings()?.unfinished_rekeys.get(origin).is_some_and(|some| some.contains_key(&session));
        if !is_begun {
            return Ok(());
        }
        self.change_settings(|settings| {
            if let Some(sessions) = settings.unfinished_rekeys.get_mut(origin) {
                sessions.remove(&session);
            }
        })
    }
}
