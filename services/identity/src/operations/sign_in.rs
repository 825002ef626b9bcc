//! Signing in: a challenge is given, and spent by the sign-in that brings it back.

use std::sync::atomic::{AtomicI64, Ordering};

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use rand::RngCore;

use crate::Identity;
use crate::domain::{Proof, Registration};
use crate::error::Error;
use crate::store::{accounts, challenges};

/// A challenge that was given to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) bytes: [u8; 32],
    pub(crate) expires_at: Timestamp,
}

/// How a sign-in ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    SignedIn {
        user: UserId,
        is_new: bool,
        now: Timestamp,
    },
    /// The challenge or the proof is not valid.
    Refused,
    /// The proof is valid, but there is no such account and none may be made.
    NoAccount(Registration),
}

/// A user's new token.
pub(crate) struct UserToken {
    pub(crate) user: UserId,
    pub(crate) is_new: bool,
    pub(crate) token: String,
    pub(crate) expires_at: Timestamp,
}

/// About how many challenges are open. A worker counts them, so that giving one does not have to.
#[derive(Debug, Default)]
pub(crate) struct OpenChallenges(AtomicI64);

impl OpenChallenges {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) async fn give_challenge(service: &Identity) -> Result<Challenge, Error> {
    if service.challenges.get() >= service.rules.challenge_limit {
        return Err(Error::TooManyChallenges);
    }
    let mut bytes = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut bytes);
    let lifetime = service.rules.challenge_lifetime;
    let insert = move |tx: &mut Conn| {
        let expires_at = tx.now()?.plus(lifetime);
        challenges::insert(tx, &bytes, expires_at)?;
        Ok::<_, StoreError>(Challenge { bytes, expires_at })
    };
    let challenge = service.db.write("give a challenge", insert).await?;
    service.challenges.0.fetch_add(1, Ordering::Relaxed);
    Ok(challenge)
}

/// Counts the open challenges.
pub(crate) async fn count_challenges(db: &Db, open: &OpenChallenges) -> Result<(), StoreError> {
    open.0.store(db.read("count challenges", challenges::count).await?, Ordering::Relaxed);
    Ok(())
}

/// Spends the challenge and gives a token if the proof is valid. An account that is missing is made as `registration`
/// allows.
pub(crate) async fn sign_in(service: &Identity, proof: Proof, registration: Registration) -> Result<UserToken, Error> {
    let challenge = proof.challenge.ok_or(Error::InvalidProof)?;
    let is_valid = proof.check(&service.rules.origins).is_ok();
    let spend = move |tx: &mut Conn| {
        // An invalid proof spends its challenge too, so that a challenge allows one try.
        if !challenges::take(tx, &challenge)? || !is_valid {
            return Ok(Outcome::Refused);
        }
        find_or_make(tx, &proof.public_key, registration)
    };
    let outcome: Outcome = service.db.write("sign in", spend).await.map_err(|error: StoreError| Error::from(error))?;
    service.metrics.signed_in(outcome);
    let (user, is_new, now) = match outcome {
        Outcome::SignedIn { user, is_new, now } => (user, is_new, now),
        Outcome::Refused => return Err(Error::InvalidProof),
        Outcome::NoAccount(registration) => return Err(Error::NoAccount(registration)),
    };
    let (token, expires_at) = service.ring.user_token(user, now, service.rules.lifetimes.user)?;
    tracing::info!(user.id = %user, is_new, "Signed in");
    Ok(UserToken { user, is_new, token, expires_at })
}

fn find_or_make(tx: &mut Conn, public_key: &[u8; 32], registration: Registration) -> Result<Outcome, StoreError> {
    let now = tx.now()?;
    if let Some(user) = accounts::find_by_key(tx, public_key)? {
        return Ok(Outcome::SignedIn { user, is_new: false, now });
    }
    if registration != Registration::Open {
        return Ok(Outcome::NoAccount(registration));
    }
    if let Some(user) = accounts::insert(tx, public_key)? {
        return Ok(Outcome::SignedIn { user, is_new: true, now });
    }
    // Another request with the same key made the account, and has committed by now.
    Ok(match accounts::find_by_key(tx, public_key)? {
        Some(user) => Outcome::SignedIn { user, is_new: false, now },
        None => Outcome::Refused,
    })
}
