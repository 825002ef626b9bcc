//! One connection, to either database.

use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::r2d2::{ConnectionManager, PooledConnection};
use diesel::sql_types::Text;
use diesel::{PgConnection, QueryResult, RunQueryDsl, SqliteConnection};
use ensemble_types::time::Timestamp;

use crate::deadline::Deadlines;
use crate::error::{ConnState, classify};
use crate::notifier::Topic;
use crate::{Reserved, StoreError, types};

/// What a job of [`crate::Db::read`] or [`crate::Db::write`] gets. Run queries with [`on!`](crate::on).
pub struct Conn {
    /// For [`on!`](crate::on).
    #[doc(hidden)]
    pub raw: Raw,
    operation: &'static str,
    state: ConnState,
    /// A statement of this transaction failed, so PostgreSQL will not commit it.
    failed: bool,
    topics: Vec<Topic>,
    reserved: Vec<Reserved>,
    deadlines: Deadlines,
}

/// The connection itself. It returns to its pool when it is dropped.
#[doc(hidden)]
pub enum Raw {
    Pg(PooledConnection<ConnectionManager<PgConnection>>),
    Sqlite(PooledConnection<ConnectionManager<SqliteConnection>>),
}

impl Raw {
    /// Lets diesel consider the connection broken, so that the pool closes it instead of taking it back.
    pub(crate) fn mark_broken(&mut self) {
        match self {
            Self::Pg(c) => AnsiTransactionManager::transaction_manager_status_mut(&mut **c).set_in_error(),
            Self::Sqlite(c) => AnsiTransactionManager::transaction_manager_status_mut(&mut **c).set_in_error(),
        }
    }
}

/// Runs a query on the database that the [`Conn`] leads to. Errors become [`StoreError`]s with the operation's name.
///
/// ```text
/// let row: Option<Row> = on!(c, |c| sessions::table.find(id).select(Row::as_select()).first(c).optional())?;
/// on!(c,
///     Pg |c| queue::table.limit(10).for_update().skip_locked().load::<Job>(c),
///     Sqlite |c| queue::table.limit(10).load::<Job>(c))?;
/// ```
#[macro_export]
macro_rules! on {
    ($conn:expr, |$c:ident| $body:expr) => {
        $crate::on!($conn, Pg | $c | $body, Sqlite | $c | $body)
    };
    ($conn:expr, Pg |$pg:ident| $pg_body:expr, Sqlite |$sqlite:ident| $sqlite_body:expr $(,)?) => {{
        let conn: &mut $crate::Conn = $conn;
        let outcome = match &mut conn.raw {
            $crate::Raw::Pg(pooled) => {
                let $pg = &mut **pooled;
                $pg_body
            }
            $crate::Raw::Sqlite(pooled) => {
                let $sqlite = &mut **pooled;
                $sqlite_body
            }
        };
        conn.record(outcome)
    }};
}

impl Conn {
    pub(crate) fn new(raw: Raw, operation: &'static str, deadlines: Deadlines) -> Self {
        let (topics, reserved) = (Vec::new(), Vec::new());
        Self { raw, operation, state: ConnState::Healthy, failed: false, topics, reserved, deadlines }
    }

    /// The database's clock; whole milliseconds on SQLite.
    pub fn now(&mut self) -> Result<Timestamp, StoreError> {
        on!(self, |c| diesel::select(types::now()).get_result(c))
    }

    /// Publishes the topic once the transaction is committed, here and on the other replicas.
    pub fn notify(&mut self, topic: Topic) {
        if !self.topics.contains(&topic) {
            self.topics.push(topic);
        }
    }

    /// Counts the reservation for good once the transaction is committed, and gives it back when it is rolled back, whether
    /// or not the caller still waits.
    pub fn hold(&mut self, reserved: Reserved) {
        self.reserved.push(reserved);
    }

    /// The name of the operation, for errors of your own.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.raw, Raw::Pg(_))
    }

    /// Runs several statements without parameters.
    pub fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        use diesel::connection::SimpleConnection;
        on!(self, |c| c.batch_execute(sql))
    }

    /// Commits this transaction before the disk has it, for work that is done again after a crash: those who wait for the disk
    /// do not wait behind it (postgresql.org/docs/current/wal-async-commit.html). SQLite waits.
    pub fn commit_without_waiting(&mut self) -> Result<(), StoreError> {
        if self.is_postgres() { self.batch("SET LOCAL synchronous_commit = off") } else { Ok(()) }
    }

    /// Turns an error of diesel into ours and remembers what it says about the connection; called by [`on!`](crate::on).
    #[doc(hidden)]
    pub fn record<T>(&mut self, outcome: QueryResult<T>) -> Result<T, StoreError> {
        outcome.map_err(|error| {
            let (error, state) = classify(self.operation, error);
            self.failed = true;
            if self.state != ConnState::Broken {
                self.state = state;
            }
            error
        })
    }

    /// Lets the callers of this job wait longer, because the job is about to wait itself or has much to do.
    pub fn extend_deadline(&self, by: Duration) {
        self.deadlines.extend(by);
    }

    /// Runs `waiting`, which may wait for other transactions for up to `longest`. The time that it takes does not count
    /// for the caller's deadline.
    pub(crate) fn while_waiting<T>(&mut self, longest: Duration, waiting: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        self.extend_deadline(longest);
        let outcome = waiting(self);
        // Take back what was not needed, so that a database that goes away after this is reported in time.
        self.deadlines.shorten(longest.saturating_sub(begun.elapsed()));
        outcome
    }

    pub(crate) fn state(&self) -> ConnState {
        self.state
    }

    pub(crate) fn take_topics(&mut self) -> Vec<Topic> {
        std::mem::take(&mut self.topics)
    }

    pub(crate) fn commit_reserved(&mut self) {
        self.reserved.drain(..).for_each(Reserved::commit);
    }

    /// Waits until no other transaction on any replica holds the lock with this name, and holds it until this transaction
    /// ends (PostgreSQL's manual, section 13.3.5, "Advisory Locks"). SQLite has one writer, so it needs none.
    pub fn lock(&mut self, name: &str) -> Result<(), StoreError> {
        let lock = diesel::sql_query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))").bind::<Text, _>(name);
        on!(self, Pg | c | lock.execute(c), Sqlite | _c | Ok(0)).map(drop)
    }

    /// Like [`Conn::lock`], but others may hold the lock with this name in the same way. Waits only for a transaction that
    /// holds it alone.
    pub fn lock_shared(&mut self, name: &str) -> Result<(), StoreError> {
        let lock =
            diesel::sql_query("SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))").bind::<Text, _>(name);
        on!(self, Pg | c | lock.execute(c), Sqlite | _c | Ok(0)).map(drop)
    }

    pub(crate) fn begin(&mut self) -> Result<(), StoreError> {
        on!(
            self,
            Pg | c | AnsiTransactionManager::begin_transaction_sql(c, "BEGIN"),
            // The writer's lock is taken at the beginning, because a transaction that takes it later may have to start again.
            Sqlite | c | AnsiTransactionManager::begin_transaction_sql(c, "BEGIN IMMEDIATE")
        )
    }

    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.failed {
            // PostgreSQL answers the COMMIT of a failed transaction with a rollback and no error.
            self.rollback();
            let why = "a statement failed, and the job continued as if it had not";
            return Err(StoreError::bad_row(self.operation, why));
        }
        on!(self, |c| AnsiTransactionManager::commit_transaction(c))
    }

    pub(crate) fn rollback(&mut self) {
        let state = self.state;
        let rolled_back = on!(self, |c| AnsiTransactionManager::rollback_transaction(c));
        match rolled_back {
            Ok(()) => self.state = state,
            // A connection whose transaction cannot be ended must not be used again.
            Err(_) => self.state = ConnState::Broken,
        }
    }
}
