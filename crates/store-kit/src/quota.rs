//! Quotas: how much of something an account may store.
//!
//! What an account stores is a sum over its rows, which is too slow to read with every write. So a process remembers the sum
//! for [`REMEMBERED`], together with what it has added itself since. Other replicas add in this time, too: an account can
//! store more than its quota by what they add within [`REMEMBERED`]. No row is shared by all writes of an account, so a quota
//! makes no write wait for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ensemble_types::ids::UserId;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::StoreError;

/// How long a sum is used.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Before a write is refused, the sum is read again if it is older than this: something may have been deleted elsewhere.
const FRESH: Duration = Duration::from_secs(1);
/// Accounts whose sums are remembered. Those of others are read with each write.
const ACCOUNTS: u64 = 50_000;

/// A quota, and what accounts use of it. Cheap to clone.
#[derive(Clone)]
pub struct Quota {
    name: &'static str,
    limit: i64,
    fresh: Duration,
    known: Cache<UserId, Arc<Known>>,
}

struct Known {
    used: AtomicI64,
    read_at: Instant,
}

/// The account would store more than its quota allows. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the quota {quota} of {limit} is used up: {used}")]
pub struct QuotaExceeded {
    /// Its name on the wire.
    pub quota: &'static str,
    pub limit: i64,
    /// What counts for it now.
    pub used: i64,
}

impl Quota {
    /// `limit` 0 means that there is none.
    pub fn new(name: &'static str, limit: i64) -> Self {
        let known = Cache::builder().max_capacity(ACCOUNTS).time_to_live(REMEMBERED).build();
        Self { name, limit: limit.max(0), fresh: FRESH, known }
    }

    pub fn limit(&self) -> i64 {
        self.limit
    }

    /// How much more the account may store; at most 0 when the quota is used up. `load` reads what the account stores
    /// without what this transaction adds. It is called when that is not known, and when what is known leaves less than
    /// `wanted`.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn room(
        &self,
        account: UserId,
        wanted: i64,
        load: impl FnOnce() -> Result<i64, StoreError>,
    ) -> Result<i64, StoreError> {
        if self.limit == 0 {
            return Ok(i64::MAX);
        }
        if let Some(known) = self.known.get(&account) {
            let room = self.limit.saturating_sub(known.used.load(Ordering::Relaxed));
            if room >= wanted || known.read_at.elapsed() < self.fresh {
                return Ok(room);
            }
        }
        let read_at = Instant::now();
        let used = load()?;
        self.known.insert(account, Arc::new(Known { used: AtomicI64::new(used), read_at }));
        Ok(self.limit.saturating_sub(used))
    }

    /// Whether the account may store `wanted` more. `load` as in [`Quota::room`].
    ///
    /// # Errors
    /// The outer ones are those of `load`.
    pub fn check(
        &self,
        account: UserId,
        wanted: i64,
        load: impl FnOnce() -> Result<i64, StoreError>,
    ) -> Result<Result<(), QuotaExceeded>, StoreError> {
        let room = self.room(account, wanted, load)?;
        Ok(if room < wanted { Err(self.exceeded(room)) } else { Ok(()) })
    }

    /// The refusal of an account that has this much room.
    pub fn exceeded(&self, room: i64) -> QuotaExceeded {
        QuotaExceeded { quota: self.name, limit: self.limit, used: self.limit.saturating_sub(room) }
    }

    /// Counts what a transaction of this process has added. Call it after the commit.
    pub fn add(&self, account: UserId, more: i64) {
        if let Some(known) = self.known.get(&account) {
            known.used.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Forgets what the account stores, because something of it was deleted. Call it after the commit.
    pub fn forget(&self, account: UserId) {
        self.known.invalidate(&account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(used: i64) -> impl FnOnce() -> Result<i64, StoreError> {
        move || Ok(used)
    }

    fn not_read() -> Result<i64, StoreError> {
        panic!("the sum was read again")
    }

    #[test]
    fn the_sum_is_read_once_and_then_counted() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        assert_eq!(quota.check(account, 4, read(6)).unwrap(), Ok(()));
        quota.add(account, 3);
        assert_eq!(quota.check(account, 1, not_read).unwrap(), Ok(()));
        let refused = QuotaExceeded { quota: "things", limit: 10, used: 9 };
        assert_eq!(quota.check(account, 2, not_read).unwrap(), Err(refused), "what was just read is not read again");
        assert_eq!(quota.check(UserId::generate(), 10, read(0)).unwrap(), Ok(()), "another account");
    }

    #[test]
    fn a_refusal_reads_a_sum_again_that_is_not_fresh() {
        let quota = Quota { fresh: Duration::ZERO, ..Quota::new("things", 10) };
        let account = UserId::generate();
        assert!(quota.check(account, 1, read(10)).unwrap().is_err());
        assert_eq!(quota.check(account, 1, read(9)).unwrap(), Ok(()));
    }

    #[test]
    fn a_deletion_is_seen_at_once() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        assert!(quota.check(account, 1, read(10)).unwrap().is_err());
        quota.forget(account);
        assert_eq!(quota.room(account, 1, read(2)).unwrap(), 8);
    }

    #[test]
    fn zero_is_no_limit_and_reads_nothing() {
        let quota = Quota::new("things", 0);
        assert_eq!(quota.check(UserId::generate(), i64::MAX, not_read).unwrap(), Ok(()));
    }
}
