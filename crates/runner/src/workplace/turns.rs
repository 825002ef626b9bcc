//! Locks of the directories that attempts work in. Attempts that want the same one wait in the order in which they came.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Turn = Arc<tokio::sync::Mutex<()>>;

/// One lock for each directory in use.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<PathBuf, Turn>>);

/// The right to work in a directory until this is dropped.
pub(crate) type Held = OwnedMutexGuard<()>;

impl Turns {
    /// The lock of a directory, if it is free.
    pub(super) fn try_take(&self, directory: &Path) -> Option<Held> {
        self.of(directory).try_lock_owned().ok()
    }

    pub(super) async fn take(&self, directory: &Path) -> Held {
        self.of(directory).lock_owned().await
    }

    fn of(&self, directory: &Path) -> Turn {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are not held or waited for.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(directory.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_works_in_a_directory() {
        let turns = Turns::default();
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        let held = turns.take(a).await;
        assert!(turns.try_take(a).is_none());
        assert!(turns.try_take(b).is_some(), "another directory");
        let waits = turns.of(a);
        drop(held);
        let next = waits.lock_owned().await;
        assert!(turns.try_take(a).is_none(), "the lock is the same for those who waited");
        drop(next);
        assert!(turns.try_take(a).is_some());
        assert!(turns.0.lock().unwrap().len() <= 1, "free locks are forgotten");
    }
}
