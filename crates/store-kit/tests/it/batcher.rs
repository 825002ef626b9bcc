//! Jobs that are submitted together run together, and nothing that goes wrong in a batch ends the batcher.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{BatchConfig, Batcher, Db, Migrations, StoreError};
use ensemble_testkit::{Backend, SOON, TestDatabase, eventually, on_both_databases};
use futures_util::poll;
use tokio::task::JoinHandle;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };
const CONFIG: BatchConfig = BatchConfig { name: "square", queue: 16, max_batch: 4, timeout: Duration::from_secs(30) };

type Squares = Batcher<i64, i64, StoreError>;

pub(crate) async fn open(on: Backend) -> (Db, TestDatabase) {
    let database = TestDatabase::new(on, "store-kit", MIGRATIONS).await;
    (Db::open(&database.config(), MIGRATIONS).await.unwrap(), database)
}

/// A batcher whose batches say which jobs they got, and begin when the test allows it.
struct Gated {
    batcher: Squares,
    begun: Receiver<Vec<i64>>,
    allow: SyncSender<()>,
}

/// What a batch does instead of squaring when it contains this job.
const PANICS: i64 = -1;
const ANSWERS_TOO_LITTLE: i64 = -2;
const FAILS: i64 = -3;

fn gated(db: &Db, config: BatchConfig) -> Gated {
    let (begins, begun) = sync_channel(64);
    let (allow, allowed) = sync_channel(64);
    let batcher = Batcher::start(db, config, move |db, jobs: Vec<i64>| {
        begins.send(jobs.clone()).unwrap();
        allowed.recv().unwrap();
        assert!(!jobs.contains(&PANICS), "on purpose");
        if jobs.contains(&ANSWERS_TOO_LITTLE) {
            return Vec::new();
        }
        let written = db.write_blocking("square", |tx| {
            if jobs.contains(&FAILS) {
                return Err(StoreError::bad_row("square", "on purpose"));
            }
            tx.batch("SELECT 1")
        });
        jobs.iter().map(|job| written.clone().map(|()| job * job)).collect()
    });
    Gated { batcher: batcher.unwrap(), begun, allow }
}

/// Puts a job into the queue; its answer is awaited in the background.
async fn submit(batcher: &Squares, job: i64) -> JoinHandle<Result<i64, StoreError>> {
    let batcher = batcher.clone();
    let mut answer = Box::pin(async move { batcher.submit(job).await });
    assert!(poll!(&mut answer).is_pending());
    tokio::spawn(answer)
}

fn is_unavailable(outcome: &Result<i64, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Unavailable { operation: "square", .. }))
}

on_both_databases! {
    async fn jobs_that_wait_run_together_in_their_order(on: Backend) {
        let (db, _database) = open(on).await;
        let gated = gated(&db, CONFIG);
        let mut submitted = vec![submit(&gated.batcher, 0).await];
        // While the first batch runs, the others collect.
        assert_eq!(gated.begun.recv().unwrap(), [0]);
        for job in 1..=6 {
            submitted.push(submit(&gated.batcher, job).await);
        }
        (0..3).for_each(|_| gated.allow.send(()).unwrap());
        for (job, submitted) in (0..).zip(submitted) {
            assert_eq!(submitted.await.unwrap().unwrap(), job * job);
        }
        assert_eq!(gated.begun.iter().take(2).collect::<Vec<_>>(), [vec![1, 2, 3, 4], vec![5, 6]]);
    }

    async fn a_failed_batch_answers_every_caller(on: Backend) {
        let (db, _database) = open(on).await;
        let gated = gated(&db, CONFIG);
        let first = submit(&gated.batcher, 0).await;
        gated.begun.recv().unwrap();
        let failing = [submit(&gated.batcher, FAILS).await, submit(&gated.batcher, 2).await];
        (0..2).for_each(|_| gated.allow.send(()).unwrap());
        first.await.unwrap().unwrap();
        for failing in failing {
            assert!(matches!(failing.await.unwrap(), Err(StoreError::Broken { operation: "square", .. })));
        }
    }
}

#[test]
fn a_full_queue_refuses_at_once() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        let gated = gated(&db, BatchConfig { queue: 2, ..CONFIG });
        let running = submit(&gated.batcher, 1).await;
        gated.begun.recv().unwrap();
        let waiting = [submit(&gated.batcher, 2).await, submit(&gated.batcher, 3).await];
        assert!(is_unavailable(&gated.batcher.submit(4).await));
        (0..2).for_each(|_| gated.allow.send(()).unwrap());
        assert_eq!(running.await.unwrap().unwrap(), 1);
        for (job, waiting) in (2..).zip(waiting) {
            assert_eq!(waiting.await.unwrap().unwrap(), job * job);
        }
    });
}

#[test]
fn a_batch_that_panics_or_answers_too_little_harms_no_other() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        let gated = gated(&db, CONFIG);
        for _ in 0..3 {
            (0..3).for_each(|_| gated.allow.send(()).unwrap());
            assert!(is_unavailable(&gated.batcher.submit(PANICS).await));
            assert!(is_unavailable(&gated.batcher.submit(ANSWERS_TOO_LITTLE).await));
            assert_eq!(gated.batcher.submit(5).await.unwrap(), 25);
        }
    });
}

#[test]
fn a_job_whose_caller_timed_out_is_not_run() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        let gated = gated(&db, BatchConfig { timeout: Duration::from_secs(5), ..CONFIG });
        let running = submit(&gated.batcher, 1).await;
        assert_eq!(gated.begun.recv().unwrap(), [1]);
        let waiting = submit(&gated.batcher, 2).await;
        assert!(is_unavailable(&running.await.unwrap()));
        assert!(is_unavailable(&waiting.await.unwrap()));
        (0..2).for_each(|_| gated.allow.send(()).unwrap());
        assert_eq!(gated.batcher.submit(3).await.unwrap(), 9);
        assert_eq!(gated.begun.recv().unwrap(), [3]);
    });
}

#[test]
fn a_job_with_much_to_do_lets_its_callers_wait_longer() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        let (extended, is_extended) = sync_channel(1);
        let (allow, allowed) = sync_channel::<()>(1);
        let timeout = Duration::from_millis(500);
        let batcher: Squares = Batcher::start(&db, BatchConfig { timeout, ..CONFIG }, move |db, jobs: Vec<i64>| {
            let written = db.write_blocking("square", |tx| {
                tx.extend_deadline(Duration::from_secs(60));
                extended.send(()).unwrap();
                allowed.recv().unwrap();
                tx.batch("SELECT 1")
            });
            jobs.iter().map(|job| written.clone().map(|()| job * job)).collect()
        })
        .unwrap();
        let mut running = submit(&batcher, 7).await;
        is_extended.recv().unwrap();
        assert!(tokio::time::timeout(timeout * 2, &mut running).await.is_err(), "the caller did not wait");
        allow.send(()).unwrap();
        assert_eq!(running.await.unwrap().unwrap(), 49);
    });
}

#[test]
fn what_was_accepted_is_run_before_the_thread_ends() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        let Gated { batcher, begun, allow } = gated(&db, CONFIG);
        let first = submit(&batcher, 1).await;
        // The second job comes while the first runs, so that it makes a batch of its own.
        assert_eq!(begun.recv().unwrap(), [1]);
        let submitted = [first, submit(&batcher, 2).await];
        drop(batcher);
        for submitted in submitted {
            // The caller is cancelled, and with it the last clones are dropped.
            submitted.abort();
            assert!(submitted.await.unwrap_err().is_cancelled());
        }
        (0..2).for_each(|_| allow.send(()).unwrap());
        assert_eq!(begun.iter().collect::<Vec<_>>(), [[2]]);
        // The end of the thread dropped its handle on the test's channels.
        eventually(SOON, async || allow.try_send(()).is_err()).await;
    });
}
