//! Opens connections, with everything set that a connection of ours has.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::{Connection, PgConnection, SqliteConnection};

use crate::conn::Raw;
use crate::{Conn, StoreError};

/// How to reach a database.
#[derive(Clone, Debug)]
pub(crate) enum Connector {
    Postgres { url: String, statement_timeout: Duration },
    SqliteReader(PathBuf),
    SqliteWriter(PathBuf),
}

/// A dead peer is noticed within seconds, not with the kernel's deadline of minutes; and one that is back is noticed within
/// 2 s, because the pauses between two attempts of the kernel have not grown larger by then. A URL that sets
/// one of these keeps its own value (libpq, section 34.1.2).
const LIBPQ_DEFAULTS: &[(&str, &str)] = &[
    ("connect_timeout", "2"),
    ("keepalives_idle", "2"),
    ("keepalives_interval", "1"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "3000"),
    ("application_name", "ensemble"),
];

/// Errors are told apart by their texts where diesel keeps the SQLSTATE to itself ([`crate::error::sort`]), so they should
/// come untranslated. Not every role may say so; for one that may not, [`crate::language`] looks once.
const PLAIN_MESSAGES: &str = "SELECT CASE WHEN has_parameter_privilege('lc_messages', 'SET') \
                              THEN set_config('lc_messages', 'C', false) END";

/// A statement is planned once for each connection and its plan kept. The first ones are made while the tables are empty,
/// so they must not read whole tables, which only seems cheap then. A plan that has to read one all the same looks so dear
/// that PostgreSQL would compile it first, for seconds. An index for some rows is found only by a condition that is written
/// out: a value does not tell the plan enough.
const LASTING_PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off";

const SQLITE_COMMON: &str = "PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;";
/// FULL makes every commit durable in WAL mode, as PostgreSQL's are (sqlite.org/pragma.html#pragma_synchronous).
const SQLITE_WRITER: &str =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;";
const SQLITE_READER: &str = "PRAGMA query_only = ON;";

impl Connector {
    pub(crate) fn connect(&self, operation: &'static str) -> Result<Conn, StoreError> {
        let unavailable =
            |error: &dyn std::fmt::Display| StoreError::Unavailable { operation, reason: error.to_string() };
        let raw = match self {
            Self::Postgres { url, statement_timeout } => {
                let mut pg = PgConnection::establish(&with_defaults(url)).map_err(|e| unavailable(&e))?;
                let settings = format!(
                    "{PLAIN_MESSAGES}; SET statement_timeout = {}; SET idle_in_transaction_session_timeout = 10000; \
                     SET timezone = 'UTC'; {LASTING_PLANS}",
                    statement_timeout.as_millis()
                );
                pg.batch_execute(&settings).map_err(|e| unavailable(&e))?;
                Raw::Pg(pg)
            }
            Self::SqliteReader(path) => Raw::Sqlite(open_sqlite(path, SQLITE_READER).map_err(|e| unavailable(&e))?),
            Self::SqliteWriter(path) => Raw::Sqlite(open_sqlite(path, SQLITE_WRITER).map_err(|e| unavailable(&e))?),
        };
        Ok(Conn::new(raw))
    }
}

/// SQLite allows many processes on one file; we do not, because wake-ups and the writer's queue live in this one.
pub(crate) fn lock_file(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options().create(true).truncate(false).write(true).open(name)?;
    file.try_lock().map_err(|_| std::io::Error::other("another process has this database open"))?;
    Ok(file)
}

fn open_sqlite(path: &Path, pragmas: &str) -> Result<SqliteConnection, String> {
    let name = path.to_str().ok_or("the path is not UTF-8")?;
    let mut conn = SqliteConnection::establish(name).map_err(|e| e.to_string())?;
    conn.batch_execute(SQLITE_COMMON).and_then(|()| conn.batch_execute(pragmas)).map_err(|e| e.to_string())?;
    Ok(conn)
}

fn with_defaults(url: &str) -> String {
    let mut url = url.to_owned();
    for (name, value) in LIBPQ_DEFAULTS {
        let set = url.contains(&format!("?{name}=")) || url.contains(&format!("&{name}="));
        if !set {
            let separator = if url.contains('?') { '&' } else { '?' };
            url.push_str(&format!("{separator}{name}={value}"));
        }
    }
    url
}
