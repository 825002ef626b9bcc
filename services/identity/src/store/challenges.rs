//! The table `challenges`, and what spending one is for: signing in.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::schema::challenges;
use super::{Store, accounts};
use crate::domain::Newcomers;

/// A challenge that was given out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) bytes: [u8; 32],
    pub(crate) expires_at: Timestamp,
}

/// What came of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInOutcome {
    In {
        user: UserId,
        is_new: bool,
        now: Timestamp,
    },
    /// The challenge is not good, or the proof was not.
    Refused,
    /// The proof was good, but there is no such account and none is made.
    TurnedAway(Newcomers),
}

impl Store {
    pub(crate) async fn give_challenge(&self, bytes: [u8; 32], lives: Duration) -> Result<Challenge, StoreError> {
        self.db
            .write("give a challenge", move |tx| {
                let expires_at = tx.now()?.plus(lives);
                let row = (challenges::challenge.eq(bytes.as_slice()), challenges::expires_at.eq(expires_at.db()));
                on!(tx, |c| diesel::insert_into(challenges::table).values(row).execute(c))?;
                Ok(Challenge { bytes, expires_at })
            })
            .await
    }

    /// Spends a challenge, whatever comes of it, and finds or makes the account if the proof was good.
    pub(crate) async fn sign_in(
        &self,
        challenge: [u8; 32],
        public_key: [u8; 32],
        proof_is_good: bool,
        newcomers: Newcomers,
    ) -> Result<SignInOutcome, StoreError> {
        self.db
            .write("sign in", move |tx| {
                let is_spent_now = spend(tx, &challenge)?;
                if !is_spent_now || !proof_is_good {
                    return Ok(SignInOutcome::Refused);
                }
                let now = tx.now()?;
                if let Some(user) = accounts::find(tx, &public_key)? {
                    return Ok(SignInOutcome::In { user, is_new: false, now });
                }
                if newcomers != Newcomers::Welcome {
                    return Ok(SignInOutcome::TurnedAway(newcomers));
                }
                match accounts::insert(tx, &public_key)? {
                    Some(user) => Ok(SignInOutcome::In { user, is_new: true, now }),
                    // Somebody with the same key was quicker, and has committed by now.
                    None => Ok(match accounts::find(tx, &public_key)? {
                        Some(user) => SignInOutcome::In { user, is_new: false, now },
                        None => SignInOutcome::Refused,
                    }),
                }
            })
            .await
    }

    /// Forgets what has expired, at most `limit`; gives how many there were.
    pub(crate) async fn forget_challenges(&self, limit: i64) -> Result<usize, StoreError> {
        self.db
            .write("forget expired challenges", move |tx| {
                let old = challenges::table.filter(challenges::expires_at.le(now())).limit(limit);
                let old: Vec<Vec<u8>> = on!(tx, |c| old.select(challenges::challenge).load(c))?;
                on!(tx, |c| diesel::delete(challenges::table.filter(challenges::challenge.eq_any(&old))).execute(c))
            })
            .await
    }

    /// How many have been given out and not come back.
    pub(crate) async fn open_challenges(&self) -> Result<i64, StoreError> {
        self.db.read("count challenges", |c| on!(c, |c| challenges::table.count().get_result(c))).await
    }
}

/// Whether the challenge was good until now. Of several who spend the same one at once, one hears yes.
fn spend(tx: &mut Conn, challenge: &[u8; 32]) -> Result<bool, StoreError> {
    let row = challenges::table.find(challenge.as_slice());
    let spent: Option<bool> =
        on!(tx, |c| diesel::delete(row).returning(challenges::expires_at.gt(now())).get_result(c).optional())?;
    Ok(spent == Some(true))
}
