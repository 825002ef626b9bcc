//! Entries of session lists, the most recently changed first.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::schema::{sessions, shares};

/// A session's `updated_at` and id, which order the list, and its size in an answer, in bytes.
pub(crate) type Entry = (Timestamp, SessionId, i64);

/// A part of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) active_only: bool,
    /// Only sessions that want something.
    pub(crate) wanting: bool,
    pub(crate) limit: i64,
    /// Begins after this entry: `updated_at` in microseconds, and the id.
    pub(crate) after: Option<(i64, Uuid)>,
}

/// What all lists have in common: order, start and filter. `$key` is what the caller gets the session's key as. 512 bytes are for ids
/// and times.
macro_rules! entries {
    ($conn:expr, $slice:expr, $sessions:expr, $key:literal) => {{
        // A subquery instead of a join, so that it is evaluated only for the entries of the slice.
        let size = sql::<BigInt>(concat!(
            "(SELECT CAST(512 + octet_length(metadata) + coalesce(octet_length(agent_state), 0) + octet_length(",
            $key,
            ") AS bigint) FROM session_contents WHERE session_id = sessions.id)",
        ));
        let mut query = $sessions
            .filter(sessions::deleted_at.is_null())
            .order((sessions::updated_at.desc(), sessions::id.desc()))
            .limit($slice.limit)
            .select((sessions::updated_at, sessions::id, size))
            .into_boxed();
        if let Some((at, id)) = $slice.after {
            let (at, id) = (Timestamp::from_micros(at).db(), DbId(id));
            let earlier = sessions::updated_at.lt(at).or(sessions::updated_at.eq(at).and(sessions::id.lt(id)));
            // The first condition is the one that an index can use.
            query = query.filter(sessions::updated_at.le(at)).filter(earlier);
        }
        if $slice.active_only {
            query = query.filter(sessions::ended_at.is_null());
        }
        if $slice.wanting {
            query = query.filter(sessions::attention_kind.ne(0));
        }
        query.load($conn)
    }};
}

/// The sessions that a user owns.
pub(crate) fn owned(c: &mut Conn, user: UserId, slice: Slice) -> Result<Vec<Entry>, StoreError> {
    let sessions = sessions::table.filter(sessions::owner_id.eq(user.db()));
    on!(c, |c| entries!(c, slice, sessions, "encryption_key"))
}

/// The sessions that a machine of a user hosts.
pub(crate) fn hosted(c: &mut Conn, user: UserId, machine: &MachineId, slice: Slice) -> Result<Vec<Entry>, StoreError> {
    let sessions = sessions::table
        .filter(sessions::owner_id.eq(user.db()).and(sessions::machine_id.eq(machine.as_str())))
        .filter(sessions::hosted.eq(true));
    on!(c, |c| entries!(c, slice, sessions, "encryption_key"))
}

/// The sessions that others share with a user.
pub(crate) fn shared(c: &mut Conn, user: UserId, slice: Slice) -> Result<Vec<Entry>, StoreError> {
    let sessions = sessions::table
        .inner_join(shares::table.on(shares::session_id.eq(sessions::id)))
        .filter(shares::user_id.eq(user.db()));
    on!(c, |c| entries!(c, slice, sessions, "shares.encrypted_key"))
}
