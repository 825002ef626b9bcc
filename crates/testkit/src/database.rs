//! A database for each test: a clone of a migrated template on PostgreSQL, a file on SQLite.

use std::collections::HashMap;
use std::future::Future;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use ensemble_store_kit::{DatabaseConfig, DatabaseUrl, Db, Migrations};
use ensemble_types::ids::TokenId;
use tempfile::TempDir;
use tokio::sync::{Mutex, OnceCell};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::{plans, statements};

/// Which database a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Postgres,
    Sqlite,
}

/// An empty database with the schema of a service. Removed when dropped.
#[derive(Debug)]
pub struct TestDatabase {
    /// For `DATABASE_URL`.
    pub url: String,
    /// Also usable for other files of the test.
    pub folder: TempDir,
    name: Option<String>,
}

/// The prefix of our databases on a shared server, so that databases of killed runs can be recognised.
const PREFIX: &str = "ensemble_test_";
/// Milliseconds.
const HOUR: u64 = 3_600_000;
/// A file with statements that each template gets after its migrations: what operators do to a schema, such as partitions.
const TEST_TEMPLATE_SQL: &str = "TEST_TEMPLATE_SQL";
const TEMPLATE_PREFIX: &str = "ensemble_template_";

impl TestDatabase {
    /// `service` is part of the template's name, so that different schemas have different templates.
    pub async fn new(backend: Backend, service: &str, migrations: Migrations) -> Self {
        match Self::try_new(backend, service, migrations).await {
            Ok(database) => database,
            Err(error) => panic!("no {backend:?} database for this test: {error:#}"),
        }
    }

    async fn try_new(backend: Backend, service: &str, migrations: Migrations) -> Result<Self> {
        statements::install();
        let folder = tempfile::Builder::new().prefix("ensemble-test-").tempdir()?;
        match backend {
            Backend::Sqlite => {
                let url = format!("sqlite:{}/test.db", folder.path().display());
                Ok(Self { url, folder, name: None })
            }
            Backend::Postgres => {
                let server = tokio::task::spawn_blocking(plans::choose_server()).await??;
                let template = template(&server, service, migrations).await?;
                let database = Self::created_from(&server, &template, folder).await?;
                plans::keep_versions(&database.url).await?;
                Ok(database)
            }
        }
    }

    /// A database without any tables.
    pub async fn empty(backend: Backend) -> Self {
        match Self::try_empty(backend).await {
            Ok(database) => database,
            Err(error) => panic!("no empty {backend:?} database for this test: {error:#}"),
        }
    }

    async fn try_empty(backend: Backend) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ensemble-test-").tempdir()?;
        match backend {
            Backend::Sqlite => {
                Ok(Self { url: format!("sqlite:{}/test.db", folder.path().display()), folder, name: None })
            }
            Backend::Postgres => {
                let server = tokio::task::spawn_blocking(plans::choose_server()).await??;
                Self::created_from(&server, "template0", folder).await
            }
        }
    }

    async fn created_from(server: &str, template: &str, folder: TempDir) -> Result<Self> {
        let name = format!("{PREFIX}{}", TokenId::generate().uuid().simple());
        let admin = admin(server).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        Ok(Self { url: with_database(server, &name)?, folder, name: Some(name) })
    }

    pub fn config(&self) -> DatabaseConfig {
        let url = self.url.parse::<DatabaseUrl>();
        DatabaseConfig::new(url.unwrap_or_else(|why| panic!("{}: {why}", self.url)))
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let url = self.url.clone();
        let remove = move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let admin = admin(&with_database(&url, "postgres")?).await?;
                Ok(admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?)
            })
        };
        // A database that cannot be removed now is removed by the next run.
        let _ = std::thread::spawn(remove).join();
    }
}

/// Runs one test on a runtime like that of a service.
pub fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(story);
    // What the service still asks of its database waits for one that is gone, and dropping the runtime would wait for it.
    runtime.shutdown_background();
}

/// Creates two tests, `<name>::postgres` and `<name>::sqlite`, of each story:
///
/// ```text
/// on_both_databases! {
///     async fn a_session_can_be_read_back(on: Backend) { … }
/// }
/// ```
///
/// Without PostgreSQL the first of them fails and says what is missing.
#[macro_export]
macro_rules! on_both_databases {
    ($($(#[$doc:meta])* async fn $name:ident($on:ident: Backend) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn story($on: $crate::Backend) $body

            #[test]
            fn postgres() {
                $crate::run(story($crate::Backend::Postgres));
            }

            #[test]
            fn sqlite() {
                $crate::run(story($crate::Backend::Sqlite));
            }
        }
    )*};
}

/// The migrated database from which the tests of one service are cloned. Created once for each process and server.
async fn template(server: &str, service: &str, migrations: Migrations) -> Result<String> {
    static MADE: OnceLock<Mutex<HashMap<(String, String), String>>> = OnceLock::new();
    static CLEANED: OnceCell<()> = OnceCell::const_new();
    CLEANED.get_or_try_init(|| remove_leftovers(server)).await?;
    let mut made = MADE.get_or_init(Mutex::default).lock().await;
    let key = (server.to_owned(), service.to_owned());
    if let Some(name) = made.get(&key) {
        return Ok(name.clone());
    }
    let name = format!("{TEMPLATE_PREFIX}{}_{}", service.replace('-', "_"), TokenId::generate().uuid().simple());
    let admin = admin(server).await?;
    admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
    let mut config = DatabaseConfig::new(DatabaseUrl::Postgres(with_database(server, &name)?));
    config.pool_size = 1;
    let db = Db::open(&config, migrations).await.context("the template cannot be migrated")?;
    drop(db);
    if let Some(file) = std::env::var_os(TEST_TEMPLATE_SQL) {
        let statements =
            std::fs::read_to_string(&file).with_context(|| format!("{TEST_TEMPLATE_SQL} {}", file.display()))?;
        self::admin(&with_database(server, &name)?)
            .await?
            .batch_execute(&statements)
            .await
            .context(TEST_TEMPLATE_SQL)?;
    }
    // PostgreSQL cannot clone a database that has connections.
    let closing = format!(
        "ALTER DATABASE {name} ALLOW_CONNECTIONS false; \
         SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    admin.batch_execute(&closing).await?;
    made.insert(key, name.clone());
    Ok(name)
}

/// Finds databases of killed runs: their UUIDs of version 7 contain the time of their creation.
async fn remove_leftovers(server: &str) -> Result<()> {
    let admin = admin(server).await?;
    let rows = admin.query("SELECT datname FROM pg_database", &[]).await?;
    let now = made_at(TokenId::generate().uuid());
    for name in rows.iter().map(|row| row.get::<_, String>(0)) {
        let ours = name.starts_with(PREFIX) || name.starts_with(TEMPLATE_PREFIX);
        let id = name.rsplit('_').next().and_then(|id| Uuid::try_parse(id).ok());
        if ours && id.is_some_and(|id| made_at(id) + HOUR < now) {
            admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
    }
    Ok(())
}

/// Milliseconds since 1970 (RFC 9562, section 5.7).
fn made_at(id: Uuid) -> u64 {
    u64::try_from(id.as_u128() >> 80).unwrap_or(0)
}

async fn admin(server: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.context("PostgreSQL cannot be reached")?;
    tokio::spawn(connection);
    Ok(client)
}

/// The same server, another database.
fn with_database(server: &str, database: &str) -> Result<String> {
    let (base, query) = server.split_once('?').unwrap_or((server, ""));
    let host =
        base.strip_prefix("postgres://").or_else(|| base.strip_prefix("postgresql://")).context("a postgres:// URL")?;
    let host = host.split('/').next().unwrap_or(host);
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    Ok(format!("postgres://{host}/{database}{query}"))
}
