//! When PostgreSQL is away, in all the ways in which it can be, whoever asks is told within 2 s; and when it is back, so are we.

#![cfg(test)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{DatabaseConfig, Db, Migrate, Migrations, StoreError};
use ensemble_testkit::eventually;
use ensemble_testkit::postgres::{Cluster, Durability};
use nix::sys::signal::Signal;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };
/// What callers are promised.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// What a busy machine may make of 2 s.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// The network between a service and its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Whole,
    /// What is sent is taken, and nothing comes back.
    Mute,
    Cut,
}

/// A way to `server` that can be broken.
async fn wire_to(server: SocketAddr) -> (SocketAddr, watch::Sender<Wire>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (state, now) = watch::channel(Wire::Whole);
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let mut now = now.clone();
            tokio::spawn(async move {
                let Ok(mut there) = TcpStream::connect(server).await else { return };
                loop {
                    let state = *now.borrow_and_update();
                    match state {
                        Wire::Whole => tokio::select! {
                            _ = copy_bidirectional(&mut here, &mut there) => return,
                            _ = now.changed() => {}
                        },
                        // What was swallowed is lost, and with it the connection.
                        Wire::Mute => return drop(now.changed().await),
                        Wire::Cut => return,
                    }
                }
            });
        }
    });
    (address, state)
}

fn config(address: SocketAddr) -> DatabaseConfig {
    let url = format!("postgres://postgres@{address}/postgres").parse().unwrap();
    DatabaseConfig { pool_size: 4, ..DatabaseConfig::new(url) }
}

async fn ask(db: &Db, sql: &'static str) -> Result<(), StoreError> {
    db.write("ask", move |tx| tx.batch(sql)).await
}

/// Asks more often at once than there are connections, a few times; the quickest round counts, because a busy machine makes
/// all of them longer and none of them shorter.
async fn is_told_in_time(db: &Db, how: &str) {
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let asked: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn({
                    let db = db.clone();
                    async move { ask(&db, "SELECT 1").await }
                })
            })
            .collect();
        for asked in asked {
            let told = asked.await.unwrap();
            assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{how}: {told:?}");
        }
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < TOLD_WITHIN, "{how}: told after {quickest:?}");
}

async fn is_back(db: &Db, how: &str) {
    let begun = Instant::now();
    eventually(BACK_WITHIN, async || ask(db, "SELECT 1").await.is_ok()).await;
    assert!(begun.elapsed() < BACK_WITHIN, "{how}: {:?}", begun.elapsed());
}

#[test]
fn a_server_that_is_killed_or_frozen_is_told_of_in_time() {
    let mut cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let db = Db::open(&config(([127, 0, 0, 1], cluster.port()).into()), MIGRATIONS).await.unwrap();
        ask(&db, "SELECT 1").await.unwrap();
        cluster.signal_all(Signal::SIGSTOP).unwrap();
        is_told_in_time(&db, "frozen").await;
        cluster.signal_all(Signal::SIGCONT).unwrap();
        is_back(&db, "frozen").await;
        cluster.kill().unwrap();
        is_told_in_time(&db, "killed").await;
        cluster.up().unwrap();
        is_back(&db, "killed").await;
    });
}

#[test]
fn a_network_that_swallows_or_cuts_is_told_of_in_time() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, wire) = wire_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let db = Db::open(&config(address), MIGRATIONS).await.unwrap();
        ask(&db, "SELECT 1").await.unwrap();
        for (state, how) in [(Wire::Mute, "swallowed"), (Wire::Cut, "cut")] {
            // One is in the middle of a statement, and others have connections at rest.
            let midway = tokio::spawn({
                let db = db.clone();
                async move { ask(&db, "SELECT pg_sleep(1.5)").await }
            });
            ask(&db, "SELECT 1").await.unwrap();
            wire.send_replace(state);
            is_told_in_time(&db, how).await;
            let midway = midway.await.unwrap();
            assert!(matches!(midway, Err(StoreError::Unavailable { .. })), "{how}: {midway:?}");
            wire.send_replace(Wire::Whole);
            is_back(&db, how).await;
        }
    });
}

#[test]
fn an_address_that_takes_connections_and_says_nothing_is_told_of_in_time() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, wire) = wire_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let db = Db::open(&config(address), MIGRATIONS).await.unwrap();
        // No connection is left from before.
        wire.send_replace(Wire::Cut);
        is_told_in_time(&db, "cut").await;
        wire.send_replace(Wire::Mute);
        is_told_in_time(&db, "mute").await;
        wire.send_replace(Wire::Whole);
        is_back(&db, "mute").await;
    });
}

#[test]
fn what_could_only_be_begun_too_late_is_not_begun() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, wire) = wire_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let config = DatabaseConfig { timeout: Duration::from_millis(300), ..config(address) };
        let db = Db::open(&config, MIGRATIONS).await.unwrap();
        let begun = Arc::new(AtomicU32::new(0));
        wire.send_replace(Wire::Mute);
        let told = db
            .write("ask", {
                let begun = Arc::clone(&begun);
                move |tx| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tx.batch("SELECT 1")
                }
            })
            .await;
        assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
        wire.send_replace(Wire::Whole);
        is_back(&db, "mute").await;
        assert_eq!(begun.load(Ordering::SeqCst), 0, "its caller was told that it failed");
    });
}

#[test]
fn who_loses_a_deadlock_tries_again() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let db = Db::open(&config(([127, 0, 0, 1], cluster.port()).into()), MIGRATIONS).await.unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let both = Arc::new(std::sync::Barrier::new(2));
        let lock = |first: u8, second: u8| {
            let (db, runs, both) = (db.clone(), Arc::clone(&runs), Arc::clone(&both));
            tokio::spawn(async move {
                db.write("lock", move |tx| {
                    let run = runs.fetch_add(1, Ordering::SeqCst);
                    tx.batch(&format!("SELECT pg_advisory_xact_lock({first})"))?;
                    if run < 2 {
                        both.wait();
                    }
                    tx.batch(&format!("SELECT pg_advisory_xact_lock({second})"))
                })
                .await
            })
        };
        let (one, other) = (lock(1, 2), lock(2, 1));
        let (one, other): (Result<(), StoreError>, Result<(), StoreError>) = (one.await.unwrap(), other.await.unwrap());
        one.unwrap();
        other.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 3, "the loser ran twice");
    });
}

#[test]
fn messages_come_untranslated_where_we_may_say_so() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let url = cluster.url("postgres");
        let ours = Db::open(&DatabaseConfig::new(url.parse().unwrap()), MIGRATIONS).await.unwrap();
        ask(&ours, "CREATE ROLE plain LOGIN; ALTER DATABASE postgres SET lc_messages = 'POSIX'").await.unwrap();
        ask(&ours, "GRANT ALL ON SCHEMA public TO plain; GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
            .await
            .unwrap();
        // Fails unless the setting is this.
        let is = |wanted: &str| {
            let wanted = wanted.to_owned();
            move |url: String| async move {
                let config = DatabaseConfig { migrate: Migrate::Check, ..DatabaseConfig::new(url.parse().unwrap()) };
                let db = Db::open(&config, MIGRATIONS).await.unwrap();
                let check = format!(
                    "DO $$ BEGIN ASSERT current_setting('lc_messages') = '{wanted}', current_setting('lc_messages'); END $$"
                );
                db.write("check", move |tx| tx.batch(&check)).await.map_err(|e: StoreError| format!("{e:?}")).unwrap();
            }
        };
        is("C")(url.clone()).await;
        let plain = url.replace("postgres@", "plain@");
        is("POSIX")(plain.clone()).await;
        ask(&ours, "GRANT SET ON PARAMETER lc_messages TO plain").await.unwrap();
        is("C")(plain).await;
    });
}
