//! The promises of the crate, on both databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::idempotency::{IdempotencyOutcome, IdempotencyRequest, claim};
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{
    Conn, DatabaseConfig, Db, Migrate, Migrations, OpenError, Published, Quota, StoreError, Topic, cached, on,
};
use ensemble_testkit::{Backend, SOON, TestDatabase, on_both_databases};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::problem::Code;
use ensemble_types::time::Timestamp;
use tokio::time::timeout;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };

diesel::table! {
    use diesel::sql_types::{Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    notes (id) { id -> Uid, body -> Text, at -> Moment, until -> Nullable<Moment>, }
}

#[derive(Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = notes)]
struct Row {
    id: SessionId,
    body: String,
    at: Timestamp,
    until: Option<Timestamp>,
}

async fn open(on: Backend) -> (Db, TestDatabase) {
    let database = TestDatabase::new(on, "store-kit", MIGRATIONS).await;
    (Db::open(&database.config(), MIGRATIONS).await.unwrap(), database)
}

fn insert(tx: &mut Conn, id: SessionId, body: &str) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(notes::table)
        .values((
            notes::id.eq(id.db()),
            notes::body.eq(body),
            notes::at.eq(now()),
            notes::until.eq(None::<Timestamp>.db())
        ))
        .execute(c))?;
    Ok(())
}

async fn count(db: &Db) -> i64 {
    db.read("count", |c| on!(c, |c| notes::table.count().get_result(c))).await.map_err(|e: StoreError| e).unwrap()
}

on_both_databases! {
    async fn a_transaction_whose_ref_is_taken_is_tried_again(on: Backend) {
        let (db, _database) = open(on).await;
        let table = "CREATE TABLE named (ref text NOT NULL); CREATE UNIQUE INDEX named_ref ON named (ref); \
                     INSERT INTO named VALUES ('taken000')";
        db.write("prepare", move |tx| tx.batch(table)).await.unwrap();
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let named = db.write("name", move |tx| {
            let reference = if counted.fetch_add(1, Ordering::SeqCst) == 0 { "taken000" } else { "free0000" };
            tx.batch(&format!("INSERT INTO named VALUES ('{reference}')"))
        });
        named.await.unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), 2);
        let always = db.write("name", |tx| tx.batch("INSERT INTO named VALUES ('taken000')")).await;
        assert!(matches!(always, Err(StoreError::Duplicate { .. })), "{always:?}");
    }

    async fn a_commit_that_does_not_wait_for_the_disk_is_there(on: Backend) {
        let (db, _database) = open(on).await;
        let written = db.write("insert", |tx| {
            if tx.is_postgres() {
                // The server of the tests may be set to wait for nothing.
                tx.batch("SET LOCAL synchronous_commit = on")?;
            }
            tx.commit_without_waiting()?;
            if tx.is_postgres() {
                tx.batch("DO $$ BEGIN ASSERT current_setting('synchronous_commit') = 'off'; END $$")?;
            }
            insert(tx, SessionId::generate(), "a")
        });
        written.await.unwrap();
        assert_eq!(count(&db).await, 1);
    }

    async fn written_rows_are_read_back(on: Backend) {
        let (db, _database) = open(on).await;
        let id = SessionId::generate();
        let before = db.read("now", |c| c.now()).await.map_err(|e: StoreError| e).unwrap();
        db.write("insert", move |tx| insert(tx, id, "a")).await.unwrap();
        let after = db.read("now", |c| c.now()).await.map_err(|e: StoreError| e).unwrap();
        let rows: Vec<Row> = db
            .read("load", move |c| {
                on!(c, |c| notes::table
                    .filter(notes::id.eq_any([id.db()]))
                    .filter(notes::at.le(now()))
                    .select(Row::as_select())
                    .load(c))
            })
            .await
            .map_err(|e: StoreError| e)
            .unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].id, rows[0].body.as_str(), rows[0].until), (id, "a", None));
        assert!(rows[0].at >= before && rows[0].at <= after, "{before:?} {after:?} {rows:?}");
        let until = rows[0].at.plus(Duration::from_micros(7_000));
        let read: Option<Timestamp> = db
            .write("set", move |tx| {
                on!(tx, |c| diesel::update(notes::table.find(id.db())).set(notes::until.eq(Some(until.db()))).returning(notes::until).get_result(c))
            })
            .await
            .map_err(|e: StoreError| e)
            .unwrap();
        assert_eq!(read, Some(until));
    }

    async fn a_cached_update_counts_its_rows_and_is_prepared_once(on: Backend) {
        #[derive(QueryableByName)]
        struct Prepared {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            count: i64,
        }
        let (db, _database) = open(on).await;
        let id = SessionId::generate();
        db.write("insert", move |tx| insert(tx, id, "a")).await.unwrap();
        let changed: Vec<usize> = db
            .write("change", move |tx| {
                let mut change = |id: SessionId, body: &str| {
                    on!(tx, |c| cached(diesel::update(notes::table.find(id.db())).set(notes::body.eq(body))).execute(c))
                };
                let changed = vec![change(id, "b")?, change(SessionId::generate(), "c")?, change(id, "d")?];
                if tx.is_postgres() {
                    let kept = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'UPDATE \"notes\"%'";
                    let kept: Prepared = on!(tx, |c| diesel::sql_query(kept).get_result(c))?;
                    assert_eq!(kept.count, 1);
                }
                Ok::<_, StoreError>(changed)
            })
            .await
            .unwrap();
        assert_eq!(changed, [1, 0, 1]);
    }

    async fn an_error_rolls_back_and_notifies_no_subscriber(on: Backend) {
        let (db, _database) = open(on).await;
        let mut waiting = db.notifier().subscribe(Topic::new("note", 1));
        let failed: Result<(), StoreError> = db
            .write("insert", |tx| {
                insert(tx, SessionId::generate(), "a")?;
                tx.notify(Topic::new("note", 1));
                Err(StoreError::bad_row("insert", "changed my mind"))
            })
            .await;
        assert!(matches!(failed, Err(StoreError::Broken { operation: "insert", .. })), "{failed:?}");
        assert_eq!(count(&db).await, 0);
        db.write("insert", |tx| { insert(tx, SessionId::generate(), "a")?; tx.notify(Topic::new("note", 1)); Ok::<_, StoreError>(()) }).await.unwrap();
        timeout(SOON, waiting.changed()).await.unwrap();
    }

    async fn a_reservation_is_counted_by_a_commit_and_given_back_otherwise(on: Backend) {
        let (db, _database) = open(on).await;
        let (quota, account) = (Quota::new("notes", 10), UserId::generate());
        let left = || quota.reserve_up_to(account, 10, || Ok(0)).unwrap().amount();
        let reserve = move |tx: &mut Conn, quota: &Quota| {
            let reserved = quota.reserve(account, 4, || Ok(0))?.map_err(|full| StoreError::bad_row("reserve", full))?;
            tx.hold(reserved);
            Ok::<_, StoreError>(())
        };
        let kept = quota.clone();
        db.write("commit", move |tx| reserve(tx, &kept)).await.unwrap();
        assert_eq!(left(), 6);
        let refused = quota.clone();
        let failing = db.write("roll back", move |tx| {
            reserve(tx, &refused)?;
            assert_eq!(refused.reserve_up_to(account, 10, || Ok(0))?.amount(), 2, "it counts before the end");
            Err::<(), _>(StoreError::bad_row("roll back", "on purpose"))
        });
        failing.await.unwrap_err();
        let panicking = quota.clone();
        let panic = db.write("panic", move |tx| -> Result<(), StoreError> {
            reserve(tx, &panicking)?;
            panic!("on purpose")
        });
        panic.await.unwrap_err();
        assert_eq!(left(), 6);
    }

    async fn a_duplicate_names_its_constraint_and_cannot_be_ignored(on: Backend) {
        let (db, _database) = open(on).await;
        db.write("insert", |tx| insert(tx, SessionId::generate(), "a")).await.unwrap();
        let twice = db.write("again", |tx| insert(tx, SessionId::generate(), "a")).await;
        let Err(StoreError::Duplicate { operation: "again", constraint }) = twice else { panic!("{twice:?}") };
        assert!(constraint.contains("body"), "{constraint}");
        let ignored: Result<(), StoreError> = db
            .write("ignore", |tx| {
                insert(tx, SessionId::generate(), "b")?;
                let _ = insert(tx, SessionId::generate(), "a");
                Ok(())
            })
            .await;
        assert!(ignored.is_err());
        assert_eq!(count(&db).await, 1);
    }

    async fn a_panicking_job_does_not_harm_others(on: Backend) {
        let (db, _database) = open(on).await;
        for _ in 0..20 {
            let panicked: Result<(), StoreError> = db.write("panic", |_| panic!("on purpose")).await;
            assert!(matches!(panicked, Err(StoreError::Broken { .. })), "{panicked:?}");
        }
        db.write("insert", |tx| insert(tx, SessionId::generate(), "a")).await.unwrap();
    }

    async fn of_many_requests_with_one_key_one_makes_the_resource(on: Backend) {
        let (db, _database) = open(on).await;
        let request = |hash: u8| IdempotencyRequest { scope: "me".into(), route: "POST /notes", key: "k".repeat(16), body_hash: [hash; 32] };
        let tries = (0..16).map(|n| {
            let (db, request) = (db.clone(), request(0));
            tokio::spawn(async move {
                db.write("claim", move |tx| {
                    let claimed = claim(tx, &request, &n.to_string())?;
                    if claimed == IdempotencyOutcome::New {
                        insert(tx, SessionId::generate(), &n.to_string())?;
                    }
                    Ok::<_, StoreError>(claimed)
                })
                .await
            })
        });
        let mut made = 0;
        for task in tries.collect::<Vec<_>>() {
            match task.await.unwrap() {
                Ok(IdempotencyOutcome::New) => made += 1,
                Ok(IdempotencyOutcome::Replay { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((made, count(&db).await), (1, 1));
        let other = db.write("claim", move |tx| claim(tx, &request(1), "x")).await.unwrap();
        assert_eq!(other, IdempotencyOutcome::Mismatch);
    }

    async fn a_schema_that_is_behind_is_refused_by_check_and_repaired_by_migrate(on: Backend) {
        fn none() -> Migrations {
            Migrations { postgres: || POSTGRES, sqlite: || SQLITE }
        }
        let (db, database) = open(on).await;
        drop(db);
        let mut config = DatabaseConfig { migrate: Migrate::Check, ..database.config() };
        let folder = tempfile::tempdir().unwrap();
        if on == Backend::Sqlite {
            config.url = ensemble_store_kit::DatabaseUrl::Sqlite(folder.path().join("deep/new.db"));
            assert!(matches!(Db::open(&config, none()).await, Err(OpenError::Behind { .. })));
            Db::migrate(&config, none()).await.unwrap();
            Db::open(&config, none()).await.unwrap();
        } else {
            Db::open(&config, none()).await.unwrap();
        }
    }
}

#[test]
fn a_file_belongs_to_one_process() {
    ensemble_testkit::run(async {
        let (db, database) = open(Backend::Sqlite).await;
        let second = Db::open(&database.config(), MIGRATIONS).await;
        assert!(matches!(second, Err(OpenError::Unreachable { .. })));
        drop(db);
    });
}

#[test]
fn a_full_disk_is_named_to_the_caller() {
    ensemble_testkit::run(async {
        let (db, _database) = open(Backend::Sqlite).await;
        // What SQLite says is what it says when the disk is full.
        let full = db.write("fill", |tx| {
            tx.batch("PRAGMA max_page_count = 1; CREATE TABLE more AS SELECT zeroblob(1000000) AS data")
        });
        let problem = full.await.map_err(StoreError::into_problem).unwrap_err();
        assert!(problem.detail.contains("disk of the server is full"), "{}", problem.detail);
        assert_eq!(problem.code, Code::Unavailable);
        db.ready().await.unwrap();
    });
}

#[test]
fn the_second_request_with_a_key_waits_and_then_fails() {
    ensemble_testkit::run(async {
        let (db, database) = open(Backend::Postgres).await;
        // The holder of the key takes its time.
        let slow = DatabaseConfig { timeout: Duration::from_secs(60), ..database.config() };
        let slow = Db::open(&slow, MIGRATIONS).await.unwrap();
        let request = || IdempotencyRequest { scope: "me".into(), route: "r", key: "k".repeat(16), body_hash: [0; 32] };
        let (holding, held) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let released = std::sync::Mutex::new(released);
            async move {
                slow.write("first", move |tx| {
                    claim(tx, &request(), "1")?;
                    holding.send(()).unwrap();
                    let _ = released.lock().unwrap().recv();
                    Ok::<_, StoreError>(())
                })
                .await
            }
        });
        tokio::task::spawn_blocking(move || held.recv().unwrap()).await.unwrap();
        let begun = Instant::now();
        let second = db.write("second", move |tx| claim(tx, &request(), "2")).await;
        assert!(matches!(second, Err(StoreError::Busy { operation: "second" })), "{second:?}");
        assert!(begun.elapsed().as_secs() >= 4, "{:?}", begun.elapsed());
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
    });
}

#[test]
fn notifications_reach_the_other_replica() {
    ensemble_testkit::run(async {
        let (here, database) = open(Backend::Postgres).await;
        let there = Db::open(&database.config(), MIGRATIONS).await.unwrap();
        let mut waiting = there.notifier().subscribe(Topic::new("note", 7));
        for _ in 0..20 {
            here.notifier().publish([Topic::new("note", 7), Topic::new("note", 8)]);
            timeout(SOON, waiting.changed()).await.unwrap();
        }
        assert_eq!(there.notifier().subscribed("note"), [Topic::new("note", 7)]);
        drop(waiting);
        assert!(there.notifier().subscribed("note").is_empty());
    });
}

#[test]
fn a_tap_receives_every_topic_of_both_replicas() {
    ensemble_testkit::run(async {
        let (here, database) = open(Backend::Postgres).await;
        let there = Db::open(&database.config(), MIGRATIONS).await.unwrap();
        let mut tap = there.notifier().tap();
        for (replica, topic) in [(&here, Topic::new("note", 1)), (&there, Topic::new("note", 2))] {
            replica.notifier().publish([topic.clone()]);
            // A new connection for wake-ups says once that anything may have changed.
            let mut next = timeout(SOON, tap.next()).await.unwrap();
            while next == Published::Any {
                next = timeout(SOON, tap.next()).await.unwrap();
            }
            assert_eq!(next, Published::Topic(topic));
        }
        (0..5_000).for_each(|n| there.notifier().publish([Topic::new("note", n)]));
        assert_eq!(timeout(SOON, tap.next()).await.unwrap(), Published::Any, "it was too slow");
    });
}
