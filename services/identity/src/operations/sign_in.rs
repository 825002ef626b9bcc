//! Signing in: a challenge is given, and spent by the sign-in that brings it back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ensemble_chassis::auth::DeviceKey;
use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::devices::Role;
use ensemble_types::ids::{TokenId, UserId};
use ensemble_types::time::Timestamp;
use rand::RngCore;

use super::devices::lock_key;
use super::invites;
use crate::Identity;
use crate::domain::{Device, InviteId, MachineToken, Proof, Registration, TokenLifetimes};
use crate::error::Error;
use crate::store::{accounts, challenges, devices, tokens};

/// A challenge that was given to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) bytes: [u8; 32],
    pub(crate) expires_at: Timestamp,
}

/// How a sign-in ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    SignedIn {
        user: UserId,
        is_new: bool,
        now: Timestamp,
        token: TokenKind,
    },
    /// The challenge or the proof is not valid.
    Refused,
    /// The proof is valid, and its key is no longer in the list of its account.
    DeviceRemoved,
    /// The proof is valid, but there is no such account and the client wants none.
    Unknown,
    /// The proof is valid, but there is no such account and none may be made.
    NoAccount(Registration),
}

/// What a key may do, and so which token it gets.
#[derive(Clone, Debug)]
pub(crate) enum TokenKind {
    User,
    Recovery,
    Machine(MachineToken),
}

/// A new token.
pub(crate) struct UserToken {
    pub(crate) user: UserId,
    pub(crate) is_new: bool,
    pub(crate) token: String,
    pub(crate) expires_at: Timestamp,
}

/// About how many challenges are open. A worker counts them, so that giving one does not have to.
#[derive(Debug, Default)]
pub(crate) struct OpenChallenges {
    all: AtomicI64,
    /// When each of the last ones went to a caller whom a proxy carries.
    of_proxy: Mutex<VecDeque<Instant>>,
}

impl OpenChallenges {
    pub(crate) fn get(&self) -> i64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Whether one more may go to a caller whom a proxy carries. These have half of all places and leave the others theirs. One that
    /// is used keeps its place until its time is over.
    fn has_place_for_proxy(&self, most: i64, lifetime: Duration) -> bool {
        let (now, mut given) = (Instant::now(), self.of_proxy.lock().unwrap_or_else(PoisonError::into_inner));
        while given.front().is_some_and(|at| now.duration_since(*at) >= lifetime) {
            given.pop_front();
        }
        let has_place = i64::try_from(given.len()).is_ok_and(|given| given < most / 2);
        if has_place {
            given.push_back(now);
        }
        has_place
    }
}

pub(crate) async fn give_challenge(service: &Identity, is_of_proxy: bool) -> Result<Challenge, Error> {
    let (open, limit, lifetime) =
        (&service.challenges, service.rules.challenge_limit, service.rules.challenge_lifetime);
    if open.get() >= limit || (is_of_proxy && !open.has_place_for_proxy(limit, lifetime)) {
        return Err(Error::TooManyChallenges);
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    let insert = move |tx: &mut Conn| {
        let expires_at = tx.now()?.plus(lifetime);
        challenges::insert(tx, &bytes, expires_at)?;
        Ok::<_, StoreError>(Challenge { bytes, expires_at })
    };
    let challenge = service.db.write("give a challenge", insert).await?;
    open.all.fetch_add(1, Ordering::Relaxed);
    Ok(challenge)
}

/// Counts the open challenges.
pub(crate) async fn count_challenges(db: &Db, open: &OpenChallenges) -> Result<(), StoreError> {
    open.all.store(db.read("count challenges", challenges::count).await?, Ordering::Relaxed);
    Ok(())
}

/// Spends the challenge and gives a token if the proof is valid. An account that is missing is made as the client wants and
/// `registration` allows.
pub(crate) async fn sign_in(service: &Identity, proof: Proof, registration: Registration) -> Result<UserToken, Error> {
    let challenge = proof.challenge.ok_or(Error::InvalidProof)?;
    let is_valid = proof.check(&service.rules.origins).is_ok();
    let (key, lifetimes) = (proof.public_key, service.rules.lifetimes);
    let missing = match (proof.creates, registration) {
        (false, _) => Missing::Refuse,
        (true, Registration::Invited) => Missing::Admit(proof.invite),
        (true, registration) => Missing::Make(registration),
    };
    let spend = move |tx: &mut Conn| {
        // An invalid proof spends its challenge too, so that a challenge allows one try.
        if !challenges::take(tx, &challenge)? || !is_valid {
            return Ok(Outcome::Refused);
        }
        match devices::lock_by_key(tx, &key)? {
            Some(device) => of_device(tx, device, lifetimes),
            None => of_account(tx, &key, missing, lifetimes),
        }
    };
    let outcome: Outcome = service.db.write("sign in", spend).await.map_err(|error: StoreError| Error::from(error))?;
    service.metrics.signed_in(&outcome);
    let (user, is_new, now, kind) = match outcome {
        Outcome::SignedIn { user, is_new, now, token } => (user, is_new, now, token),
        Outcome::Refused => return Err(Error::InvalidProof),
        Outcome::DeviceRemoved => return Err(Error::DeviceRemoved),
        Outcome::Unknown => return Err(Error::UnknownKey),
        Outcome::NoAccount(registration) => return Err(Error::NoAccount(registration)),
    };
    let device = DeviceKey(key);
    let (token, expires_at) = match kind {
        TokenKind::User => service.ring.user_token(user, device, (now, lifetimes.user))?,
        TokenKind::Recovery => service.ring.recovery_token(user, device, (now, lifetimes.recovery()))?,
        TokenKind::Machine(token) => (service.ring.machine_token(&token, Some(device))?, token.expires_at),
    };
    tracing::info!(user.id = %user, is_new, "Signed in");
    Ok(UserToken { user, is_new, token, expires_at })
}

/// What happens when no account has the key.
#[derive(Clone, Copy)]
enum Missing {
    Make(Registration),
    /// An invitation makes it.
    Admit(Option<(InviteId, [u8; 32])>),
    Refuse,
}

/// The row is locked: a removal comes before this sign-in, or it knows of the token.
fn of_device(tx: &mut Conn, device: Device, lifetimes: TokenLifetimes) -> Result<Outcome, StoreError> {
    if device.is_removed || device.is_machine_deleted {
        return Ok(Outcome::DeviceRemoved);
    }
    let (now, user) = (tx.now()?, device.user);
    let (token, expires_at) = match (&device.machine, device.role) {
        // A machine can sign in again at any time, so its token lives as long as a user's.
        (Some(machine), _) => {
            let (id, machine, expires_at) = (TokenId::generate(), machine.clone(), now.plus(lifetimes.user));
            let token = MachineToken { id, user, machine, created_at: now, expires_at, by_key: true };
            tokens::insert(tx, &token)?;
            (TokenKind::Machine(token), expires_at)
        }
        (None, Role::Recovery) => (TokenKind::Recovery, now.plus(lifetimes.recovery())),
        (None, _) => (TokenKind::User, now.plus(lifetimes.user)),
    };
    devices::seen(tx, &device, now)?;
    devices::gave_token(tx, &device, expires_at)?;
    Ok(Outcome::SignedIn { user, is_new: false, now, token })
}

/// A key that was never in a list: the account key of an account that has none, or a new account.
fn of_account(
    tx: &mut Conn,
    key: &[u8; 32],
    missing: Missing,
    lifetimes: TokenLifetimes,
) -> Result<Outcome, StoreError> {
    let now = tx.now()?;
    let signed_in = |user, is_new| Outcome::SignedIn { user, is_new, now, token: TokenKind::User };
    if let Some(user) = accounts::find_by_key(tx, key)? {
        return Ok(signed_in(user, false));
    }
    match missing {
        Missing::Refuse => return Ok(Outcome::Unknown),
        Missing::Make(Registration::Open) | Missing::Admit(_) => {}
        Missing::Make(closed) => return Ok(Outcome::NoAccount(closed)),
    }
    // A key that is in a list never makes an account, also when it is listed at this moment.
    lock_key(tx, key)?;
    if let Some(device) = devices::lock_by_key(tx, key)? {
        return of_device(tx, device, lifetimes);
    }
    // Of requests with one invitation at once, one makes an account.
    if let Missing::Admit(invite) = missing {
        // An earlier request with the same key may have made it while this one waited.
        if let Some(user) = accounts::find_by_key(tx, key)? {
            return Ok(signed_in(user, false));
        }
        if !invites::admit(tx, invite, now)? {
            return Ok(Outcome::NoAccount(Registration::Invited));
        }
    }
    if let Some(user) = accounts::insert(tx, key)? {
        return Ok(signed_in(user, true));
    }
    // Another request with the same key made the account, and has committed by now.
    Ok(accounts::find_by_key(tx, key)?.map_or(Outcome::Refused, |user| signed_in(user, false)))
}
