//! Invitations: someone claims one with its secret, and a device of its maker answers.

use ensemble_chassis::Caller;
use ensemble_protocol::lists::{decode, is_claim};
use ensemble_protocol::seal::InviteCode;
use ensemble_store_kit::{Conn, Db, StoreError, hints};
use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::ids::UserId;
use ensemble_types::invites::{ClaimInvite, CreateInvite, InviteClaim};
use ensemble_types::time::Timestamp;
use rand::RngCore;
use sha2::{Digest, Sha256};

use super::devices::calling;
use crate::Identity;
use crate::domain::{DAY, INVITES_A_DAY, Invite, InviteId, InviteStep, MOST_OPEN_INVITES, encode};
use crate::error::Error;
use crate::keys::Vault;
pub(crate) use crate::store::invites::topic;
use crate::store::{accounts, device_lists, invites};

pub(crate) async fn create(db: &Db, caller: &Caller, body: CreateInvite) -> Result<Invite, Error> {
    let (user, key, id) = (caller.user, caller.device, new_id());
    let admission = decode(&body.admission).ok_or(Error::BadField("/admission", "must be 32 bytes in base64url"))?;
    db.write("make an invitation", move |tx| {
        // The lock makes concurrent requests of one account count each other's invitations.
        calling(tx, user, key)?;
        if invites::count_open(tx, user)? >= MOST_OPEN_INVITES {
            return Err(Error::TooManyInvites);
        }
        let now = tx.now()?;
        if invites::count_since(tx, user, now.minus(DAY))? >= INVITES_A_DAY {
            return Err(Error::TooManyInvitesToday);
        }
        let invite = Invite::new(id, Some(user), admission, now, body.expires_at)
            .ok_or(Error::BadField("/expiresAt", "must be in the next seven days"))?;
        invites::insert(tx, &invite)?;
        Ok(invite)
    })
    .await
}

/// The caller's invitations, the newest first, and the time in the database.
pub(crate) async fn list(db: &Db, caller: &Caller) -> Result<(Vec<Invite>, Timestamp), Error> {
    let user = caller.user;
    db.read("list invitations", move |c| Ok((invites::of_account(c, user)?, c.now()?))).await
}

/// An invitation, and the time in the database.
pub(crate) async fn read(db: &Db, id: InviteId) -> Result<(Invite, Timestamp), Error> {
    db.read("read an invitation", move |c| {
        let invite = invites::find(c, &id)?.ok_or(Error::InviteNotFound)?;
        Ok((invite, c.now()?))
    })
    .await
}

/// The caller claims it. Again is the same. The signature shows that a device of the account does so here, and which list its people see.
pub(crate) async fn claim(
    service: &Identity,
    caller: &Caller,
    id: InviteId,
    claim: ClaimInvite,
) -> Result<(Invite, Timestamp), Error> {
    let (user, key) = (caller.user, caller.device);
    let origins: Vec<String> = service.rules.origins.iter().map(ToString::to_string).collect();
    let claimed = move |tx: &mut Conn| {
        let (account, _) = calling(tx, user, key)?;
        let invite = invites::lock(tx, &id)?.ok_or(Error::InviteNotFound)?;
        if invite.user == Some(user) {
            return Err(Error::OwnInvite);
        }
        let list = device_lists::newest(tx, user)?.ok_or(Error::NoDeviceList)?;
        let version = device_lists::newest_versions(tx, &[user])?.first().map(|(_, version)| *version);
        if version != Some(claim.version) || encode(&Sha256::digest(list.body.as_bytes())) != *claim.digest {
            return Err(Error::BadField("/digest", "must be of the newest device list of your account, as version is"));
        }
        let (device, account) = (encode(&key.map_or(account.public_key, |key| key.0)), encode(&account.public_key));
        let origins = origins.iter().map(String::as_str);
        if !is_claim(origins, &encode(&id), (user, &account), &device, &claim) {
            let rule = "must be by your device over the text of this claim, at an address of this server";
            return Err(Error::BadField("/signature", rule));
        }
        let claim = InviteClaim { claim: claim.clone(), user_id: user, account, key: device };
        let now = tx.now()?;
        if invite.claim.as_ref().is_some_and(|first| first.user_id == user) {
            return Ok((invite, now));
        }
        Ok(changed(tx, invite.claim(claim, now)?, now)?)
    };
    service.db.write("claim an invitation", claimed).await
}

/// A device of its maker answers the claim.
pub(crate) async fn answer(
    db: &Db,
    caller: &Caller,
    id: InviteId,
    answer: String,
) -> Result<(Invite, Timestamp), Error> {
    let caller = caller.clone();
    db.write("answer an invitation", move |tx| {
        let (invite, now) = own(tx, &caller, &id)?;
        Ok(changed(tx, invite.answer(answer.clone(), now)?, now)?)
    })
    .await
}

/// A device of its maker ends it.
pub(crate) async fn end(db: &Db, caller: &Caller, id: InviteId) -> Result<(Invite, Timestamp), Error> {
    let caller = caller.clone();
    db.write("end an invitation", move |tx| {
        let (invite, now) = own(tx, &caller, &id)?;
        Ok(changed(tx, invite.end(now)?, now)?)
    })
    .await
}

fn own(tx: &mut Conn, caller: &Caller, id: &InviteId) -> Result<(Invite, Timestamp), Error> {
    calling(tx, caller.user, caller.device)?;
    let invite = invites::lock(tx, id)?.filter(|invite| invite.user == Some(caller.user));
    Ok((invite.ok_or(Error::InviteNotFound)?, tx.now()?))
}

/// Keeps the next step of an invitation, and gives its maker's readers a hint.
fn changed(tx: &mut Conn, invite: Invite, now: Timestamp) -> Result<(Invite, Timestamp), StoreError> {
    invites::update(tx, &invite)?;
    if let Some(user) = invite.user {
        let (kind, id, revision) = (HintKind::Invite, encode(&invite.id), now.micros());
        tx.notify(hints::topic(&AccountHint { user, machine: None, kind, id, revision }));
    }
    Ok((invite, now))
}

/// Whether this invitation makes an account now. It makes no other one then.
pub(super) fn admit(tx: &mut Conn, invite: Option<(InviteId, [u8; 32])>, now: Timestamp) -> Result<bool, StoreError> {
    let Some((id, admission)) = invite else { return Ok(false) };
    let admitted = invites::lock(tx, &id)?.and_then(|invite| invite.admit(&admission, now));
    let Some(admitted) = admitted else { return Ok(false) };
    // Where an account was made meanwhile, it is of no use to a second person.
    if admitted.user.is_none() && accounts::is_any(tx)? {
        return Ok(false);
    }
    invites::update(tx, &admitted)?;
    Ok(true)
}

/// The address of the invitation for the first account, if there is none. Every replica gives the same one, also after a restart, until it is
/// used or expires.
pub(crate) async fn for_first_account(db: &Db, vault: &Vault, base: &str) -> Result<Option<InviteCode>, Error> {
    let (base, vault) = (base.to_owned(), vault.clone());
    let code_of = move |id: &InviteId| {
        let id = encode(id);
        let secret = vault.derived(&format!("ensemble-first-account-v1\n{id}")).ok()?;
        let digest = decode(&InviteCode::admission_digest(&secret).ok()?)?;
        Some((InviteCode::with_secret(&base, &id, secret), digest))
    };
    db.write("invite the first user", move |tx| {
        if accounts::is_any(tx)? {
            invites::delete_first(tx)?;
            return Ok(None);
        }
        invites::lock_first(tx)?;
        let open = invites::find_first(tx)?;
        let known = open.and_then(|invite| Some((code_of(&invite.id)?, invite.admission)));
        if let Some(((code, digest), admission)) = known
            && digest == admission
        {
            return Ok(Some(code));
        }
        // The key-encryption key was replaced, or the time is over.
        invites::delete_first(tx)?;
        let (id, now) = (new_id(), tx.now()?);
        let Some((code, digest)) = code_of(&id) else { return Ok(None) };
        if let Some(invite) = Invite::first(id, digest, now) {
            invites::insert(tx, &invite)?;
        }
        Ok::<_, Error>(Some(code))
    })
    .await
}

/// Whether the server has no account, and this invitation makes the first one.
pub(crate) async fn is_first(db: &Db, id: &str) -> Result<bool, StoreError> {
    let id = id.to_owned();
    db.read("look for the first invitation", move |c| {
        let first = invites::find_first(c)?;
        Ok(first.is_some_and(|invite| encode(&invite.id) == id) && !accounts::is_any(c)?)
    })
    .await
}

/// Ends those of an account that can still be used: a device that was removed knows their secrets.
pub(super) fn end_all(tx: &mut Conn, user: UserId, now: Timestamp) -> Result<(), StoreError> {
    for invite in invites::of_account(tx, user)? {
        if matches!(invite.step, InviteStep::Open | InviteStep::Claimed)
            && let Ok(ended) = invite.end(now)
        {
            changed(tx, ended, now)?;
        }
    }
    Ok(())
}

fn new_id() -> InviteId {
    let mut id = InviteId::default();
    rand::rngs::OsRng.fill_bytes(&mut id);
    id
}
