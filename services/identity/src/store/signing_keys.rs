//! The table `signing_keys`, and with it what else verifying takes: the revocations.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{StoreError, Subscription, Topic, on};
use ensemble_types::ids::TokenId;
use ensemble_types::time::Timestamp;

use super::Store;
use super::schema::{revocations, signing_keys};
use crate::domain::Published;

/// A signing key at rest.
pub(crate) struct KeyRow {
    pub(crate) published: Published,
    pub(crate) key_id: String,
    pub(crate) public_key: [u8; 32],
    pub(crate) sealed: Vec<u8>,
}

/// Everything that verifying takes, at one moment.
pub(crate) struct KeyTable {
    /// The oldest first.
    pub(crate) keys: Vec<KeyRow>,
    pub(crate) revoked: Vec<TokenId>,
    pub(crate) now: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = signing_keys)]
struct Row {
    generation: i64,
    key_id: String,
    public_key: Vec<u8>,
    sealed: Vec<u8>,
    signs_from: Timestamp,
}

impl Store {
    /// Notifier when keys or revocations have changed.
    pub(crate) fn keys_change(&self) -> Subscription {
        self.db.notifier().subscribe(topic())
    }

    pub(crate) async fn key_table(&self) -> Result<KeyTable, StoreError> {
        self.db
            .read("read the signing keys", |c| {
                let rows: Vec<Row> =
                    on!(c, |c| signing_keys::table.order(signing_keys::generation).select(Row::as_select()).load(c))?;
                let revoked =
                    revocations::table.filter(revocations::expires_at.gt(now())).select(revocations::token_id);
                let revoked: Vec<TokenId> = on!(c, |c| revoked.load(c))?;
                let keys = rows.into_iter().map(|row| {
                    let public_key = row.public_key.as_slice().try_into();
                    Ok(KeyRow {
                        published: Published { generation: row.generation, signs_from: row.signs_from },
                        key_id: row.key_id,
                        public_key: public_key.map_err(|error| StoreError::bad_row(c.operation(), error))?,
                        sealed: row.sealed,
                    })
                });
                let keys = keys.collect::<Result<_, StoreError>>()?;
                Ok(KeyTable { keys, revoked, now: c.now()? })
            })
            .await
    }

    /// Adds a key, unless another replica was quicker, and drops others.
    pub(crate) async fn turn_keys(&self, made: Option<KeyRow>, dropped: Vec<i64>) -> Result<(), StoreError> {
        self.db
            .write("turn the signing keys", move |tx| {
                if let Some(key) = &made {
                    let row = (
                        signing_keys::generation.eq(key.published.generation),
                        signing_keys::key_id.eq(&key.key_id),
                        signing_keys::public_key.eq(key.public_key.as_slice()),
                        signing_keys::sealed.eq(&key.sealed),
                        signing_keys::signs_from.eq(key.published.signs_from.db()),
                    );
                    let insert = diesel::insert_into(signing_keys::table);
                    on!(tx, |c| insert.values(row).on_conflict_do_nothing().execute(c))?;
                }
                for generation in &dropped {
                    on!(tx, |c| diesel::delete(signing_keys::table.find(generation)).execute(c))?;
                }
                tx.notify(topic());
                Ok(())
            })
            .await
    }
}

/// What the other replicas are woken by.
pub(super) fn topic() -> Topic {
    Topic::new("keys", "all")
}
