//! The database of a service: reads, writes, and who is told of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::conn::{AdvisoryLock, Flush};
use crate::connect::{Connector, lock_file};
use crate::deadline::Deadline;
use crate::error::ConnState;
use crate::metrics::{DbMetrics, Outcome};
use crate::migrate::{Migrations, OpenError, migrate};
use crate::pool::Pool;
use crate::wake::Notifier;
use crate::{Conn, DatabaseConfig, DatabaseUrl, StoreError, idempotency, language};

/// A transaction that lost against another one is tried this often in all.
const TRIES: u32 = 4;
const FORGET_EVERY: Duration = Duration::from_secs(600);
/// SQLite has one writer; transactions are short, and waiting in line is how they take turns.
const SQLITE_WRITER_WAIT: Duration = Duration::from_secs(2);
/// A file does not go away as a server does, so there is no promise to keep, and a disk under load deserves some time.
const SQLITE_TIMEOUT: Duration = Duration::from_millis(4_500);

/// A database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    readers: Arc<Pool>,
    /// The same pool on PostgreSQL, one connection on SQLite.
    writers: Arc<Pool>,
    notifier: Notifier,
    /// Blocking jobs go to this runtime: the workers of the HTTP server have small ones of their own.
    runtime: Handle,
    deadline: Duration,
    metrics: DbMetrics,
    /// Held as long as the database is open.
    _lock: Option<std::fs::File>,
}

impl Db {
    /// Opens the database and brings its schema up to date, waiting for it up to `start_timeout`. Call it on the runtime
    /// that lives as long as the process.
    pub async fn open(config: &DatabaseConfig, migrations: Migrations) -> Result<Self, OpenError> {
        let runtime = Handle::current();
        let unreachable = |reason: String| OpenError::Unreachable { database: config.url.to_string(), reason };
        let (readers, writers, deadline, lock) = match &config.url {
            DatabaseUrl::Postgres(url) => {
                let connector = Connector::Postgres { url: url.clone(), statement_timeout: config.statement_timeout };
                let pool = Pool::new(connector, config.pool_size, config.pool_wait);
                (Arc::clone(&pool), pool, config.timeout, None)
            }
            DatabaseUrl::Sqlite(path) => {
                let lock = lock_file(path).map_err(|e| unreachable(e.to_string()))?;
                let writers = Pool::new(Connector::SqliteWriter(path.clone()), 1, SQLITE_WRITER_WAIT);
                let readers = Pool::new(Connector::SqliteReader(path.clone()), config.pool_size, config.pool_wait);
                (readers, writers, SQLITE_TIMEOUT, Some(lock))
            }
        };
        Self::prepare(config, migrations, &writers).await?;
        let notifier = match &config.url {
            DatabaseUrl::Postgres(url) => Notifier::over_postgres(url),
            DatabaseUrl::Sqlite(_) => Notifier::in_process(),
        };
        let metrics = DbMetrics::new().map_err(|error| unreachable(error.to_string()))?;
        let inner = Inner { readers, writers, notifier, runtime, deadline, metrics, _lock: lock };
        let db = Self { inner: Arc::new(inner) };
        tokio::spawn(forget_old_keys(Arc::downgrade(&db.inner)));
        Ok(db)
    }

    /// Connects and migrates.
    async fn prepare(config: &DatabaseConfig, migrations: Migrations, pool: &Arc<Pool>) -> Result<(), OpenError> {
        let deadline = Instant::now() + config.start_timeout;
        let database = config.url.to_string();
        loop {
            let (pool, how, name) = (Arc::clone(pool), config.migrate, database.clone());
            let attempt = tokio::task::spawn_blocking(move || {
                let mut conn = pool.take("open")?;
                let migrated = migrate(&mut conn, migrations, how, &name);
                if let Err(OpenError::Migration { .. }) = &migrated {
                    // A server that went away in the middle is waited for, as one that was not there at all.
                    conn.batch("SELECT 1")?;
                }
                if let Some(setting) = language::foreign(&mut conn) {
                    tracing::warn!(
                        database = %name, lc_messages = %setting,
                        "The database's messages are translated, so some of its errors are not understood and answered \
                         with 500; let a superuser run: ALTER ROLE <ours> SET lc_messages = 'C'"
                    );
                }
                Ok::<_, StoreError>(migrated)
            });
            let reason = match attempt.await {
                Ok(Ok(migrated)) => return migrated,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            if Instant::now() > deadline {
                return Err(OpenError::Unreachable { database, reason });
            }
            tracing::warn!(%database, %reason, "Waiting for the database");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Runs `job` on a connection for reading; each statement sees what is committed when it starts.
    ///
    /// `job` runs again from the start when its connection turns out to be dead, so it must not keep anything of a run
    /// that failed. It goes on to its end even when the caller has gone.
    pub async fn read<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.run(&self.inner.readers, operation, job, attempt_read).await
    }

    /// Runs `job` in one transaction: committed when it gives `Ok`, rolled back when it gives `Err`. On PostgreSQL it is
    /// READ COMMITTED; on SQLite there is one at a time.
    ///
    /// `job` runs again from the start when its connection died before the commit, or when it lost against another
    /// transaction (a deadlock); so it must not keep anything of a run that failed. What it told to [`Conn::notify`] is
    /// published after the commit.
    pub async fn write<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let notifier = self.inner.notifier.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| {
            attempt_write(conn, job, &notifier, Flush::AtCommit, None)
        })
        .await
    }

    /// Like [`Db::write`], without waiting for the disk: what is committed outlives this process, and may be lost with the
    /// database's machine. For what a later [`Db::write`] completes before anybody is told of it; that one's commit brings
    /// this one to the disk as well. It begins when it is its turn.
    pub async fn write_ahead<T, E, F>(&self, operation: &'static str, turn: AdvisoryLock, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let notifier = self.inner.notifier.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| {
            let done = attempt_write(conn, job, &notifier, Flush::Later, Some(turn));
            conn.flush_again();
            done
        })
        .await
    }

    /// Runs a job of one statement, which commits itself. It runs again when its connection is lost, even though the
    /// statement may have been committed: so it must be one that can be repeated.
    pub async fn statement<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let notifier = self.inner.notifier.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| attempt_statement(conn, job, &notifier)).await
    }

    /// Who waits for what.
    pub fn notifier(&self) -> &Notifier {
        &self.inner.notifier
    }

    /// Shows what the database is busy with to Prometheus.
    ///
    /// # Errors
    /// The names are taken: call it once for each registry.
    pub fn register(&self, registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        let mut pools = vec![("main", Arc::downgrade(&self.inner.readers))];
        if !Arc::ptr_eq(&self.inner.readers, &self.inner.writers) {
            pools = vec![("read", Arc::downgrade(&self.inner.readers)), ("write", Arc::downgrade(&self.inner.writers))];
        }
        self.inner.metrics.register(registry, pools, self.inner.notifier.clone())
    }

    /// Whether the database answers; for readiness.
    pub async fn ready(&self) -> Result<(), String> {
        self.read("readiness", |c| c.now()).await.map(|_| ()).map_err(|e: StoreError| e.to_string())
    }

    /// Like [`Db::write`], on the present thread, which must not be a runtime's: for a writer that has a thread to itself and
    /// wants none of the ways between threads. Waits as long as the database's own limits let it.
    pub fn write_blocking<T, E: From<StoreError>>(
        &self,
        operation: &'static str,
        mut job: impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, E> {
        let (pool, notifier) = (&self.inner.writers, &self.inner.notifier);
        let _permit = self.inner.runtime.block_on(pool.enter(operation))?;
        self.work(pool, operation, None, &mut job, |conn, job| {
            attempt_write(conn, job, notifier, Flush::AtCommit, None)
        })
    }

    /// [`Db::statement`], where [`Db::write_blocking`] is.
    pub fn statement_here<T, E: From<StoreError>>(
        &self,
        operation: &'static str,
        mut job: impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, E> {
        let (pool, notifier) = (&self.inner.writers, &self.inner.notifier);
        let _permit = self.inner.runtime.block_on(pool.enter(operation))?;
        self.work(pool, operation, None, &mut job, |conn, job| attempt_statement(conn, job, notifier))
    }

    async fn run<T, E, F>(
        &self,
        pool: &Arc<Pool>,
        operation: &'static str,
        mut job: F,
        attempt: impl Fn(&mut Conn, &mut F) -> Attempt<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let deadline = Deadline::new(self.inner.deadline);
        let permit = pool.enter(operation).await?;
        self.inner.metrics.waited(deadline.elapsed());
        let (db, pool, waits) = (self.clone(), Arc::clone(pool), deadline.clone());
        let span = tracing::Span::current();
        let mut running = self.inner.runtime.spawn_blocking(move || {
            let _entered = span.enter();
            let _permit = permit;
            db.work(&pool, operation, Some(waits), &mut job, attempt)
        });
        tokio::select! {
            biased;
            outcome = &mut running => match outcome {
                Ok(outcome) => outcome,
                Err(panic) => Err(StoreError::bad_row(operation, panic).into()),
            },
            () = deadline.over() => {
                let reason = "it did not answer in time".to_owned();
                Err(StoreError::Unavailable { operation, reason }.into())
            }
        }
    }

    /// Runs a job on a connection, and again when the connection is to blame and it may be.
    fn work<T, E: From<StoreError>, F>(
        &self,
        pool: &Pool,
        operation: &'static str,
        waits: Option<Deadline>,
        job: &mut F,
        attempt: impl Fn(&mut Conn, &mut F) -> Attempt<T, E>,
    ) -> Result<T, E> {
        let metrics = &self.inner.metrics;
        let span = tracing::debug_span!(
            "db",
            otel.name = operation,
            otel.kind = "client",
            db.system.name = pool.system(),
            db.operation.name = operation,
            otel.status_code = tracing::field::Empty
        );
        let _entered = span.enter();
        let started = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut conn = pool.take(operation).inspect_err(|_| {
                span.record("otel.status_code", "ERROR");
                metrics.done(operation, Outcome::Unavailable, started.elapsed());
            })?;
            let in_time = || waits.as_ref().is_none_or(Deadline::lasts);
            if !in_time() {
                // To connect took so long that the caller was told that it failed; then it should not happen after all.
                pool.give_back(conn);
                metrics.done(operation, Outcome::Unavailable, started.elapsed());
                return Err(StoreError::Unavailable { operation, reason: "nobody waits any more".to_owned() }.into());
            }
            conn.enter(operation, waits.clone());
            let done = attempt(&mut conn, job);
            let again = done.may_repeat && conn.state() != ConnState::Healthy && tries < TRIES && in_time();
            let outcome = match (&done.outcome, conn.state()) {
                (Ok(_), _) => Outcome::Ok,
                (Err(_), ConnState::Broken) => Outcome::Unavailable,
                (Err(_), _) => Outcome::Error,
            };
            pool.give_back(conn);
            if !again {
                if matches!(outcome, Outcome::Unavailable) {
                    span.record("otel.status_code", "ERROR");
                }
                metrics.done(operation, outcome, started.elapsed());
                return done.outcome;
            }
        }
    }
}

/// How a job went, and whether it may be run once more when its connection is to blame.
struct Attempt<T, E> {
    outcome: Result<T, E>,
    may_repeat: bool,
}

fn attempt_read<T, E>(conn: &mut Conn, job: &mut impl FnMut(&mut Conn) -> Result<T, E>) -> Attempt<T, E> {
    let outcome = job(conn);
    Attempt { may_repeat: outcome.is_err(), outcome }
}

fn attempt_statement<T, E>(
    conn: &mut Conn,
    job: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    notifier: &Notifier,
) -> Attempt<T, E> {
    let done = attempt_read(conn, job);
    if done.outcome.is_ok() {
        notifier.publish(conn.take_wakes());
    }
    done
}

fn attempt_write<T, E: From<StoreError>>(
    conn: &mut Conn,
    job: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    notifier: &Notifier,
    flush: Flush,
    turn: Option<AdvisoryLock>,
) -> Attempt<T, E> {
    if let Err(error) = conn.begin(flush, turn) {
        return Attempt { outcome: Err(error.into()), may_repeat: true };
    }
    match job(conn) {
        Err(error) => {
            conn.rollback();
            Attempt { outcome: Err(error), may_repeat: true }
        }
        Ok(value) => match conn.commit() {
            Ok(()) => {
                notifier.publish(conn.take_wakes());
                Attempt { outcome: Ok(value), may_repeat: false }
            }
            // Whether it was committed is not known, so it must not be done twice here.
            Err(error) => Attempt { outcome: Err(error.into()), may_repeat: false },
        },
    }
}

async fn forget_old_keys(inner: std::sync::Weak<Inner>) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let db = Db { inner };
        while let Ok(1..) = db.write("forget idempotency keys", |tx| idempotency::forget_old(tx, 500)).await {}
    }
}
