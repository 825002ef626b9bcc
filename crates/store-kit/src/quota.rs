//! Quotas: how much of something an account may store.
//!
//! What an account stores is a sum over its rows, which is too slow to read with every write. So a process remembers the sum
//! for [`REMEMBERED`], and counts what its own transactions add from the moment in which they were allowed to. Within one
//! process a quota is exact: simultaneous writes cannot exceed it together. Other replicas add in this time, too: an account
//! can store more than its quota by what they add within [`REMEMBERED`]. No row is shared by all writes of an account, and no
//! lock is held while a sum is read, so a quota makes no write wait for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_types::ids::UserId;
use tokio::time::Instant;

use crate::StoreError;

/// How long a sum is used.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Before a write is refused, the sum is read again if it is older than this: something may have been deleted elsewhere.
const FRESH: Duration = Duration::from_secs(1);
/// Accounts whose sums are remembered. When there are more, those without a write under way are forgotten.
const ACCOUNTS: usize = 50_000;

/// A quota, and what accounts use of it. Cheap to clone.
#[derive(Clone)]
pub struct Quota {
    name: &'static str,
    limit: i64,
    fresh: Duration,
    accounts: Arc<Mutex<HashMap<UserId, Arc<Account>>>>,
}

/// A write of the account holds this while it reads the sum and while it has a reservation.
#[derive(Default)]
struct Account(Mutex<Use>);

/// What an account uses, as far as this process knows.
#[derive(Default)]
struct Use {
    /// The last sum that was read, what was open then, and what was reserved since.
    used: i64,
    /// When `used` began to be read. `None` when it must be read again.
    read_at: Option<Instant>,
    /// How often `used` was read.
    reads: u64,
    /// The reservations of transactions that have not ended.
    open: i64,
    /// What transactions of this process have committed, ever.
    committed: i64,
}

/// What a transaction may add. It is counted until it is dropped, or for good after [`Reserved::commit`]. Give it to
/// [`Conn::hold`](crate::Conn::hold), which does the right one of both when the transaction ends.
#[must_use = "a reservation that is dropped is given back"]
#[derive(Default)]
pub struct Reserved {
    amount: i64,
    /// `None` without a limit.
    account: Option<Arc<Account>>,
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
        Self { name, limit: limit.max(0), fresh: FRESH, accounts: Arc::default() }
    }

    pub fn limit(&self) -> i64 {
        self.limit
    }

    /// Reserves `wanted`, if the account may store that much more. `load` reads what the account stores without what this
    /// transaction adds, and sees what was committed when it is called. It is called when that is not known, and when what is
    /// known leaves less than `wanted`.
    ///
    /// # Errors
    /// The outer ones are those of `load`.
    pub fn reserve(
        &self,
        account: UserId,
        wanted: i64,
        load: impl FnOnce() -> Result<i64, StoreError>,
    ) -> Result<Result<Reserved, QuotaExceeded>, StoreError> {
        self.reserve_some(account, wanted, wanted, load)
    }

    /// Reserves `wanted`, or what the account may still store if that is less. `load` as in [`Quota::reserve`].
    ///
    /// # Errors
    /// Those of `load`.
    pub fn reserve_up_to(
        &self,
        account: UserId,
        wanted: i64,
        load: impl FnOnce() -> Result<i64, StoreError>,
    ) -> Result<Reserved, StoreError> {
        Ok(self.reserve_some(account, 0, wanted, load)?.unwrap_or_default())
    }

    /// Counts what has to be stored, whatever the quota says.
    pub fn reserve_anyway(&self, account: UserId, amount: i64) -> Reserved {
        if self.limit == 0 {
            return Reserved { amount, account: None };
        }
        let account = self.account(account);
        account.state().open(amount);
        Reserved { amount, account: Some(account) }
    }

    /// Reads the sum again with the next write, because something of it was deleted. Call it after the commit.
    pub fn forget(&self, account: UserId) {
        if self.limit > 0 {
            self.account(account).state().read_at = None;
        }
    }

    fn reserve_some(
        &self,
        account: UserId,
        least: i64,
        most: i64,
        load: impl FnOnce() -> Result<i64, StoreError>,
    ) -> Result<Result<Reserved, QuotaExceeded>, StoreError> {
        if self.limit == 0 || most <= 0 {
            return Ok(Ok(Reserved { amount: most, account: None }));
        }
        let account = self.account(account);
        let (before, began) = {
            let mut state = account.state();
            let age = state.read_at.map(|read_at| read_at.elapsed());
            let room = self.limit.saturating_sub(state.used);
            if age.is_some_and(|age| age < self.fresh || (room >= most && age < REMEMBERED)) {
                return Ok(self.decide(&account, &mut state, least, most));
            }
            ((state.reads, state.committed), Instant::now())
        };
        let sum = load()?;
        let mut state = account.state();
        state.read(sum, before, began);
        Ok(self.decide(&account, &mut state, least, most))
    }

    fn decide(
        &self,
        account: &Arc<Account>,
        state: &mut Use,
        least: i64,
        most: i64,
    ) -> Result<Reserved, QuotaExceeded> {
        let amount = self.limit.saturating_sub(state.used).clamp(0, most);
        if amount < least {
            return Err(QuotaExceeded { quota: self.name, limit: self.limit, used: state.used });
        }
        state.open(amount);
        Ok(Reserved { amount, account: Some(Arc::clone(account)) })
    }

    fn account(&self, id: UserId) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= ACCOUNTS && !accounts.contains_key(&id) {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        Arc::clone(accounts.entry(id).or_default())
    }
}

impl Account {
    fn state(&self) -> MutexGuard<'_, Use> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Use {
    /// Takes a sum that was read. `before` is `reads` and `committed` as they were when the reading began at `began`.
    fn read(&mut self, sum: i64, before: (u64, i64), began: Instant) {
        let (reads, committed) = before;
        // A sum that another write has read meanwhile counts everything since. This one may contain some of that already.
        if self.read_at.is_some() && self.reads != reads {
            return;
        }
        // The sum may lack what was open when the reading began, or contain it. Too much is counted rather than too little;
        // the next reading corrects it.
        let since = self.committed.wrapping_sub(committed);
        self.used = sum.saturating_add(self.open).saturating_add(since);
        self.read_at = Some(began);
        self.reads = self.reads.wrapping_add(1);
    }

    /// Counts more as open, or less.
    fn open(&mut self, amount: i64) {
        self.used = self.used.saturating_add(amount);
        self.open = self.open.saturating_add(amount);
    }
}

impl Reserved {
    pub fn amount(&self) -> i64 {
        self.amount
    }

    /// Counts this amount instead: what the transaction really adds.
    pub fn set(&mut self, amount: i64) {
        if let Some(account) = &self.account {
            account.state().open(amount.saturating_sub(self.amount));
        }
        self.amount = amount;
    }

    /// Counts it for good. Call it after the commit, also when it is not known whether that succeeded.
    pub fn commit(mut self) {
        if let Some(account) = self.account.take() {
            let mut state = account.state();
            state.open = state.open.saturating_sub(self.amount);
            state.committed = state.committed.wrapping_add(self.amount);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            account.state().open(self.amount.saturating_neg());
        }
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

    fn refused(used: i64) -> QuotaExceeded {
        QuotaExceeded { quota: "things", limit: 10, used }
    }

    #[test]
    fn the_sum_is_read_once_and_then_counted() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        quota.reserve(account, 3, read(6)).unwrap().unwrap().commit();
        quota.reserve(account, 1, not_read).unwrap().unwrap().set(0);
        let outcome = quota.reserve(account, 2, not_read).unwrap();
        assert_eq!(outcome.err(), Some(refused(9)), "what was just read is not read again");
        assert_eq!(quota.reserve(UserId::generate(), 10, read(0)).unwrap().unwrap().amount(), 10, "another account");
    }

    #[test]
    fn a_reservation_counts_at_once_and_is_given_back() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        let first = quota.reserve(account, 6, read(0)).unwrap().unwrap();
        assert_eq!(quota.reserve(account, 6, not_read).unwrap().err(), Some(refused(6)));
        drop(first);
        let mut second = quota.reserve(account, 6, not_read).unwrap().unwrap();
        second.set(4);
        assert_eq!(quota.reserve_up_to(account, 9, not_read).unwrap().amount(), 6);
        second.commit();
        quota.reserve_anyway(account, 8).commit();
        assert_eq!(quota.reserve(account, 1, not_read).unwrap().err(), Some(refused(12)));
        assert_eq!(quota.reserve_up_to(account, 1, not_read).unwrap().amount(), 0);
        quota.reserve(account, 0, not_read).unwrap().unwrap().commit();
    }

    #[test]
    fn a_sum_counts_what_was_open_or_committed_while_it_was_read() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        let (open, ends) = (quota.reserve(account, 2, read(0)).unwrap().unwrap(), quota.reserve_anyway(account, 3));
        quota.forget(account);
        let others_write = || {
            ends.commit();
            quota.reserve_anyway(account, 1).commit();
            drop(quota.reserve_anyway(account, 1));
            Ok(0)
        };
        let outcome = quota.reserve(account, 5, others_write).unwrap();
        assert_eq!(outcome.err(), Some(refused(6)));
        drop(open);
        assert_eq!(quota.reserve(account, 7, not_read).unwrap().err(), Some(refused(4)));
    }

    #[test]
    fn of_two_sums_that_are_read_at_once_the_first_counts() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        let other = quota.clone();
        let sees_the_other = || {
            other.reserve(account, 6, read(0)).unwrap().unwrap().commit();
            Ok(6)
        };
        quota.reserve(account, 4, sees_the_other).unwrap().unwrap().commit();
        assert_eq!(quota.reserve(account, 1, not_read).unwrap().err(), Some(refused(10)));
    }

    #[test]
    fn what_is_counted_twice_is_corrected_before_a_later_refusal() {
        let quota = Quota { fresh: Duration::ZERO, ..Quota::new("things", 10) };
        let account = UserId::generate();
        let open = quota.reserve(account, 6, read(0)).unwrap().unwrap();
        assert_eq!(quota.reserve(account, 5, read(6)).unwrap().err(), Some(refused(12)));
        open.commit();
        quota.reserve(account, 4, read(6)).unwrap().unwrap().commit();
    }

    #[test]
    fn a_refusal_reads_a_sum_again_that_is_not_fresh() {
        let quota = Quota { fresh: Duration::ZERO, ..Quota::new("things", 10) };
        let account = UserId::generate();
        assert!(quota.reserve(account, 1, read(10)).unwrap().is_err());
        assert!(quota.reserve(account, 1, read(9)).unwrap().is_ok());
    }

    #[test]
    fn a_deletion_is_seen_at_once() {
        let quota = Quota::new("things", 10);
        let account = UserId::generate();
        assert!(quota.reserve(account, 1, read(10)).unwrap().is_err());
        quota.forget(account);
        assert_eq!(quota.reserve_up_to(account, 9, read(2)).unwrap().amount(), 8);
    }

    #[test]
    fn accounts_with_a_reservation_are_not_forgotten() {
        let quota = Quota::new("things", 10);
        let (account, idle) = (UserId::generate(), UserId::generate());
        let _open = quota.reserve(account, 6, read(0)).unwrap().unwrap();
        quota.reserve(idle, 6, read(0)).unwrap().unwrap().commit();
        (0..ACCOUNTS).for_each(|_| drop(quota.reserve_anyway(UserId::generate(), 1)));
        assert!(quota.reserve(account, 6, not_read).unwrap().is_err());
        assert!(quota.reserve(idle, 6, read(0)).unwrap().is_ok());
        assert!(quota.accounts.lock().unwrap().len() <= ACCOUNTS);
    }

    #[test]
    fn zero_is_no_limit_and_reads_nothing() {
        let quota = Quota::new("things", 0);
        assert_eq!(quota.reserve(UserId::generate(), i64::MAX, not_read).unwrap().unwrap().amount(), i64::MAX);
    }
}
