//! The connections of a database: r2d2 with a semaphore in front of it.
//!
//! r2d2 blocks a thread for each caller that waits. The semaphore lets as many callers in as there may be connections,
//! and the others wait for it without a thread. A connection is not tested before use, which would cost a round trip each
//! time: [`crate::Db`] runs a job again when its connection turns out to be broken.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, R2D2Connection};
use diesel::sql_types::BigInt;
use diesel::{PgConnection, QueryResult, QueryableByName, RunQueryDsl, SqliteConnection};
use futures_util::future::BoxFuture;
use r2d2::{ManageConnection, NopErrorHandler};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::StoreError;
use crate::conn::Raw;
use crate::connect::{Settings, Target};
use crate::reach::Reach;

/// How long a job waits for a new connection, at least and at most: as long as for one that others use. Attempts that fail are
/// repeated in the background, at most half of this apart, so this is also how soon a database that is back is noticed.
const CONNECT_TIMEOUTS: [Duration; 2] = [Duration::from_millis(1_500), Duration::from_secs(10)];
/// How long a connection to PostgreSQL is kept that no job uses. In an outage each replica opens as many as it may, and a service that
/// starts then may find none.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A file has room for all.
const IDLE_TIMEOUT_OF_FILE: Duration = Duration::from_secs(600);
/// What a server allows, and the replicas of all services that it has. Each has one connection for wake-ups, and any role sees the names of
/// connections.
const ROOM: &str = "SELECT current_setting('max_connections')::bigint \
                    - current_setting('superuser_reserved_connections')::bigint \
                    - COALESCE(current_setting('reserved_connections', true), '0')::bigint AS allowed, \
                    (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ensemble-wakes') AS replicas";

pub(crate) struct Pool {
    connections: Connections,
    permits: Arc<Semaphore>,
    limit: usize,
    waiting: Arc<AtomicUsize>,
    wait: Duration,
    take_turn: TakeTurn,
}

/// One caller's turn to use a connection. It ends when this is dropped.
pub type Turn = Box<dyn Send>;

/// Waits until it is the turn of the caller for whom the current task works. None: it works for no caller.
pub type TakeTurn = Arc<dyn Fn() -> BoxFuture<'static, Option<Turn>> + Send + Sync>;

/// For jobs that take no turns.
pub(crate) fn without_turns(_each: usize) -> TakeTurn {
    Arc::new(|| Box::pin(ready(None)))
}

enum Connections {
    Pg(r2d2::Pool<ConnectionManager<PgConnection>>),
    Sqlite(r2d2::Pool<ConnectionManager<SqliteConnection>>),
}

/// How much of a pool is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) limit: usize,
    pub(crate) used: usize,
    pub(crate) idle: usize,
    pub(crate) waiting: usize,
}

impl Pool {
    /// Connects to nothing yet. `wait` is how long a caller waits for a permit. One caller has half of the connections at
    /// most: `turns` makes the turns, from how many a caller may have at once. `reach` is notified of every connection.
    pub(crate) fn new(
        target: Target,
        size: usize,
        wait: Duration,
        turns: impl Fn(usize) -> TakeTurn,
        reach: &Arc<Reach>,
    ) -> Arc<Self> {
        let (url, begin) = (target.url(), Begin { settings: target.settings(), reach: Arc::clone(reach) });
        let [shortest, longest] = CONNECT_TIMEOUTS;
        let connect = wait.clamp(shortest, longest);
        let connections = match target {
            Target::Postgres { .. } => Connections::Pg(lazy(url, size, (connect, IDLE_TIMEOUT), begin)),
            Target::SqliteReader(_) | Target::SqliteWriter(_) => {
                Connections::Sqlite(lazy(url, size, (connect, IDLE_TIMEOUT_OF_FILE), begin))
            }
        };
        let (permits, waiting) = (Arc::new(Semaphore::new(size)), Arc::default());
        Arc::new(Self { connections, permits, limit: size, waiting, wait, take_turn: turns((size / 2).max(1)) })
    }

    /// `postgresql` or `sqlite`, as the semantic conventions for spans call them.
    pub(crate) fn system(&self) -> &'static str {
        match self.connections {
            Connections::Pg(_) => "postgresql",
            Connections::Sqlite(_) => "sqlite",
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let idle = match &self.connections {
            Connections::Pg(pool) => pool.state().idle_connections,
            Connections::Sqlite(pool) => pool.state().idle_connections,
        };
        Usage {
            limit: self.limit,
            used: self.limit.saturating_sub(self.permits.available_permits()),
            idle: usize::try_from(idle).unwrap_or(0),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    /// The current caller's turn. A caller that has no turn left waits here, where it delays no other caller.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        (self.take_turn)().await
    }

    /// The right to take one connection.
    pub(crate) async fn permit(&self, operation: &'static str) -> Result<OwnedSemaphorePermit, StoreError> {
        let _waiting = Waiting::new(&self.waiting);
        match timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(StoreError::Unavailable { operation, reason: "all connections are in use".to_owned() }),
        }
    }

    /// The connection that was used last, or a new one. Blocks while connecting. It returns to the pool when it is
    /// dropped, unless diesel considers it broken.
    pub(crate) fn take(&self, operation: &'static str) -> Result<Raw, StoreError> {
        let taken = match &self.connections {
            Connections::Pg(pool) => pool.get().map(Raw::Pg),
            Connections::Sqlite(pool) => pool.get().map(Raw::Sqlite),
        };
        taken.map_err(|error| StoreError::Unavailable { operation, reason: error.to_string() })
    }

    /// Opens the connection that the first job takes. Where a URL names several servers and the first one is silent, that takes longer than a
    /// job waits.
    pub(crate) async fn warm(self: &Arc<Self>, deadline: Instant) {
        loop {
            let pool = Arc::clone(self);
            let taken = tokio::task::spawn_blocking(move || pool.take("open").map(|raw| pool.look_around(raw))).await;
            if matches!(taken, Ok(Ok(()))) || Instant::now() > deadline {
                return;
            }
        }
    }

    /// Says when the connections of all replicas do not fit.
    fn look_around(&self, raw: Raw) {
        let Raw::Pg(mut conn) = raw else { return };
        match Room::of(&mut conn) {
            Ok(room) => {
                if let Some(warning) = room.warning(self.limit) {
                    tracing::warn!("{warning}");
                }
            }
            Err(error) => tracing::debug!("How many connections PostgreSQL allows is not known: {error}"),
        }
    }

    /// Closes the idle connections. What broke one connection most likely broke the others, and each would cost a job one
    /// of its tries.
    pub(crate) fn close_idle(&self) {
        let idle = || match &self.connections {
            Connections::Pg(pool) => pool.try_get().map(Raw::Pg),
            Connections::Sqlite(pool) => pool.try_get().map(Raw::Sqlite),
        };
        while let Some(mut idle) = idle() {
            idle.mark_broken();
        }
    }
}

/// Connections of a PostgreSQL server.
#[derive(Clone, Copy, Debug, QueryableByName)]
struct Room {
    /// For all programs together that are no administrators.
    #[diesel(sql_type = BigInt)]
    allowed: i64,
    /// Replicas of all services that run already.
    #[diesel(sql_type = BigInt)]
    replicas: i64,
}

impl Room {
    fn of(conn: &mut PgConnection) -> QueryResult<Self> {
        diesel::sql_query(ROOM).get_result(conn)
    }

    /// What to say when all replicas together, with this one, may open more than the server allows. All have pools of one size, unless
    /// they are configured differently.
    fn warning(self, pool: usize) -> Option<String> {
        let Self { allowed, replicas } = self;
        let (replicas, each) = (replicas.saturating_add(1), i64::try_from(pool).unwrap_or(i64::MAX).saturating_add(1));
        let all = replicas.saturating_mul(each);
        (all > allowed).then(|| {
            format!(
                "{replicas} replicas of services with {each} connections each may open {all}, and PostgreSQL allows {allowed}. Under load or \
                 after an outage some are refused, and a service that starts then ends. Lower DATABASE_POOL_SIZE or raise max_connections"
            )
        })
    }
}

/// What is done with a new connection.
#[derive(Debug)]
struct Begin {
    settings: Settings,
    reach: Arc<Reach>,
}

impl<C: SimpleConnection + 'static> CustomizeConnection<C, diesel::r2d2::Error> for Begin {
    fn on_acquire(&self, conn: &mut C) -> Result<(), diesel::r2d2::Error> {
        self.settings.apply(conn)?;
        self.reach.answered();
        Ok(())
    }
}

/// Opens a connection when one is needed and none is idle.
fn lazy<C>(
    url: String,
    size: usize,
    (connect, idle): (Duration, Duration),
    begin: impl CustomizeConnection<C, diesel::r2d2::Error>,
) -> r2d2::Pool<ConnectionManager<C>>
where
    C: R2D2Connection + Send + 'static,
    ConnectionManager<C>: ManageConnection<Connection = C, Error = diesel::r2d2::Error>,
{
    r2d2::Pool::builder()
        .max_size(u32::try_from(size).unwrap_or(u32::MAX))
        .min_idle(Some(0))
        .idle_timeout(Some(idle))
        .test_on_check_out(false)
        .connection_timeout(connect)
        .connection_customizer(Box::new(begin))
        // The job that waits reports the error.
        .error_handler(Box::new(NopErrorHandler))
        .build_unchecked(ConnectionManager::new(url))
}

/// Counts a caller that waits for a permit, until it is dropped.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use diesel::Connection;
    use ensemble_testkit::postgres::{Cluster, Durability};

    use super::*;

    #[test]
    fn the_pools_of_all_replicas_are_added_up() {
        assert_eq!(Room { allowed: 97, replicas: 4 }.warning(16), None, "85 connections");
        let warning = Room { allowed: 97, replicas: 5 }.warning(16).unwrap();
        assert!(warning.contains("6 replicas") && warning.contains("102") && warning.contains("97"), "{warning}");
        assert!(Room { allowed: 17, replicas: 0 }.warning(17).is_some(), "one that is too large by itself");
    }

    #[test]
    fn any_role_sees_what_is_allowed_and_who_runs() {
        let cluster = Cluster::start_with(Durability::None, &["max_connections=20"]).unwrap();
        let url = cluster.url("postgres");
        let mut owner = PgConnection::establish(&url).unwrap();
        owner.batch_execute("CREATE ROLE guest LOGIN").unwrap();
        let named = format!("{url}?application_name=ensemble-wakes");
        let _replicas = [&named, &named].map(|named| PgConnection::establish(named).unwrap());
        let mut guest = PgConnection::establish(&url.replace("postgres@", "guest@")).unwrap();
        let Room { allowed, replicas } = Room::of(&mut guest).unwrap();
        assert_eq!((allowed, replicas), (17, 2));
    }
}
