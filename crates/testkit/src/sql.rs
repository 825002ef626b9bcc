//! What a test does itself in the database of a service, also while the service runs.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use tokio_postgres::{Client, NoTls};

use crate::wait::{SOON, eventually};

/// How long a test waits for a file of SQLite that the service is writing, or is closing.
const BUSY: Duration = Duration::from_secs(40);

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Opens a file of SQLite. Its statements wait for those of others, where SQLite itself would refuse them at once as "locked".
pub fn sqlite(file: &str) -> SqliteConnection {
    let opened = SqliteConnection::establish(file).map_err(|error| error.to_string()).and_then(|mut connection| {
        let wait = format!("PRAGMA busy_timeout = {}", BUSY.as_millis());
        connection.batch_execute(&wait).map_err(|error| error.to_string())?;
        Ok(connection)
    });
    opened.unwrap_or_else(|error| panic!("{file} cannot be opened: {error}"))
}

/// Runs a query for one number.
pub async fn number(url: &str, sql: &str) -> i64 {
    if let Some(file) = url.strip_prefix("sqlite:") {
        let found = diesel::sql_query(format!("SELECT ({sql}) AS n")).get_result::<Number>(&mut sqlite(file));
        return found.unwrap_or_else(|error| panic!("{sql}: {error}")).n;
    }
    let found = postgres(url).await.query_one(&format!("SELECT ({sql})::bigint"), &[]).await;
    found.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
}

/// Runs statements.
pub async fn execute(url: &str, sql: &str) {
    let failed = if let Some(file) = url.strip_prefix("sqlite:") {
        sqlite(file).batch_execute(sql).err().map(|error| error.to_string())
    } else {
        postgres(url).await.batch_execute(sql).await.err().map(|error| error.to_string())
    };
    if let Some(error) = failed {
        panic!("{sql}: {error}");
    }
}

/// Waits until the last thread of a service that was stopped has let go of its file.
pub async fn closed(url: &str) {
    let Some(path) = url.strip_prefix("sqlite:") else { return };
    let lock = format!("{path}.lock");
    eventually(SOON, async || std::fs::File::open(&lock).is_ok_and(|file| file.try_lock().is_ok())).await;
}

/// Takes back that migrations of this version have run, so that the next start runs them.
pub async fn forget_migration(url: &str, version: &str) {
    execute(url, &format!("DELETE FROM __diesel_schema_migrations WHERE version = '{version}'")).await;
}

async fn postgres(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| panic!("{url} cannot be reached: {error}"));
    tokio::spawn(connection);
    client
}
