//! The newest context of each open session.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::GatewaySessionId;

use super::schema::voice_contexts::{self, dsl};

/// A context and its version; versions count from 1.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredContext {
    pub(crate) version: i64,
    pub(crate) body: String,
}

pub(crate) fn get(c: &mut Conn, id: GatewaySessionId) -> Result<Option<StoredContext>, StoreError> {
    let row: Option<(i64, String)> =
        on!(c, |c| voice_contexts::table.find(id.db()).select((dsl::version, dsl::body)).first(c).optional())?;
    Ok(row.map(|(version, body)| StoredContext { version, body }))
}

/// Stores a context in place of the one before.
pub(crate) fn put(tx: &mut Conn, id: GatewaySessionId, version: i64, body: &str) -> Result<(), StoreError> {
    let row = (dsl::session.eq(id.db()), dsl::version.eq(version), dsl::body.eq(body));
    on!(tx, |c| diesel::insert_into(voice_contexts::table)
        .values(row)
        .on_conflict(dsl::session)
        .do_update()
        .set((dsl::version.eq(version), dsl::body.eq(body)))
        .execute(c))
    .map(drop)
}

pub(super) fn delete(tx: &mut Conn, id: GatewaySessionId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(voice_contexts::table.find(id.db())).execute(c)).map(drop)
}
