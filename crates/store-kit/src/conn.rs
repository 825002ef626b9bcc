//! One connection, whichever database it leads to.

use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::{PgConnection, QueryResult, RunQueryDsl, SqliteConnection};
use ensemble_types::time::Timestamp;

use crate::deadline::Deadline;
use crate::error::{ConnState, sort};
use crate::wake::Topic;
use crate::{StoreError, types};

/// What a job of [`crate::Db::read`] or [`crate::Db::write`] gets. Run queries with [`on!`](crate::on).
pub struct Conn {
    /// For [`on!`](crate::on).
    pub raw: Raw,
    operation: &'static str,
    state: ConnState,
    /// A statement of this transaction failed; PostgreSQL will not commit it.
    failed: bool,
    wakes: Vec<Topic>,
    deadline: Option<Deadline>,
}

/// Something that one transaction at a time may do, on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisoryLock(pub i64);

impl AdvisoryLock {
    /// Waits for it and holds it until the transaction ends (PostgreSQL's manual, section 13.3.5).
    fn sql(self) -> String {
        format!("SELECT pg_advisory_xact_lock({})", self.0)
    }
}

/// When a commit reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    AtCommit,
    Later,
}

/// The connection itself.
pub enum Raw {
    Pg(PgConnection),
    Sqlite(SqliteConnection),
}

/// Runs a query on whichever database the [`Conn`] leads to. Errors become [`StoreError`]s with the operation's name.
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
            $crate::Raw::Pg($pg) => $pg_body,
            $crate::Raw::Sqlite($sqlite) => $sqlite_body,
        };
        conn.seen(outcome)
    }};
}

impl Conn {
    pub(crate) fn new(raw: Raw) -> Self {
        Self { raw, operation: "connect", state: ConnState::Healthy, failed: false, wakes: Vec::new(), deadline: None }
    }

    /// The database's clock; whole milliseconds on SQLite.
    pub fn now(&mut self) -> Result<Timestamp, StoreError> {
        on!(self, |c| diesel::select(types::now()).get_result(c))
    }

    /// Notifier whoever waits for this, here and on the other replicas, once the transaction is committed.
    pub fn notify(&mut self, topic: Topic) {
        if !self.wakes.contains(&topic) {
            self.wakes.push(topic);
        }
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

    /// Takes note of how a query went; called by [`on!`](crate::on).
    pub fn seen<T>(&mut self, outcome: QueryResult<T>) -> Result<T, StoreError> {
        outcome.map_err(|error| {
            let (error, state) = sort(self.operation, error);
            self.failed = true;
            if self.state != ConnState::Broken {
                self.state = state;
            }
            error
        })
    }

    /// Lets the caller wait longer for this job, because it is about to wait itself, or has much to do.
    pub fn extend_deadline(&self, by: Duration) {
        if let Some(deadline) = &self.deadline {
            deadline.extend(by);
        }
    }

    /// Runs `waiting`, which may wait for others for `longest`; what it takes does not count for the caller's deadline.
    pub(crate) fn while_waiting<T>(&mut self, longest: Duration, waiting: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        self.extend_deadline(longest);
        let outcome = waiting(self);
        if let Some(deadline) = &self.deadline {
            // What was not needed is taken back: should the database go away after this, the caller is told soon.
            deadline.shorten(longest.saturating_sub(begun.elapsed()));
        }
        outcome
    }

    pub(crate) fn enter(&mut self, operation: &'static str, deadline: Option<Deadline>) {
        (self.operation, self.deadline) = (operation, deadline);
        (self.state, self.failed) = (ConnState::Healthy, false);
        self.wakes.clear();
    }

    pub(crate) fn state(&self) -> ConnState {
        self.state
    }

    pub(crate) fn take_wakes(&mut self) -> Vec<Topic> {
        std::mem::take(&mut self.wakes)
    }

    /// Waits for a turn, and keeps it until the transaction ends. SQLite's writers take turns anyway.
    pub fn lock(&mut self, turn: AdvisoryLock) -> Result<(), StoreError> {
        if self.is_postgres() { self.batch(&turn.sql()) } else { Ok(()) }
    }

    /// Begins, and takes a turn in the same way to the database.
    pub(crate) fn begin(&mut self, flush: Flush, turn: Option<AdvisoryLock>) -> Result<(), StoreError> {
        let (postgres, sqlite) = match flush {
            Flush::AtCommit => ("BEGIN", "BEGIN IMMEDIATE"),
            Flush::Later => (
                "BEGIN; SET LOCAL synchronous_commit = off",
                // It cannot be changed inside a transaction (sqlite.org/pragma.html#pragma_synchronous).
                "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE",
            ),
        };
        let in_turn = turn.map(|turn| format!("{postgres}; {}", turn.sql()));
        let postgres = in_turn.as_deref().unwrap_or(postgres);
        on!(
            self,
            Pg | c | AnsiTransactionManager::begin_transaction_sql(c, postgres),
            Sqlite | c | AnsiTransactionManager::begin_transaction_sql(c, sqlite)
        )
    }

    /// After a transaction that was not to be flushed: the next one is. A connection that cannot be brought back is not
    /// used again.
    pub(crate) fn flush_again(&mut self) {
        if !self.is_postgres() && self.batch("PRAGMA synchronous = FULL").is_err() {
            self.state = ConnState::Broken;
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.failed {
            // PostgreSQL answers the COMMIT of a failed transaction with a rollback and no error.
            self.rollback();
            let why = "a statement failed, and the job went on as if it had not";
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
