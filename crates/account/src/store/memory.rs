//! Records in memory, for tests and for programs that keep nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex as AsyncMutex;

use super::{Change, Edit, Lock, Store, check_name};
use crate::error::{Error, Result};

/// A record, which may be missing.
type Record = Arc<Mutex<Option<Vec<u8>>>>;

/// Ends with the program.
#[derive(Debug, Default)]
pub struct MemoryStore {
    records: Mutex<BTreeMap<String, Record>>,
    locks: Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>,
}

impl MemoryStore {
    fn record(&self, name: &str) -> Result<Record> {
        check_name(name)?;
        Ok(hold(&self.records).entry(name.to_owned()).or_default().clone())
    }

    fn lock_of(&self, name: &str) -> Result<Arc<AsyncMutex<()>>> {
        check_name(name)?;
        Ok(hold(&self.locks).entry(name.to_owned()).or_default().clone())
    }
}

fn edit_held(name: &str, held: &mut Option<Vec<u8>>, edit: Edit) -> Result<()> {
    match edit {
        Edit::Keep => {}
        Edit::New(_) if held.is_some() => return Err(Error::KeyAppeared(Path::new(name).to_owned())),
        Edit::Put(bytes) | Edit::New(bytes) => *held = Some(bytes),
        Edit::Remove => *held = None,
    }
    Ok(())
}

impl Store for MemoryStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(hold(&*self.record(name)?).clone())
    }

    fn update(&self, name: &str, change: Change<'_>) -> Result<()> {
        let record = self.record(name)?;
        let mut held = hold(&record);
        let edit = change(Ok(held.as_deref()))?;
        edit_held(name, &mut held, edit)
    }

    fn replace(&self, name: &str, edit: Edit) -> Result<()> {
        edit_held(name, &mut hold(&*self.record(name)?), edit)
    }

    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Lock>> {
        async move { Ok(Lock::holding(self.lock_of(name)?.lock_owned().await)) }.boxed()
    }

    fn try_lock(&self, name: &str) -> Result<Option<Lock>> {
        Ok(self.lock_of(name)?.try_lock_owned().ok().map(Lock::holding))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A change that has panicked has changed nothing.
fn hold<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
