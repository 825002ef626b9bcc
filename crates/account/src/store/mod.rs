//! Where a device keeps what it must not lose: records with names, and locks that exclude other programs of the person.
//!
//! A name has at most three parts with `/` between them, for example `sessions/SERVER/ID.json`. Each part has 1 to 200 characters of
//! `A-Z a-z 0-9 . _ -` and does not begin with a full stop.

mod file;
mod memory;

use std::fmt;

use futures_util::future::BoxFuture;

use crate::error::{Error, Result};

pub use file::FileStore;
pub use memory::MemoryStore;

/// Keeps records. They are small and near, so that they are read and written at once. [`FileStore`] keeps files, and [`MemoryStore`] is
/// for tests and for programs that keep nothing.
pub trait Store: fmt::Debug + Send + Sync {
    /// What a record holds. `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read, or others can read a key.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Reads, changes and writes a record in one step that no other program sees half done. It is durable when this returns. `change` may
    /// change a record of another folder, or another `X.json` outside of folders. It waits for itself when it changes one of the same
    /// folder, or two that have neither a folder nor this ending.
    ///
    /// # Errors
    /// `change` failed, or the record cannot be written. Then it is as it was before.
    fn update(&self, name: &str, change: Change<'_>) -> Result<()>;

    /// The same for a change that does not depend on what the record holds. It need not be readable.
    ///
    /// # Errors
    /// The record cannot be written.
    fn replace(&self, name: &str, edit: Edit) -> Result<()>;

    /// Waits until no other program has the lock with this name, and nothing else in this one. No thread is held meanwhile.
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Lock>>;

    /// The same lock, unless it is held.
    ///
    /// # Errors
    /// The store cannot be written.
    fn try_lock(&self, name: &str) -> Result<Option<Lock>>;

    /// Fails if records cannot be written, or if others can write them. Called before a key is created that must not be lost.
    ///
    /// # Errors
    /// Why not.
    fn check(&self) -> Result<()>;
}

/// What is done to a record, from what it holds, or from why it cannot be read.
pub type Change<'a> = Box<dyn FnOnce(Result<Option<&[u8]>>) -> Result<Edit> + 'a>;

/// How a record changes.
#[derive(Debug)]
pub enum Edit {
    /// It does not, and nothing is written.
    Keep,
    /// It holds this from now on.
    Put(Vec<u8>),
    /// The same for a key that must not take the place of another one, also not of one that was copied there meanwhile.
    New(Vec<u8>),
    /// There is none from now on.
    Remove,
}

/// A lock that excludes other programs. It ends when it is dropped, or with the process.
pub struct Lock {
    _held: Box<dyn Send + Sync>,
}

impl Lock {
    /// A lock that ends when `held` is dropped.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

/// Fails for what is no name, because a server's word may be in it.
fn check_name(name: &str) -> Result<()> {
    let is_safe = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
    let fits = |part: &str| (1..=200).contains(&part.len()) && !part.starts_with('.') && part.bytes().all(is_safe);
    let is_name = name.split('/').count() <= 3 && name.split('/').all(fits);
    is_name.then_some(()).ok_or_else(|| Error::Form(format!("{name:?} cannot be the name of a record.")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    /// Both stores, with the directory of one of them.
    fn both() -> (tempfile::TempDir, [Arc<dyn Store>; 2]) {
        let place = tempfile::tempdir().unwrap();
        let file = FileStore::new(place.path().join("home"));
        (place, [Arc::new(file), Arc::new(MemoryStore::default())])
    }

    fn put(store: &dyn Store, name: &str, text: &str) -> Result<()> {
        store.update(name, Box::new(|_| Ok(Edit::Put(text.into()))))
    }

    #[test]
    fn a_record_is_read_changed_and_removed() {
        for store in both().1 {
            assert_eq!(store.get("a/b/c.json").unwrap(), None);
            store.check().unwrap();
            put(&*store, "a/b/c.json", "1").unwrap();
            put(&*store, "d", "2").unwrap();
            let change: Change<'_> = Box::new(|before| {
                assert_eq!(before?, Some(&b"1"[..]));
                Ok(Edit::Put(b"3".to_vec()))
            });
            store.update("a/b/c.json", change).unwrap();
            store.update("d", Box::new(|_| Ok(Edit::Keep))).unwrap();
            store.update("d", Box::new(|_| Err(Error::NotListed))).unwrap_err();
            assert_eq!(store.get("a/b/c.json").unwrap().as_deref(), Some(&b"3"[..]));
            assert_eq!(store.get("d").unwrap().as_deref(), Some(&b"2"[..]));
            for _ in 0..2 {
                store.replace("d", Edit::Remove).unwrap();
                assert_eq!(store.get("d").unwrap(), None);
            }
        }
    }

    #[test]
    fn changes_at_once_are_made_one_after_the_other() {
        for store in both().1 {
            let add = || {
                let change: Change<'_> = Box::new(|before| {
                    std::thread::yield_now();
                    Ok(Edit::Put([before?.unwrap_or_default(), b"x"].concat()))
                });
                store.update("count", change).unwrap();
            };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..25).for_each(|_| add()));
                }
            });
            assert_eq!(store.get("count").unwrap().unwrap().len(), 100);
        }
    }

    #[test]
    fn a_change_of_one_record_may_change_another_one() {
        for store in both().1 {
            let change: Change<'_> = Box::new(|_| {
                put(&*store, "inner.json", "1")?;
                Ok(Edit::Put(b"2".to_vec()))
            });
            store.update("outer.json", change).unwrap();
            let both = ["inner.json", "outer.json"].map(|name| store.get(name).unwrap().unwrap());
            assert_eq!(both, [b"1".to_vec(), b"2".to_vec()]);
        }
    }

    #[test]
    fn a_new_record_takes_the_place_of_none() {
        for store in both().1 {
            let new = |text: &'static str| store.update("a.key", Box::new(|_| Ok(Edit::New(text.into()))));
            new("1").unwrap();
            assert!(matches!(new("2"), Err(Error::KeyAppeared(_))));
            assert_eq!(store.get("a.key").unwrap().as_deref(), Some(&b"1"[..]));
        }
    }

    #[test]
    fn only_safe_names_are_names() {
        let long = "x".repeat(201);
        let not_names =
            ["", "a/", "/a", "a//b", "../a", "a/../b", ".a", "a/b/c/d", "a b", "a\\b", "ä", "a\n", long.as_str()];
        for store in both().1 {
            for name in not_names {
                assert!(store.get(name).is_err() && put(&*store, name, "").is_err(), "{name:?}");
                assert!(store.try_lock(name).is_err(), "{name:?}");
            }
            put(&*store, "A-z_0/http_3a_2f_2f127.0.0.1/x.json", "").unwrap();
        }
    }

    /// The holder may be a future of the same task, so that a thread that waits would wait for ever.
    #[tokio::test]
    async fn a_lock_is_waited_for_without_a_thread() {
        for store in both().1 {
            let held = store.lock("a.lock").await.unwrap();
            assert!(store.try_lock("a.lock").unwrap().is_none());
            assert!(store.try_lock("b.lock").unwrap().is_some(), "another lock is free");
            let holder = async {
                tokio::task::yield_now().await;
                drop(held);
            };
            let both = async { tokio::join!(store.lock("a.lock"), holder).0 };
            let locked = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap().unwrap();
            assert!(store.try_lock("a.lock").unwrap().is_none());
            drop(locked);
            assert!(store.try_lock("a.lock").unwrap().is_some());
        }
    }
}
