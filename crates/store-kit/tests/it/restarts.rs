//! A PostgreSQL server that goes and comes back: who waits meanwhile, and that jobs succeed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{BatchConfig, Batcher, Conn, DatabaseConfig, Db, Migrations, StoreError, TakeTurn, Turn, on};
use ensemble_testkit::postgres::{Cluster, Durability};
use ensemble_testkit::{SOON, eventually, in_time};
use nix::sys::signal::Signal;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };

diesel::table! {
    use ensemble_store_kit::types::Uid;

    notes (id) { id -> Uid, }
}

async fn write(db: &Db) -> Result<(), StoreError> {
    let insert = "INSERT INTO notes (id, body, at) VALUES (gen_random_uuid(), gen_random_uuid(), now())";
    db.write("insert", move |tx| tx.batch(insert)).await
}

async fn count(db: &Db) -> i64 {
    let count = |c: &mut Conn| on!(c, |c| notes::table.count().get_result(c));
    db.read("count", count).await.map_err(|e: StoreError| e).unwrap()
}

/// Callers that come one after the other wait for nothing, now that it is known that the server is down. Each would wait
/// for 1.5 s otherwise, as the service's own work does.
async fn assert_refuses_callers_at_once(db: &Db, have_callers: &AtomicBool) {
    let begun = Instant::now();
    assert!(db.ready().await.is_err());
    assert!(begun.elapsed() > Duration::from_millis(400), "{:?}", begun.elapsed());
    have_callers.store(true, Ordering::SeqCst);
    in_time(Duration::from_secs(5), async || refuses_callers_at_once(db).await).await;
    have_callers.store(false, Ordering::SeqCst);
}

async fn refuses_callers_at_once(db: &Db) {
    let begun = Instant::now();
    for _ in 0..5 {
        assert!(db.ready().await.is_err());
    }
    let config = BatchConfig { name: "square", queue: 4, max_batch: 4, timeout: Duration::from_secs(60) };
    let batcher: Batcher<i64, (), StoreError> = Batcher::start(db, config, |db, jobs| {
        let written = db.write_blocking("square", |tx| tx.batch("SELECT 1"));
        jobs.iter().map(|_| written.clone()).collect()
    })
    .unwrap();
    assert!(matches!(batcher.submit(1).await, Err(StoreError::Unavailable { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn jobs_succeed_again_after_the_server_restarts() {
    let mut cluster = Cluster::start(Durability::Full).unwrap();
    ensemble_testkit::run(async move {
        let url = cluster.url("postgres");
        let have_callers = Arc::new(AtomicBool::new(false));
        let turns = |_| -> TakeTurn {
            let have_callers = Arc::clone(&have_callers);
            Arc::new(move || {
                let is_callers = have_callers.load(Ordering::SeqCst);
                Box::pin(async move { is_callers.then(|| Box::new(()) as Turn) })
            })
        };
        let (config, registry) = (DatabaseConfig::new(url.parse().unwrap()), prometheus::Registry::new());
        let db = Db::open_measured(&config, MIGRATIONS, &registry, turns).await.unwrap();
        // Several connections lie idle when the server goes.
        let mut writes = Vec::new();
        for _ in 0..8 {
            let db = db.clone();
            writes.push(tokio::spawn(async move { write(&db).await }));
        }
        for task in writes {
            task.await.unwrap().unwrap();
        }
        cluster.kill().unwrap();
        let begun = Instant::now();
        assert!(matches!(write(&db).await, Err(StoreError::Unavailable { .. })));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_refuses_callers_at_once(&db, &have_callers).await;
        cluster.up().unwrap();
        eventually(SOON, async || db.ready().await.is_ok()).await;
        write(&db).await.unwrap();
        assert_eq!(count(&db).await, 9);
        // A job notices broken connections by using them, and runs once more on a new one.
        cluster.stop();
        cluster.up().unwrap();
        write(&db).await.unwrap();
        assert_eq!(count(&db).await, 10);
        // Callers do not wait for a server that hangs.
        cluster.signal_all(Signal::SIGSTOP).unwrap();
        let begun = Instant::now();
        assert!(matches!(write(&db).await, Err(StoreError::Unavailable { .. })));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_refuses_callers_at_once(&db, &have_callers).await;
        cluster.signal_all(Signal::SIGCONT).unwrap();
        eventually(SOON, async || db.ready().await.is_ok()).await;
        write(&db).await.unwrap();
    });
}
