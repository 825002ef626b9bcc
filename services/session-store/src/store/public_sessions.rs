//! Sessions as readers with a public link see them.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::SessionId;
use ensemble_types::links::PublicSession;
use ensemble_types::time::Timestamp;

use super::schema::{session_contents, sessions};
use super::sessions::status;

/// Reads what the public may see of a session.
pub(crate) fn load(c: &mut Conn, id: SessionId) -> Result<Option<PublicSession>, StoreError> {
    type Columns = (String, i64, Option<Timestamp>, bool, i64, Timestamp, Timestamp);
    let columns: Option<Columns> = on!(c, |c| sessions::table
        .inner_join(session_contents::table.on(session_contents::session_id.eq(sessions::id)))
        .filter(sessions::id.eq(id.db()).and(sessions::deleted_at.is_null()))
        .select((
            session_contents::metadata,
            sessions::metadata_version,
            sessions::ended_at,
            sessions::hosted,
            sessions::last_seq,
            sessions::created_at,
            sessions::updated_at
        ))
        .first(c)
        .optional())?;
    Ok(columns.map(|(metadata, metadata_version, ended_at, hosted, last_seq, created_at, updated_at)| PublicSession {
        id,
        metadata,
        metadata_version,
        status: status(ended_at),
        hosted,
        last_seq,
        created_at,
        updated_at,
    }))
}
