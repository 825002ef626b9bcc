//! The database of a service: the three ways to run a job on it.

mod admission;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::connect::Target;
use crate::deadline::Deadlines;
use crate::error::ConnState;
use crate::file::{self, Unusable};
use crate::metrics::{DbMetrics, Outcome};
use crate::migrate::{Migrations, OpenError, migrate};
use crate::notifier::Notifier;
use crate::pool::{Pool, TakeTurn, without_turns};
use crate::reach::Reach;
use crate::{Conn, DatabaseConfig, DatabaseUrl, Migrate, StoreError, idempotency};

/// Runs of one job at most, when its connections break or its transactions lose deadlocks.
const MAX_TRIES: u32 = 4;
const FORGET_EVERY: Duration = Duration::from_secs(600);
/// At least. SQLite has one writer. Transactions are short, so a longer queue than PostgreSQL's is normal.
const SQLITE_WRITER_WAIT: Duration = Duration::from_secs(2);
/// How long a caller waits for a server that is known to be away.
const AWAY_TIMEOUT: Duration = Duration::from_millis(100);
/// At least. A file does not become unreachable as a server does, and a disk under load needs some time.
const SQLITE_TIMEOUT: Duration = Duration::from_millis(4_500);

/// A database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
    /// Of the batch that uses this clone; none otherwise.
    batch: Deadlines,
}

struct Inner {
    readers: Arc<Pool>,
    /// The same pool on PostgreSQL, one connection on SQLite.
    writers: Arc<Pool>,
    notifier: Notifier,
    /// Runs the blocking jobs. The workers of the HTTP server have small runtimes of their own.
    runtime: Handle,
    reach: Arc<Reach>,
    metrics: DbMetrics,
    /// The file of SQLite, and its lock, which is held as long as the database is open.
    file: Option<(PathBuf, std::fs::File)>,
}

impl Db {
    /// Opens the database of a service, as [`Db::open`] does, and exports its metrics to Prometheus. Callers take turns, so
    /// that none of them has all connections: `turns` makes them, from how many a caller may have at once.
    ///
    /// # Errors
    /// The database cannot be opened, or the registry has these metrics already.
    pub async fn open_measured(
        config: &DatabaseConfig,
        migrations: Migrations,
        registry: &prometheus::Registry,
        turns: impl Fn(usize) -> TakeTurn,
    ) -> Result<Self, OpenError> {
        let db = Self::open_with(config, migrations, turns).await?;
        db.register(registry)?;
        Ok(db)
    }

    /// Opens the database and brings its schema up to date, waiting for it up to `start_timeout`. Call it on the runtime
    /// that lives as long as the process.
    pub async fn open(config: &DatabaseConfig, migrations: Migrations) -> Result<Self, OpenError> {
        Self::open_with(config, migrations, without_turns).await
    }

    async fn open_with(
        config: &DatabaseConfig,
        migrations: Migrations,
        turns: impl Fn(usize) -> TakeTurn,
    ) -> Result<Self, OpenError> {
        let unreachable = |reason: String| OpenError::Unreachable { database: config.url.to_string(), reason };
        let (readers, writers, reach, file) = match &config.url {
            DatabaseUrl::Postgres(url) => {
                let target = Target::Postgres { url: url.clone(), statement_timeout: config.statement_timeout };
                let reach = Arc::new(Reach::new(config.timeout, AWAY_TIMEOUT));
                let pool = Pool::new(target, config.pool_size, config.pool_wait, &turns, &reach);
                (Arc::clone(&pool), pool, reach, None)
            }
            DatabaseUrl::Sqlite(path) => {
                let lock = file::claim(path).await.map_err(|error| match error {
                    Unusable::Damaged(reason) => OpenError::Damaged { database: config.url.to_string(), reason },
                    Unusable::Other(reason) => unreachable(reason),
                })?;
                let (limit, wait) = (config.timeout.max(SQLITE_TIMEOUT), config.pool_wait);
                let reach = Arc::new(Reach::new(limit, limit));
                let (writer, reader) = (Target::SqliteWriter(path.clone()), Target::SqliteReader(path.clone()));
                let writers = Pool::new(writer, 1, wait.max(SQLITE_WRITER_WAIT), &turns, &reach);
                let readers = Pool::new(reader, config.pool_size, wait, &turns, &reach);
                (readers, writers, reach, Some((path.clone(), lock)))
            }
        };
        Self::prepare(config, migrations, &writers).await?;
        let notifier = match &config.url {
            DatabaseUrl::Postgres(url) => Notifier::over_postgres(url, Arc::clone(&reach)),
            DatabaseUrl::Sqlite(_) => Notifier::in_process(),
        };
        notifier.first_connection().await;
        let metrics = DbMetrics::new().map_err(|error| unreachable(error.to_string()))?;
        let runtime = Handle::current();
        let inner = Inner { readers, writers, notifier, runtime, reach, metrics, file };
        let db = Self { inner: Arc::new(inner), batch: Deadlines::default() };
        tokio::spawn(forget_old_keys(Arc::downgrade(&db.inner)));
        Ok(db)
    }

    /// Brings the schema up to date, also where `config.migrate` says to check it only: the `migrate` command of a
    /// service.
    pub async fn migrate(config: &DatabaseConfig, migrations: Migrations) -> Result<(), OpenError> {
        let config = DatabaseConfig { migrate: Migrate::Auto, ..config.clone() };
        Self::open(&config, migrations).await.map(drop)
    }

    /// Connects and migrates.
    async fn prepare(config: &DatabaseConfig, migrations: Migrations, pool: &Arc<Pool>) -> Result<(), OpenError> {
        let deadline = Instant::now() + config.start_timeout;
        let database = config.url.to_string();
        let is_sqlite = matches!(config.url, DatabaseUrl::Sqlite(_));
        loop {
            let (its, mode, name) = (Arc::clone(pool), config.migrate, database.clone());
            let attempt = tokio::task::spawn_blocking(move || {
                let mut conn = Conn::new(its.take("open")?, "open", Deadlines::default());
                let migrated = migrate(&mut conn, migrations, mode, &name);
                if let Err(OpenError::Migration { .. }) = &migrated {
                    // If the server went away in the middle, this fails too, and the next attempt waits for it.
                    conn.batch("SELECT 1")?;
                }
                // Migrating changed the connection's settings.
                conn.raw.mark_broken();
                Ok::<_, StoreError>(migrated)
            });
            let reason = match attempt.await {
                Ok(Ok(Err(OpenError::Migration { reason, .. }))) if is_sqlite && file::is_damage(&reason) => reason,
                Ok(Ok(migrated)) => {
                    pool.warm(deadline).await;
                    return migrated;
                }
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            if is_sqlite && file::is_damage(&reason) {
                return Err(OpenError::Damaged { database, reason });
            }
            if Instant::now() > deadline {
                return Err(OpenError::Unreachable { database, reason });
            }
            tracing::warn!(%database, %reason, "Waiting for the database");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Runs `job` on a connection for reading. Each statement sees what is committed when it starts.
    ///
    /// `job` runs again from the start when its connection turns out to be broken, so it must keep nothing of a run that
    /// failed. It runs to its end even when its caller is cancelled.
    pub async fn read<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.run(&self.inner.readers, operation, job, attempt_read).await
    }

    /// Runs `job` in one transaction, which is committed when it returns `Ok` and rolled back when it returns `Err`. On
    /// PostgreSQL it is READ COMMITTED; on SQLite there is one at a time.
    ///
    /// `job` runs again from the start when its connection breaks before the commit or its transaction loses a deadlock,
    /// so it must keep nothing of a run that failed. What it gave to [`Conn::notify`] is published after the commit.
    pub async fn write<T, E, F>(&self, operation: &'static str, job: F) -> Result<T, E>
    where
        F: FnMut(&mut Conn) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let notifier = self.inner.notifier.clone();
        self.run(&self.inner.writers, operation, job, move |conn, job| attempt_write(conn, job, &notifier)).await
    }

    /// Like [`Db::write`], on the calling thread, which must not belong to a runtime: for the thread of a
    /// [`Batcher`](crate::Batcher). Only the database's own limits end its wait.
    pub fn write_blocking<T, E: From<StoreError>>(
        &self,
        operation: &'static str,
        mut job: impl FnMut(&mut Conn) -> Result<T, E>,
    ) -> Result<T, E> {
        let (pool, notifier) = (&self.inner.writers, &self.inner.notifier);
        let _permit = self.inner.runtime.block_on(pool.permit(operation))?;
        self.work(pool, operation, self.batch.clone(), &mut job, |conn, job| attempt_write(conn, job, notifier))
    }

    /// How long a caller waits that would wait for `usual`: less while the database is known to be away.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        self.inner.reach.limit(usual)
    }

    /// The same database for a batch, whose jobs may extend the wait of all its callers.
    pub(crate) fn for_batch(&self, callers: Deadlines) -> Self {
        Self { inner: Arc::clone(&self.inner), batch: callers }
    }

    /// Subscriptions to what transactions publish.
    pub fn notifier(&self) -> &Notifier {
        &self.inner.notifier
    }

    fn register(&self, registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        let mut pools = vec![("main", Arc::downgrade(&self.inner.readers))];
        if !Arc::ptr_eq(&self.inner.readers, &self.inner.writers) {
            pools = vec![("read", Arc::downgrade(&self.inner.readers)), ("write", Arc::downgrade(&self.inner.writers))];
        }
        self.inner.metrics.register(registry, pools, self.inner.notifier.clone())
    }

    /// Whether the database answers, and a SQLite database can grow; for readiness.
    pub async fn ready(&self) -> Result<(), String> {
        self.read("readiness", |c| c.now()).await.map(|_| ()).map_err(|e: StoreError| e.to_string())?;
        // PostgreSQL has a disk of its own, and answers readers while that is full.
        let is_full = self.inner.file.as_ref().is_some_and(|(path, _)| file::has_no_room(path));
        if is_full { Err("the disk of the server is full".to_owned()) } else { Ok(()) }
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
        let admitted = self.admit(pool, operation).await?;
        let (db, pool, deadline) = (self.clone(), Arc::clone(pool), admitted.deadline.clone());
        let deadlines = Deadlines::one(deadline.clone());
        let span = tracing::Span::current();
        let mut running = self.inner.runtime.spawn_blocking(move || {
            let _entered = span.enter();
            let _admitted = admitted;
            db.work(&pool, operation, deadlines, &mut job, attempt)
        });
        tokio::select! {
            biased;
            outcome = &mut running => match outcome {
                Ok(outcome) => outcome,
                Err(panic) => Err(StoreError::bad_row(operation, panic).into()),
            },
            () = deadline.passed() => Err(self.unanswered(operation, &deadline).into()),
        }
    }

    /// Runs a job on a connection, and again when the connection is the reason for its failure.
    fn work<T, E: From<StoreError>, F>(
        &self,
        pool: &Pool,
        operation: &'static str,
        deadlines: Deadlines,
        job: &mut F,
        attempt: impl Fn(&mut Conn, &mut F) -> Attempt<T, E>,
    ) -> Result<T, E> {
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
        let (outcome, result) = self.try_often(pool, operation, deadlines, job, attempt);
        if matches!(outcome, Outcome::Unavailable) {
            span.record("otel.status_code", "ERROR");
        }
        self.inner.metrics.done(operation, outcome, started.elapsed());
        result
    }

    fn try_often<T, E: From<StoreError>, F>(
        &self,
        pool: &Pool,
        operation: &'static str,
        deadlines: Deadlines,
        job: &mut F,
        attempt: impl Fn(&mut Conn, &mut F) -> Attempt<T, E>,
    ) -> (Outcome, Result<T, E>) {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut conn = match self.connect(pool, operation, &deadlines) {
                Ok(conn) => conn,
                Err(error) => return (Outcome::Unavailable, Err(error.into())),
            };
            let Attempt { result, may_repeat } = attempt(&mut conn, job);
            let state = self.give_back(pool, conn);
            if may_repeat && state != ConnState::Healthy && tries < MAX_TRIES && !deadlines.have_passed() {
                continue;
            }
            let outcome = match (&result, state) {
                (Ok(_), _) => Outcome::Ok,
                (Err(_), ConnState::Broken) => Outcome::Unavailable,
                (Err(_), _) => Outcome::Error,
            };
            return (outcome, result);
        }
    }
}

/// How a run of a job ended, and whether it may run once more if its connection is the reason.
struct Attempt<T, E> {
    result: Result<T, E>,
    may_repeat: bool,
}

fn attempt_read<T, E>(conn: &mut Conn, job: &mut impl FnMut(&mut Conn) -> Result<T, E>) -> Attempt<T, E> {
    let result = job(conn);
    Attempt { may_repeat: result.is_err(), result }
}

fn attempt_write<T, E: From<StoreError>>(
    conn: &mut Conn,
    job: &mut impl FnMut(&mut Conn) -> Result<T, E>,
    notifier: &Notifier,
) -> Attempt<T, E> {
    if let Err(error) = conn.begin() {
        return Attempt { result: Err(error.into()), may_repeat: true };
    }
    match job(conn) {
        Err(error) => {
            conn.rollback();
            Attempt { result: Err(error), may_repeat: true }
        }
        Ok(value) => {
            let committed = conn.commit();
            conn.commit_reserved();
            match committed {
                Ok(()) => {
                    notifier.publish(conn.take_topics());
                    Attempt { result: Ok(value), may_repeat: false }
                }
                // It is not known whether it was committed, so it must not run twice, and what it reserved is counted.
                Err(error) => Attempt { result: Err(error.into()), may_repeat: false },
            }
        }
    }
}

async fn forget_old_keys(inner: std::sync::Weak<Inner>) {
    loop {
        tokio::time::sleep(FORGET_EVERY).await;
        let Some(inner) = inner.upgrade() else { return };
        let db = Db { inner, batch: Deadlines::default() };
        while let Ok(1..) = db.write("forget idempotency keys", |tx| idempotency::forget_old(tx, 500)).await {}
    }
}
