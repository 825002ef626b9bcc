//! Pages of sessions, the one changed last first.
//!
//! Two steps: which sessions and how large they are, then those that fit. A session can hold more than a megabyte, so a page
//! that was read whole before it is cut could be half a gigabyte.

use std::collections::HashMap;

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, cursor, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::sessions::{Session, SessionPage};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::schema::{sessions, shares};
use super::{Store, list_name};
use crate::error::Error;

/// Which sessions a list holds.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) user: UserId,
    pub(crate) include_shared: bool,
    pub(crate) active_only: bool,
    pub(crate) limit: usize,
    pub(crate) cursor: Option<String>,
}

/// A session's place in the list, and its size in bytes.
type Entry = (Timestamp, SessionId, i64);

/// A page ends here, too, but for its first session.
const PAGE_BYTES: i64 = 4 << 20;

impl Store {
    pub(crate) async fn sessions(&self, page: Page) -> Result<SessionPage, Error> {
        let store = self.clone();
        self.db.read("list sessions", move |c| store.list_in(c, &page)).await
    }

    fn list_in(&self, c: &mut Conn, page: &Page) -> Result<SessionPage, Error> {
        let list = page.list();
        let from: Option<(i64, Uuid)> = page.cursor.as_deref().map(|text| cursor::decode(&list, text)).transpose()?;
        let (entries, more) = page.cut(entries(c, page, from)?);
        let ids: Vec<DbId> = entries.iter().map(|(_, id, _)| id.db()).collect();
        let mut found: HashMap<SessionId, Session> = HashMap::with_capacity(ids.len());
        found.extend(self.read_all_in(c, &ids, page.user)?.into_iter().map(|session| (session.id, session)));
        let last = entries.last().filter(|_| more).map(|(at, id, _)| (at.micros(), id.uuid()));
        Ok(SessionPage {
            sessions: entries.iter().filter_map(|(_, id, _)| found.remove(id)).collect(),
            next_cursor: last.map(|key| cursor::encode(&list, &key)),
        })
    }
}

impl Page {
    /// What its cursors are good for.
    fn list(&self) -> String {
        let name = match (self.active_only, self.include_shared) {
            (false, false) => "sessions",
            (false, true) => "sessions shared",
            (true, false) => "active",
            (true, true) => "active shared",
        };
        list_name(name, self.user)
    }

    /// One more than asked for, to know whether there are more.
    fn fetch(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX - 1) + 1
    }

    /// Those that fit, and whether some do not.
    fn cut(&self, mut entries: Vec<Entry>) -> (Vec<Entry>, bool) {
        let mut bytes = 0_i64;
        let too_far = entries.iter().enumerate().position(|(at, (_, _, size))| {
            bytes = bytes.saturating_add(*size);
            at == self.limit || (at > 0 && bytes > PAGE_BYTES)
        });
        entries.truncate(too_far.unwrap_or(entries.len()));
        (entries, too_far.is_some())
    }
}

fn entries(c: &mut Conn, page: &Page, from: Option<(i64, Uuid)>) -> Result<Vec<Entry>, StoreError> {
    let mut entries = own(c, page, from)?;
    if page.include_shared {
        entries.extend(shared(c, page, from)?);
        entries.sort_by_key(|(at, id, _)| std::cmp::Reverse((*at, *id)));
    }
    Ok(entries)
}

/// What both kinds of list have in common: order, place and filter.
macro_rules! page_of {
    ($c:expr, $page:expr, $from:expr, $of:expr) => {{
        // A subquery and not a join: it is asked for those that are on the page only.
        let size = sql::<BigInt>(
            "(SELECT CAST(octet_length(metadata) + coalesce(octet_length(agent_state), 0) AS bigint) \
             FROM session_contents WHERE session_id = sessions.id)",
        );
        let mut query = $of
            .filter(sessions::deleted_at.is_null())
            .order((sessions::updated_at.desc(), sessions::id.desc()))
            .limit($page.fetch())
            .select((sessions::updated_at, sessions::id, size))
            .into_boxed();
        if let Some((at, id)) = $from {
            let (at, id) = (Timestamp::from_micros(at).db(), DbId(id));
            let earlier = sessions::updated_at.lt(at).or(sessions::updated_at.eq(at).and(sessions::id.lt(id)));
            // The first condition is what the index is entered by.
            query = query.filter(sessions::updated_at.le(at)).filter(earlier);
        }
        if $page.active_only {
            query = query.filter(sessions::ended_at.is_null());
        }
        query.load($c)
    }};
}

fn own(c: &mut Conn, page: &Page, from: Option<(i64, Uuid)>) -> Result<Vec<Entry>, StoreError> {
    let of = sessions::table.filter(sessions::owner_id.eq(page.user.db()));
    on!(c, |c| page_of!(c, page, from, of))
}

fn shared(c: &mut Conn, page: &Page, from: Option<(i64, Uuid)>) -> Result<Vec<Entry>, StoreError> {
    let of = sessions::table
        .inner_join(shares::table.on(shares::session_id.eq(sessions::id)))
        .filter(shares::user_id.eq(page.user.db()));
    on!(c, |c| page_of!(c, page, from, of))
}
