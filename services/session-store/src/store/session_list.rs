//! Entries of session lists, the most recently changed first, to the minute.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use ensemble_store_kit::types::{DbId, IntoDb, Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::schema::{sessions, shares};

/// A session's `listed_at` and id, which order the list, and its size in an answer, in bytes.
pub(crate) type Entry = (Timestamp, SessionId, i64);

/// A part of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) active_only: bool,
    /// Only sessions that want something.
    pub(crate) wanting: bool,
    /// Only sessions that changed, or were shared with the user, at this time or later.
    pub(crate) changed_since: Option<Timestamp>,
    pub(crate) limit: i64,
    /// Begins after this entry: `listed_at` in microseconds, and the id.
    pub(crate) after: Option<(i64, Uuid)>,
}

/// In microseconds.
const MINUTE: i64 = 60_000_000;

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
            .order((sessions::listed_at.desc(), sessions::id.desc()))
            .limit($slice.limit)
            .select((sessions::listed_at, sessions::id, size))
            .into_boxed();
        if let Some((at, id)) = $slice.after {
            // One comparison of both: an index begins at the entry itself, also where many sessions have the same minute.
            let after = sql::<Bool>("(sessions.listed_at, sessions.id) < (")
                .bind::<Moment, _>(Timestamp::from_micros(at).db())
                .sql(", ")
                .bind::<Uid, _>(DbId(id))
                .sql(")");
            query = query.filter(after);
        }
        if let Some(since) = $slice.changed_since {
            // The first condition is the one that an index can use.
            let minute = Timestamp::from_micros(since.micros() - since.micros().rem_euclid(MINUTE));
            query = query.filter(sessions::listed_at.ge(minute.db())).filter(sessions::updated_at.ge(since.db()));
        }
        if $slice.active_only {
            query = query.filter(sessions::ended_at.is_null());
        }
        if $slice.wanting {
            // Not a parameter, so that a plan for any parameters can use the index of those.
            query = query.filter(sql::<Bool>("sessions.attention_kind <> 0"));
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
        .filter(sessions::hosted);
    on!(c, |c| entries!(c, slice, sessions, "encryption_key"))
}

/// The sessions that others share with a user. Reads all of them: they are in no index in the order of a user's list. A share that is
/// made or changed is a change of the session for this user.
pub(crate) fn shared(c: &mut Conn, user: UserId, slice: Slice) -> Result<Vec<Entry>, StoreError> {
    let since = slice.changed_since.unwrap_or(Timestamp::from_micros(0));
    let slice = Slice { changed_since: None, ..slice };
    let sessions = sessions::table
        .inner_join(shares::table.on(shares::session_id.eq(sessions::id)))
        .filter(shares::user_id.eq(user.db()))
        .filter(sessions::updated_at.ge(since.db()).or(shares::updated_at.ge(since.db())));
    on!(c, |c| entries!(c, slice, sessions, "shares.encrypted_key"))
}
