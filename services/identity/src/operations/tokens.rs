//! Making, listing and revoking tokens.

use std::time::Duration;

use ensemble_chassis::Caller;
use ensemble_chassis::auth::VoiceToolClaims;
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{GatewaySessionId, MachineId, TokenId, UserId};
use ensemble_types::time::Timestamp;

use super::devices::calling;
use super::signing_keys;
use crate::Identity;
use crate::domain::{CallingDevice, MachineToken};
use crate::error::Error;
use crate::keys::KeyRing;
pub(crate) use crate::store::tokens::After;
use crate::store::tokens::Page;
use crate::store::{accounts, devices, revocations, tokens};

/// No voice session lasts longer.
const VOICE_TOKEN_LASTS: Duration = Duration::from_secs(86_400);

/// Makes a token for a machine. It is returned once and not stored.
pub(crate) async fn create(
    service: &Identity,
    caller: &Caller,
    machine: MachineId,
    seconds: Option<u32>,
) -> Result<(MachineToken, String), Error> {
    let (user, lifetime) = (caller.user, service.rules.lifetimes.machine(seconds)?);
    let record = record(&service.db, caller, machine, lifetime, service.rules.machine_token_limit).await?;
    let token = service.ring.machine_token(&record, caller.device)?;
    tracing::info!(user.id = %user, machine.id = %record.machine, token.id = %record.id, "Made a machine token");
    Ok((record, token))
}

async fn record(
    db: &Db,
    caller: &Caller,
    machine: MachineId,
    lifetime: Duration,
    limit: i64,
) -> Result<MachineToken, Error> {
    let (user, key) = (caller.user, caller.device);
    db.write("create a machine token", move |tx| {
        // The lock makes concurrent requests of one account count each other's tokens.
        let (_, device) = calling(tx, user, key)?;
        let created_at = tx.now()?;
        if tokens::count_unexpired(tx, user, created_at)? >= limit {
            return Err(Error::TooManyTokens);
        }
        let expires_at = created_at.plus(lifetime);
        let (id, machine) = (TokenId::generate(), machine.clone());
        let token = MachineToken { id, user, machine, created_at, expires_at, by_key: false };
        tokens::insert(tx, &token)?;
        if let CallingDevice::Listed(device) = device {
            devices::gave_token(tx, &device, expires_at)?;
        }
        Ok(token)
    })
    .await
}

/// The token with which the agent of a voice session reads for its user. It is not stored: the gateway, which verifies it, knows when
/// the session has ended.
pub(crate) async fn mint_for_voice(
    db: &Db,
    ring: &KeyRing,
    user: UserId,
    voice_session: GatewaySessionId,
    until: Timestamp,
) -> Result<String, Error> {
    let now = db
        .read("read an account for its voice", move |c| {
            accounts::find(c, user)?.ok_or(Error::AccountNotFound)?;
            Ok::<_, Error>(c.now()?)
        })
        .await?;
    let claims = VoiceToolClaims::new(user, voice_session, now, until.min(now.plus(VOICE_TOKEN_LASTS)));
    Ok(ring.voice_token(&claims)?)
}

/// The valid machine tokens of an account, newest first.
pub(crate) async fn page(db: &Db, user: UserId, after: After, limit: u32) -> Result<Page, StoreError> {
    db.read("list machine tokens", move |c| tokens::page(c, user, after, limit)).await
}

/// Revokes a machine token of the caller's account, or the token that the caller uses.
pub(crate) async fn revoke(service: &Identity, caller: &Caller, id: TokenId) -> Result<(), Error> {
    if id == caller.token {
        revoke_own(&service.db, id, caller.expires_at).await?;
    } else {
        revoke_machine_token(&service.db, caller.user, id).await?;
    }
    tracing::info!(user.id = %caller.user, token.id = %id, "Revoked a token");
    // This replica refuses the token from now on. The others load the revocation when the commit notifies them.
    if let Err(error) = signing_keys::refresh(&service.db, &service.ring).await {
        tracing::warn!(%error, "The keys could not be loaded after a revocation");
    }
    Ok(())
}

/// Users' tokens are not stored, so the revocation is all there is to write.
async fn revoke_own(db: &Db, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
    db.write("revoke a token", move |tx| revocations::insert(tx, id, expires_at)).await
}

async fn revoke_machine_token(db: &Db, user: UserId, id: TokenId) -> Result<(), Error> {
    db.write("revoke a machine token", move |tx| {
        let expires_at = tokens::revoke(tx, user, id)?.ok_or(Error::TokenNotFound)?;
        Ok(revocations::insert(tx, id, expires_at)?)
    })
    .await
}

/// Revokes the tokens of a deleted machine that were made until then. Returns how many were valid.
pub(crate) async fn revoke_of_machine(
    db: &Db,
    user: UserId,
    machine: MachineId,
    made_until: Timestamp,
) -> Result<usize, StoreError> {
    db.write("revoke a machine's tokens", move |tx| {
        // Its key could ask for new ones.
        devices::machine_deleted(tx, user, &machine, made_until)?;
        let revoked = tokens::revoke_of_machine(tx, user, &machine, made_until)?;
        for (id, expires_at) in &revoked {
            revocations::insert(tx, *id, *expires_at)?;
        }
        Ok(revoked.len())
    })
    .await
}
