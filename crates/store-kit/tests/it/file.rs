//! The file of a SQLite database: one that has lost its data is refused at once, with what to do about it, and others
//! cannot read it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use ensemble_store_kit::{DatabaseConfig, DatabaseUrl, Db, Migrations, OpenError, StoreError};
use ensemble_testkit::SOON;

const POSTGRES: EmbeddedMigrations = embed_migrations!("tests/migrations/postgres");
const SQLITE: EmbeddedMigrations = embed_migrations!("tests/migrations/sqlite");
const MIGRATIONS: Migrations = Migrations { postgres: || POSTGRES, sqlite: || SQLITE };
async fn open(file: &Path) -> Result<Db, OpenError> {
    // A start that waited for the database would take far longer than a test waits.
    let start_timeout = 10 * SOON;
    let config = DatabaseConfig { start_timeout, ..DatabaseConfig::new(DatabaseUrl::Sqlite(file.into())) };
    Db::open(&config, MIGRATIONS).await
}

/// A database that was used and closed.
async fn used(file: &Path) {
    let db = open(file).await.unwrap();
    let insert = "INSERT INTO notes (id, body, at) VALUES (x'00', hex(zeroblob(50000)), 0)";
    db.write("insert", move |tx| tx.batch(insert)).await.map_err(|e: StoreError| e).unwrap();
    drop(db);
    // Its connections close on threads of the pool, and take the -wal with them.
    ensemble_testkit::eventually(SOON, async || !file.with_extension("db-wal").exists()).await;
}

async fn is_refused(file: &Path, how: &str) {
    let begun = Instant::now();
    let Err(error) = open(file).await else { panic!("{how}: was opened") };
    assert!(begun.elapsed() < SOON, "{how}: after {:?}", begun.elapsed());
    assert!(matches!(error, OpenError::Damaged { .. }), "{how}: {error:?}");
    assert!(error.to_string().contains("Restore a backup, or move the file away"), "{how}: {error}");
}

#[test]
fn a_damaged_file_is_refused_at_once() {
    ensemble_testkit::run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        used(&file).await;
        let whole = fs::read(&file).unwrap();
        assert!(whole.len() > 20_000, "{}", whole.len());
        let noise: Vec<u8> = (0..4_096).map(|at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for (how, content) in [
            ("its header is overwritten", [&noise[..], &whole[4_096..]].concat()),
            ("it is cut after a page", whole[..4_096].to_vec()),
            ("it is cut within the header", whole[..50].to_vec()),
            ("it is emptied", Vec::new()),
        ] {
            fs::write(&file, content).unwrap();
            is_refused(&file, how).await;
        }
        fs::write(&file, &whole).unwrap();
        open(&file).await.unwrap();
    });
}

#[test]
fn a_start_waits_for_the_process_that_had_the_file_and_is_ending() {
    ensemble_testkit::run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        let first = open(&file).await.unwrap();
        let Err(error) = open(&file).await else { panic!("two have it open") };
        assert!(error.to_string().contains("another process has this database open"), "{error}");
        // `join!` polls in this order: the second is refused the lock before the first gives it up.
        let (second, ()) = tokio::join!(open(&file), async { drop(first) });
        second.unwrap();
    });
}

#[test]
fn a_removed_file_is_created_again_without_the_log_of_the_old_one() {
    ensemble_testkit::run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.db");
        used(&file).await;
        fs::remove_file(&file).unwrap();
        for end in ["db-wal", "db-shm", "db.new"] {
            fs::write(file.with_extension(end), "left over").unwrap();
        }
        let db = open(&file).await.unwrap();
        db.write("insert", |tx| tx.batch("INSERT INTO notes (id, body, at) VALUES (x'00', '', 0)"))
            .await
            .map_err(|e: StoreError| e)
            .unwrap();
    });
}

#[test]
fn only_its_user_can_read_a_database() {
    ensemble_testkit::run(async {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("sessions.db")).await.unwrap();
        db.write("insert", |tx| tx.batch("INSERT INTO notes (id, body, at) VALUES (x'00', '', 0)"))
            .await
            .map_err(|e: StoreError| e)
            .unwrap();
        let mut modes: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(Result::unwrap)
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o777)
            })
            .collect();
        modes.sort();
        let names = ["sessions.db", "sessions.db-shm", "sessions.db-wal", "sessions.db.lock"];
        assert_eq!(modes, names.map(|name| (name.to_owned(), 0o600)));
    });
}
