//! When PostgreSQL cannot be reached, in all the ways in which that happens, callers get an error within 2 s, and they
//! succeed again soon after it is back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{DatabaseConfig, Db, Migrate, Migrations, StoreError};
use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::{SOON, eventually};
use nix::sys::signal::Signal;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };
/// The promise to callers.
const FAILS_WITHIN: Duration = Duration::from_secs(2);

/// The network between a service and its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Whole,
    /// Accepts what is sent, and returns nothing.
    Mute,
    Cut,
}

/// A proxy in front of `server` that can be broken.
async fn proxy_to(server: SocketAddr) -> (SocketAddr, watch::Sender<Network>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (state, now) = watch::channel(Network::Whole);
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let mut now = now.clone();
            tokio::spawn(async move {
                let Ok(mut there) = TcpStream::connect(server).await else { return };
                loop {
                    let state = *now.borrow_and_update();
                    match state {
                        Network::Whole => tokio::select! {
                            _ = copy_bidirectional(&mut here, &mut there) => return,
                            _ = now.changed() => {}
                        },
                        // The bytes are lost, and with them the connection.
                        Network::Mute => return drop(now.changed().await),
                        Network::Cut => return,
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

async fn run_sql(db: &Db, sql: &'static str) -> Result<(), StoreError> {
    db.write("test", move |tx| tx.batch(sql)).await
}

/// Runs more statements at once than there are connections, three times, and more often on a busy machine. The quickest round
/// counts, because such a machine only makes rounds longer.
async fn fails_in_time(db: &Db, how: &str) {
    let (mut quickest, mut rounds) = (Duration::MAX, 0);
    while rounds < 3 || (quickest >= FAILS_WITHIN && rounds < 20) {
        rounds += 1;
        let begun = Instant::now();
        let statements: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn({
                    let db = db.clone();
                    async move { run_sql(&db, "SELECT 1").await }
                })
            })
            .collect();
        for statement in statements {
            let outcome = statement.await.unwrap();
            assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{how}: {outcome:?}");
        }
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < FAILS_WITHIN, "{how}: failed after {quickest:?}");
}

async fn answers(db: &Db) {
    eventually(SOON, async || run_sql(db, "SELECT 1").await.is_ok()).await;
}

#[test]
fn a_killed_or_frozen_server_fails_in_time() {
    let mut cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let db = Db::open(&config(([127, 0, 0, 1], cluster.port()).into()), MIGRATIONS).await.unwrap();
        answers(&db).await;
        cluster.signal_all(Signal::SIGSTOP).unwrap();
        fails_in_time(&db, "frozen").await;
        cluster.signal_all(Signal::SIGCONT).unwrap();
        answers(&db).await;
        cluster.kill().unwrap();
        fails_in_time(&db, "killed").await;
        cluster.up().unwrap();
        answers(&db).await;
    });
}

#[test]
fn a_mute_or_cut_network_fails_in_time() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, network) = proxy_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let db = Db::open(&config(address), MIGRATIONS).await.unwrap();
        answers(&db).await;
        for (state, how) in [(Network::Mute, "swallowed"), (Network::Cut, "cut")] {
            // One connection is in the middle of a statement, and others are idle.
            let midway = tokio::spawn({
                let db = db.clone();
                async move { run_sql(&db, "SELECT pg_sleep(60)").await }
            });
            answers(&db).await;
            network.send_replace(state);
            fails_in_time(&db, how).await;
            let midway = midway.await.unwrap();
            assert!(matches!(midway, Err(StoreError::Unavailable { .. })), "{how}: {midway:?}");
            network.send_replace(Network::Whole);
            answers(&db).await;
        }
    });
}

#[test]
fn an_address_that_accepts_and_does_not_answer_fails_in_time() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, network) = proxy_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let db = Db::open(&config(address), MIGRATIONS).await.unwrap();
        // No connection is left from before.
        network.send_replace(Network::Cut);
        fails_in_time(&db, "cut").await;
        network.send_replace(Network::Mute);
        fails_in_time(&db, "mute").await;
        network.send_replace(Network::Whole);
        answers(&db).await;
    });
}

#[test]
fn a_job_is_not_started_after_its_caller_timed_out() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let (address, network) = proxy_to(([127, 0, 0, 1], cluster.port()).into()).await;
        let config = DatabaseConfig { timeout: Duration::from_millis(300), ..config(address) };
        let db = Db::open(&config, MIGRATIONS).await.unwrap();
        let begun = Arc::new(AtomicU32::new(0));
        network.send_replace(Network::Mute);
        let outcome = db
            .write("test", {
                let begun = Arc::clone(&begun);
                move |tx| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    tx.batch("SELECT 1")
                }
            })
            .await;
        assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{outcome:?}");
        network.send_replace(Network::Whole);
        answers(&db).await;
        assert_eq!(begun.load(Ordering::SeqCst), 0, "its caller has got an error already");
    });
}

#[test]
fn the_loser_of_a_deadlock_tries_again() {
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
fn messages_are_english_where_the_role_may_choose() {
    let cluster = Cluster::start(Durability::None).unwrap();
    ensemble_testkit::run(async move {
        let url = cluster.url("postgres");
        let ours = Db::open(&DatabaseConfig::new(url.parse().unwrap()), MIGRATIONS).await.unwrap();
        run_sql(&ours, "CREATE ROLE plain LOGIN; ALTER DATABASE postgres SET lc_messages = 'POSIX'").await.unwrap();
        run_sql(&ours, "GRANT ALL ON SCHEMA public TO plain; GRANT ALL ON ALL TABLES IN SCHEMA public TO plain")
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
        run_sql(&ours, "GRANT SET ON PARAMETER lc_messages TO plain").await.unwrap();
        is("C")(plain).await;
    });
}
