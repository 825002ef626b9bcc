//! Ways to run a job that spare a wait for the disk or a round trip. They go when their last callers do.

use crate::conn::Flush;
use crate::db::{Attempt, attempt_read, attempt_write};
use crate::{AdvisoryLock, Conn, Db, StoreError};

impl Db {
    /// Like [`Db::write`], without waiting for the disk, and under a lock.
    pub async fn write_ahead<T, E, F>(&self, operation: &'static str, lock: AdvisoryLock, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let notifier = self.inner.notifier.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| {
            let done = attempt_write(conn, job, &notifier, Flush::Later, Some(lock));
            conn.flush_again();
            done
        })
        .await
    }

    /// Runs a job of one statement, which commits itself and can be repeated.
    pub async fn statement<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let db = self.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| db.attempt_statement(conn, job)).await
    }

    /// [`Db::statement`] on the calling thread.
    pub fn statement_here<T, E: From<StoreError>>(
        &self,
        operation: &'static str,
        mut job: impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, E> {
        let pool = &self.inner.writers;
        let _permit = self.inner.runtime.block_on(pool.permit(operation))?;
        self.work(pool, operation, None, &mut job, |conn, job| self.attempt_statement(conn, job))
    }

    fn attempt_statement<T, E>(
        &self,
        conn: &mut Conn,
        job: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Attempt<T, E> {
        let done = attempt_read(conn, job);
        if done.result.is_ok() {
            self.inner.notifier.publish(conn.take_topics());
        }
        done
    }
}
