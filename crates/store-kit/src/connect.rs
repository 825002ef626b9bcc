//! Where a database is, and what is set on each of its connections.

use std::path::PathBuf;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::r2d2::Error;

/// A database and the way it is used.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Postgres { url: String, statement_timeout: Duration },
    SqliteReader(PathBuf),
    SqliteWriter(PathBuf),
}

/// The statements that a new connection begins with.
#[derive(Clone, Debug)]
pub(crate) struct Settings(String);

/// libpq's options (PostgreSQL's manual, section 34.1.2) that a URL gets unless it sets them itself. They notice a dead
/// server within seconds instead of the kernel's minutes. They also notice its return within 2 s, because the kernel's
/// pauses between two attempts have not grown larger by then.
const LIBPQ_DEFAULTS: &[(&str, &str)] = &[
    ("connect_timeout", "2"),
    ("keepalives_idle", "2"),
    ("keepalives_interval", "1"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "3000"),
    ("application_name", "ensemble"),
];

/// [`crate::error::classify`] recognises some errors by their English texts. Only roles with the privilege may choose the
/// language of messages, and asking for it in the connection's options without the privilege would be a fatal error.
const ENGLISH_MESSAGES: &str = "SELECT CASE WHEN has_parameter_privilege('lc_messages', 'SET') \
                                THEN set_config('lc_messages', 'C', false) END";

const SQLITE_COMMON: &str = "PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;";
/// FULL makes every commit durable in WAL mode, as PostgreSQL's are (sqlite.org/pragma.html#pragma_synchronous).
const SQLITE_WRITER: &str =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;";
const SQLITE_READER: &str = "PRAGMA query_only = ON;";

impl Target {
    /// As diesel takes it: a URL of libpq, or a path.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres { url, .. } => with_defaults(url),
            Self::SqliteReader(path) | Self::SqliteWriter(path) => path.to_string_lossy().into_owned(),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings(match self {
            Self::Postgres { statement_timeout, .. } => format!(
                "{ENGLISH_MESSAGES}; SET statement_timeout = {}; SET idle_in_transaction_session_timeout = 10000; \
                 SET timezone = 'UTC'",
                statement_timeout.as_millis()
            ),
            Self::SqliteReader(_) => format!("{SQLITE_COMMON} {SQLITE_READER}"),
            Self::SqliteWriter(_) => format!("{SQLITE_COMMON} {SQLITE_WRITER}"),
        })
    }
}

impl Settings {
    pub(crate) fn apply(&self, conn: &mut impl SimpleConnection) -> Result<(), Error> {
        conn.batch_execute(&self.0).map_err(Error::QueryError)
    }
}

fn with_defaults(url: &str) -> String {
    let mut url = url.to_owned();
    for (name, value) in LIBPQ_DEFAULTS {
        let is_set = url.contains(&format!("?{name}=")) || url.contains(&format!("&{name}="));
        if !is_set {
            let separator = if url.contains('?') { '&' } else { '?' };
            url.push_str(&format!("{separator}{name}={value}"));
        }
    }
    url
}
