//! What the owner has said about guests: the highest version for each user.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::table::Right;
use crate::transcript::body::AccessGrant;
use crate::transcript::words::{May, ReceiptCode};

/// The users that are remembered. A revocation is remembered too, or an older grant could come back.
const MOST_USERS: usize = 256;

/// The newest grant for each user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access(BTreeMap<UserId, AccessGrant>);

impl Access {
    /// From what a state or the spool has kept. Of two grants for a user the higher version counts, and of two with one version `none`.
    pub fn of_grants(grants: impl IntoIterator<Item = AccessGrant>) -> Self {
        let mut access = Self::default();
        for grant in grants {
            if access.0.get(&grant.user).is_none_or(|known| counts_after(&grant, known))
                && (access.0.len() < MOST_USERS || access.0.contains_key(&grant.user))
            {
                access.0.insert(grant.user, grant);
            }
        }
        access
    }

    /// All grants, as `state.access` repeats them.
    pub fn grants(&self) -> impl Iterator<Item = &AccessGrant> {
        self.0.values()
    }

    /// Notes what the owner has signed, of any age. What is known already is noted again; else the higher version counts, and of two
    /// with one version `none`.
    pub(super) fn note(&mut self, grant: &AccessGrant, owner: UserId) -> Result<(), ReceiptCode> {
        if grant.user == owner || matches!(grant.may, May::Other(_)) {
            return Err(ReceiptCode::Unsupported);
        }
        // Another device may have signed it, which knew another key.
        let is_same = |known: &AccessGrant| {
            *known == AccessGrant { key: known.key.clone(), key_epoch: known.key_epoch, ..grant.clone() }
        };
        match self.0.get(&grant.user) {
            Some(known) if is_same(known) => return Ok(()),
            Some(known) if !counts_after(grant, known) => return Err(ReceiptCode::Superseded),
            None if self.0.len() >= MOST_USERS => return Err(ReceiptCode::Busy),
            _ => {}
        }
        self.0.insert(grant.user, grant.clone());
        Ok(())
    }

    /// What this user may, when the account is the one that the owner has pinned.
    pub fn of(&self, user: UserId, account: &str) -> Right {
        match self.0.get(&user).filter(|grant| grant.account == account).map(|grant| &grant.may) {
            Some(May::Prompt) => Right::Prompt,
            Some(May::Approve) => Right::Approve,
            _ => Right::Nothing,
        }
    }
}

/// The version of a grant as a time: its signer's clock.
pub fn time_of(grant: &AccessGrant) -> Timestamp {
    Timestamp::from_unix_seconds(0).plus(Duration::from_millis(grant.version))
}

/// Whether a grant counts when another one for the same user is known.
fn counts_after(grant: &AccessGrant, known: &AccessGrant) -> bool {
    let takes_away = |grant: &AccessGrant| grant.may == May::Nothing;
    (grant.version, takes_away(grant)) > (known.version, takes_away(known))
}
