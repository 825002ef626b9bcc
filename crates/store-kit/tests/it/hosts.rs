//! A URL with several servers, of which the first is silent.

use std::net::TcpListener;

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{DatabaseConfig, Db, Migrations, StoreError};
use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::run;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };

#[test]
fn a_silent_server_before_the_one_that_answers_refuses_no_job() {
    let cluster = Cluster::start(Durability::Full).unwrap();
    // It takes connections and says nothing, as a machine does that hangs.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", silent.local_addr().unwrap().port(), cluster.port());
    run(async move {
        let url = format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write&sslmode=disable");
        let db = Db::open(&DatabaseConfig::new(url.parse().unwrap()), MIGRATIONS).await.unwrap();
        let written: Result<(), StoreError> = db.write("write", |tx| tx.batch("SELECT 1")).await;
        written.unwrap();
    });
}
