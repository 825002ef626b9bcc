//! Where a database is, and the limits of its use.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A database of one service.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// `postgres://user:password@host:port/name?…`, as libpq reads it.
    Postgres(String),
    /// `sqlite:path/to/file.db`; the folder is made when it is missing.
    Sqlite(PathBuf),
}

/// Who changes the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrate {
    /// This process, under a lock, before it serves.
    Auto,
    /// The command `<service> migrate`; a schema that is behind is an error.
    Check,
}

/// The settings of [`crate::Db::open`]. [`database_config!`](crate::database_config) reads them from variables.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    pub url: DatabaseUrl,
    /// Connections at most; on SQLite: connections that read, in addition to the one that writes.
    pub pool_size: usize,
    pub migrate: Migrate,
    /// How long a call waits for a connection before it is [`crate::StoreError::Unavailable`].
    pub pool_wait: Duration,
    /// The server ends a statement after this.
    pub statement_timeout: Duration,
    /// How long a caller waits for one read or write on PostgreSQL in all, including the wait for a connection. A server
    /// that hangs or cannot be reached ends no statement, so this limit is what answers the caller, within the 2 s that
    /// the interface promises.
    pub timeout: Duration,
    /// How long the start waits for a database that cannot be reached yet.
    pub start_timeout: Duration,
}

impl DatabaseConfig {
    pub fn new(url: DatabaseUrl) -> Self {
        Self {
            url,
            pool_size: 16,
            migrate: Migrate::Auto,
            pool_wait: Duration::from_millis(500),
            statement_timeout: Duration::from_secs(2),
            timeout: Duration::from_millis(1_750),
            start_timeout: Duration::from_secs(60),
        }
    }
}

/// Reads a [`DatabaseConfig`] from anything with `parse` and `parse_secret`, which is what a service's variables
/// have: `database_config!(vars, "session-store")`.
#[macro_export]
macro_rules! database_config {
    ($vars:expr, $service:literal) => {{
        let url = $vars.parse_secret(
            "DATABASE_URL",
            concat!(
                "postgres://user:password@host/name, or sqlite:path/to/file.db; default sqlite:data/",
                $service,
                ".db"
            ),
            $crate::DatabaseUrl::Sqlite(concat!("data/", $service, ".db").into()),
        );
        let mut config = $crate::DatabaseConfig::new(url);
        config.pool_size = $vars
            .parse(
                "DATABASE_POOL_SIZE",
                "connections at most; those of all services must fit max_connections",
                config.pool_size,
            )
            .clamp(1, 1_000);
        config.migrate = $vars.parse(
            "MIGRATE",
            "auto: bring the schema up to date; check: refuse one that is behind",
            config.migrate,
        );
        config.pool_wait = $vars.millis("DATABASE_POOL_WAIT_MS", "how long a request waits for a connection", 500);
        config.timeout = $vars.millis(
            "DATABASE_TIMEOUT_MS",
            "how long a call waits for the database in all; SQLite 4500 at least",
            1_750,
        );
        // Longer, so that a caller gets its answer before the statement ends.
        config.statement_timeout = config.timeout + ::std::time::Duration::from_millis(250);
        config.start_timeout = $vars.millis(
            "DATABASE_START_TIMEOUT_MS",
            "how long a start waits for a database that is not there yet",
            60_000,
        );
        config
    }};
}

impl FromStr for DatabaseUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
                Ok(Self::Postgres(text.into()))
            }
            _ => Err("must begin with postgres:// or sqlite:"),
        }
    }
}

/// Without the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => match url.rsplit_once('@') {
                Some((_, place)) => write!(f, "postgres://…@{}", place.split('?').next().unwrap_or(place)),
                None => f.write_str("postgres://…"),
            },
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Migrate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "check" => Ok(Self::Check),
            _ => Err("must be auto or check"),
        }
    }
}

impl fmt::Display for Migrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Check => "check",
        })
    }
}
