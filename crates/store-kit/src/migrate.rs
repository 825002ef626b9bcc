//! Brings a schema up to date, or reports that it is behind.

use diesel::backend::Backend;
use diesel::connection::SimpleConnection;
use diesel::declare_sql_function;
use diesel::migration::Migration;
use diesel::sql_types::{Binary, Text};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use ensemble_types::refs::Ref;
use uuid::Uuid;

use crate::conn::Raw;
use crate::{Conn, Migrate};

/// The migrations of a service, for each database. Make it with [`migrations!`](crate::migrations).
#[derive(Clone, Copy)]
pub struct Migrations {
    pub postgres: fn() -> EmbeddedMigrations,
    pub sqlite: fn() -> EmbeddedMigrations,
}

/// The folders `migrations/postgres` and `migrations/sqlite` of the calling crate, built in. They hold
/// `<date>-<time>_<name>/{up,down}.sql`, applied in the order of their names. The crate needs `diesel_migrations` among its
/// dependencies and a `build.rs` that prints `cargo:rerun-if-changed=migrations`.
#[macro_export]
macro_rules! migrations {
    () => {{
        const POSTGRES: ::diesel_migrations::EmbeddedMigrations =
            ::diesel_migrations::embed_migrations!("migrations/postgres");
        const SQLITE: ::diesel_migrations::EmbeddedMigrations =
            ::diesel_migrations::embed_migrations!("migrations/sqlite");
        $crate::Migrations { postgres: || POSTGRES, sqlite: || SQLITE }
    }};
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database {database} cannot be opened: {reason}")]
    Unreachable { database: String, reason: String },
    /// A file of SQLite.
    #[error(
        "{database} has lost data: {reason}. Restore a backup, or move the file away, together with the files next to it that \
         end in -wal and -shm, to start without its data"
    )]
    Damaged { database: String, reason: String },
    #[error("the schema of {database} could not be brought up to date: {reason}")]
    Migration { database: String, reason: String },
    #[error("the schema of {database} is behind ({pending} missing); run the service's `migrate` command first")]
    Behind { database: String, pending: String },
    #[error("the metrics of the database cannot be exported: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// What migrations of SQLite can call, which has no hashes.
#[declare_sql_function]
extern "SQL" {
    /// The ref of a row with this UUID. Empty for what is no UUID.
    fn ref_of_id(id: Binary) -> Text;
    /// The ref of a row with this name.
    fn ref_of_name(name: Text) -> Text;
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Migrations of every service's database: the table of `crate::idempotency`.
const OWN_POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");
const OWN_SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// All services use the same number, because each has a database of its own.
const ADVISORY_LOCK: &str = "SELECT pg_advisory_lock(7236838213550131)";
const ADVISORY_UNLOCK: &str = "SELECT pg_advisory_unlock(7236838213550131)";

pub(crate) fn migrate(conn: &mut Conn, migrations: Migrations, mode: Migrate, database: &str) -> Result<(), OpenError> {
    let failed = |reason: String| OpenError::Migration { database: database.to_owned(), reason };
    let locks = conn.is_postgres() && mode == Migrate::Auto;
    if locks {
        // Replicas that start together wait for each other here.
        conn.batch("SET statement_timeout = 0").map_err(|e| failed(e.to_string()))?;
        conn.batch(ADVISORY_LOCK).map_err(|e| failed(e.to_string()))?;
    }
    let pending = match &mut conn.raw {
        Raw::Pg(c) => run_all(&mut **c, OWN_POSTGRES, (migrations.postgres)(), mode),
        Raw::Sqlite(c) => {
            let of_id = |id: Vec<u8>| Uuid::from_slice(&id).map(|id| Ref::of(&id).to_string()).unwrap_or_default();
            ref_of_id_utils::register_impl(c, of_id)
                .and_then(|()| ref_of_name_utils::register_impl(c, |name: String| Ref::of(&name).to_string()))
                .map_err(|e| failed(e.to_string()))?;
            run_all(&mut **c, OWN_SQLITE, (migrations.sqlite)(), mode)
        }
    };
    if locks {
        conn.batch(ADVISORY_UNLOCK).map_err(|e| failed(e.to_string()))?;
    }
    let pending = pending.map_err(|e| failed(e.to_string()))?;
    if pending.is_empty() {
        return Ok(());
    }
    Err(OpenError::Behind { database: database.to_owned(), pending: pending.join(", ") })
}

/// Applies what is missing, or gives its names.
fn run_all<C, DB>(
    conn: &mut C,
    ours: EmbeddedMigrations,
    services: EmbeddedMigrations,
    mode: Migrate,
) -> Result<Vec<String>, Failure>
where
    C: MigrationHarness<DB> + SimpleConnection,
    DB: Backend,
{
    let is_new = conn.applied_migrations()?.is_empty();
    let pending: Vec<Box<dyn Migration<DB>>> =
        conn.pending_migrations(ours)?.into_iter().chain(conn.pending_migrations(services)?).collect();
    if mode == Migrate::Check {
        return Ok(pending.iter().map(|migration| migration.name().to_string()).collect());
    }
    for migration in &pending {
        tracing::info!(migration = %migration.name(), "Migrating");
        conn.run_migration(migration)?;
    }
    if !is_new && !pending.is_empty() {
        // New columns and indexes have no statistics yet. In a new database there is nothing to count, and PostgreSQL
        // plans better for a table that it knows nothing about than for one that it knows to be empty.
        conn.batch_execute("ANALYZE")?;
    }
    Ok(Vec::new())
}
