//! Brings a schema up to date, or says that it is not.

use diesel::migration::MigrationSource;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

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
    #[error("the schema of {database} could not be brought up to date: {reason}")]
    Migration { database: String, reason: String },
    #[error("the schema of {database} is behind ({pending} missing); run the service's `migrate` command first")]
    Behind { database: String, pending: String },
}

/// What every database of ours has: the table of `crate::idempotency`.
const OWN_POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");
const OWN_SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// One number for all services: they have databases of their own.
const ADVISORY_LOCK: &str = "SELECT pg_advisory_lock(7236838213550131)";
const ADVISORY_UNLOCK: &str = "SELECT pg_advisory_unlock(7236838213550131)";

pub(crate) fn migrate(conn: &mut Conn, migrations: Migrations, how: Migrate, database: &str) -> Result<(), OpenError> {
    let failed = |reason: String| OpenError::Migration { database: database.to_owned(), reason };
    let postgres = conn.is_postgres();
    if postgres && how == Migrate::Auto {
        // Replicas that start together wait for each other here.
        conn.batch("SET statement_timeout = 0").map_err(|e| failed(e.to_string()))?;
        conn.batch(ADVISORY_LOCK).map_err(|e| failed(e.to_string()))?;
    }
    let pending = match &mut conn.raw {
        Raw::Pg(c) => run(c, OWN_POSTGRES, how).and_then(|own| Ok([own, run(c, (migrations.postgres)(), how)?])),
        Raw::Sqlite(c) => run(c, OWN_SQLITE, how).and_then(|own| Ok([own, run(c, (migrations.sqlite)(), how)?])),
    };
    if postgres && how == Migrate::Auto {
        conn.batch(ADVISORY_UNLOCK).map_err(|e| failed(e.to_string()))?;
    }
    let pending = pending.map_err(|e| failed(e.to_string()))?.concat();
    if pending.is_empty() {
        return Ok(());
    }
    Err(OpenError::Behind { database: database.to_owned(), pending: pending.join(", ") })
}

/// Applies what is missing, or lists it.
fn run<C, DB>(
    conn: &mut C,
    source: impl MigrationSource<DB>,
    how: Migrate,
) -> Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>>
where
    C: MigrationHarness<DB>,
    DB: diesel::backend::Backend,
{
    let pending = conn.pending_migrations(source)?;
    let names = pending.iter().map(|m| m.name().to_string()).collect();
    if how == Migrate::Check {
        return Ok(names);
    }
    for migration in &pending {
        tracing::info!(migration = %migration.name(), "Migrating");
        conn.run_migration(migration)?;
    }
    Ok(Vec::new())
}
