//! diesel over SQLite or PostgreSQL: one connection type, one pool, one error, notifications after the commit.
//!
//! A service keeps all its SQL in `store/`, on top of this crate. Only this crate and the few statements that differ know
//! which database it is. Nothing here knows actix or what the rows mean; only `problem` knows what a client sees of an error.
//!
//! # A whole example
//!
//! The folder of a service:
//!
//! ```text
//! services/notes/
//!   build.rs                 fn main() { println!("cargo:rerun-if-changed=migrations"); }
//!   migrations/postgres/2026-01-02-000000_notes/up.sql    CREATE TABLE notes (id uuid PRIMARY KEY, owner_id uuid NOT NULL,
//!                                                            body text NOT NULL, created_at timestamptz NOT NULL);
//!   migrations/sqlite/2026-01-02-000000_notes/up.sql      CREATE TABLE notes (id BLOB PRIMARY KEY, owner_id BLOB NOT NULL,
//!                                                            body TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;
//!   (and a down.sql next to each)
//!   src/store/notes.rs       what follows
//! ```
//!
//! ```text
//! use diesel::prelude::*;
//! use ensemble_store_kit::types::{IntoDb, now};
//! use ensemble_store_kit::{Conn, Db, StoreError, Topic, on};
//!
//! diesel::table! {
//!     use diesel::sql_types::Text;
//!     use ensemble_store_kit::types::{Moment, Uid};
//!     notes (id) { id -> Uid, owner_id -> Uid, body -> Text, created_at -> Moment, }
//! }
//!
//! #[derive(Queryable, Selectable)]
//! #[diesel(table_name = notes)]
//! struct Row { id: SessionId, owner_id: UserId, body: String, created_at: Timestamp }
//!
//! /// In one transaction; `?` takes a `StoreError` into the service's own error.
//! pub async fn create(db: &Db, id: SessionId, owner: UserId, body: String) -> Result<(), Error> {
//!     db.write("create a note", move |tx| {
//!         on!(tx, |c| diesel::insert_into(notes::table)
//!             .values((notes::id.eq(id.db()), notes::owner_id.eq(owner.db()), notes::body.eq(&body), notes::created_at.eq(now())))
//!             .execute(c))?;
//!         tx.notify(Topic::new("notes-of", owner));     // published after the commit, on every replica
//!         Ok(())
//!     })
//!     .await
//! }
//!
//! pub async fn page(db: &Db, owner: UserId, (at, id): (Timestamp, SessionId), limit: i64) -> Result<Vec<Note>, Error> {
//!     db.read("list notes", move |c| {
//!         let rows: Vec<Row> = on!(c, |c| notes::table
//!             .filter(notes::owner_id.eq(owner.db()))
//!             .filter(notes::created_at.lt(at.db()).or(notes::created_at.eq(at.db()).and(notes::id.lt(id.db()))))
//!             .order((notes::created_at.desc(), notes::id.desc()))
//!             .limit(limit)
//!             .select(Row::as_select())
//!             .load(c))?;
//!         rows.into_iter().map(Note::try_from).collect()
//!     })
//!     .await
//! }
//! ```
//!
//! In the service: `database_config!(vars, "notes")` in `configure`, and in `build`
//! `Db::open(&config.database, ensemble_store_kit::migrations!()).await?`.
//!
//! # Locks
//!
//! Where the row must be locked, PostgreSQL wants `.for_update()` and SQLite has no such thing, because its writers take
//! turns: `on!(tx, Pg |c| query.for_update().first(c), Sqlite |c| query.first(c))`.

mod batcher;
mod cached;
mod config;
mod conn;
mod connect;
pub mod cursor;
mod db;
mod deadline;
pub mod deliveries;
mod error;
mod file;
pub mod hints;
pub mod idempotency;
mod metrics;
mod migrate;
mod notifier;
mod pool;
mod problem;
mod quota;
mod reach;
mod retention;
pub mod types;

pub use batcher::{BatchConfig, Batcher};
pub use cached::{Cached, cached};
pub use config::{DatabaseConfig, DatabaseUrl, Migrate};
pub use conn::{Conn, Raw};
pub use db::Db;
pub use error::StoreError;
pub use migrate::{Migrations, OpenError};
pub use notifier::{Notifier, Published, Subscription, Tap, Topic};
pub use pool::{TakeTurn, Turn};
pub use quota::{Quota, QuotaExceeded, Reserved};
pub use retention::{Retention, rest_after};
