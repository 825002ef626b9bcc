//! Lists of sessions.

use std::collections::HashMap;
use std::time::Duration;

use ensemble_store_kit::{Conn, cursor};
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::{Session, SessionPage};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::sessions::view;
use crate::SessionStore;
use crate::domain::access::Actor;
use crate::error::Error;
use crate::store;
use crate::store::session_list::{Entry, Slice};

/// Which page of which list.
#[derive(Clone, Debug)]
pub(crate) struct ListRequest {
    pub(crate) caller: Actor,
    pub(crate) include_shared: bool,
    pub(crate) active_only: bool,
    /// Only sessions that want something.
    pub(crate) wanting: bool,
    /// Only sessions that changed, or were shared with the user, at this time or later.
    pub(crate) changed_since: Option<Timestamp>,
    pub(crate) limit: usize,
    pub(crate) cursor: Option<String>,
}

/// A page that is short, or what stands on one that is long.
pub(crate) enum ShortList {
    Whole(SessionPage),
    Long(LongList),
}

/// A page whose sessions are not read yet.
pub(crate) struct LongList {
    request: ListRequest,
    entries: Entries,
    /// About the length of its sessions.
    pub(crate) bytes: i64,
}

/// About the longest page, except when its first session is longer.
const PAGE_BYTES: i64 = 4 << 20;

/// Longer pages are read one after the other for each caller.
const SHORT: i64 = 128 << 10;

/// What stands on a page, and whether another page follows.
struct Entries {
    listed: Vec<Entry>,
    has_more: bool,
}

/// A page of a user's sessions, the most recently changed first, to the minute.
pub(crate) async fn list(service: &SessionStore, request: ListRequest) -> Result<SessionPage, Error> {
    let online_for = service.online_for;
    let read = move |c: &mut Conn| {
        let entries = entries(c, &request)?;
        list_page(c, &request, &entries, online_for)
    };
    service.db.read("list sessions", read).await
}

/// The same page when it is short, or else how it is read.
pub(crate) async fn short_list(service: &SessionStore, request: ListRequest) -> Result<ShortList, Error> {
    let online_for = service.online_for;
    let read = move |c: &mut Conn| {
        let entries = entries(c, &request)?;
        let bytes = entries.listed.iter().fold(0_i64, |sum, (_, _, size)| sum.saturating_add(*size));
        if bytes > SHORT {
            return Ok(ShortList::Long(LongList { request: request.clone(), entries, bytes }));
        }
        list_page(c, &request, &entries, online_for).map(ShortList::Whole)
    };
    service.db.read("read a short list", read).await
}

/// The page that was too long to be a short one.
pub(crate) async fn long_list(service: &SessionStore, list: LongList) -> Result<SessionPage, Error> {
    let online_for = service.online_for;
    let read = move |c: &mut Conn| list_page(c, &list.request, &list.entries, online_for);
    service.db.read("read a long list", read).await
}

/// The first of two steps: a session can hold more than a mebibyte, so the sizes are read before the sessions that fit on the page.
fn entries(c: &mut Conn, request: &ListRequest) -> Result<Entries, Error> {
    let list = request.list_name();
    let after: Option<(i64, Uuid)> = request.cursor.as_deref().map(|text| cursor::decode(&list, text)).transpose()?;
    // One entry more than the page holds shows whether there is a next page.
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX - 1) + 1;
    let ListRequest { active_only, wanting, changed_since, .. } = *request;
    let slice = Slice { active_only, wanting, changed_since, limit, after };
    let user = request.caller.user;
    let mut listed = match &request.caller.machine {
        Some(machine) => store::session_list::hosted(c, user, machine, slice)?,
        None => store::session_list::owned(c, user, slice)?,
    };
    if request.include_shared && request.caller.machine.is_none() {
        listed.extend(store::session_list::shared(c, user, slice)?);
        listed.sort_by_key(|(at, id, _)| std::cmp::Reverse((*at, *id)));
    }
    let has_more = cut(&mut listed, request.limit);
    Ok(Entries { listed, has_more })
}

/// The second step.
fn list_page(
    c: &mut Conn,
    request: &ListRequest,
    Entries { listed, has_more }: &Entries,
    online_for: Duration,
) -> Result<SessionPage, Error> {
    let ids: Vec<SessionId> = listed.iter().map(|(_, id, _)| *id).collect();
    let operation = c.operation();
    let mut sessions: HashMap<SessionId, Session> = HashMap::with_capacity(ids.len());
    for whole in store::sessions::load(c, &ids, request.caller.user)? {
        match view(operation, whole, &request.caller, online_for) {
            Ok(session) => drop(sessions.insert(session.id, session)),
            // The share was removed between the two steps.
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let last = listed.last().filter(|_| *has_more).map(|(at, id, _)| (at.micros(), id.uuid()));
    Ok(SessionPage {
        sessions: ids.iter().filter_map(|id| sessions.remove(id)).collect(),
        next_cursor: last.map(|key| cursor::encode(&request.list_name(), &key)),
    })
}

/// Shortens a list to one page. True when it was longer.
fn cut(entries: &mut Vec<Entry>, limit: usize) -> bool {
    let mut bytes = 0_i64;
    let beyond = entries.iter().enumerate().position(|(index, (_, _, size))| {
        bytes = bytes.saturating_add(*size);
        index == limit || (index > 0 && bytes > PAGE_BYTES)
    });
    entries.truncate(beyond.unwrap_or(entries.len()));
    beyond.is_some()
}

impl ListRequest {
    /// Binds a cursor to the list that it came from. A release that orders lists in another way has other names for them, because a cursor
    /// of this one would skip sessions there.
    fn list_name(&self) -> String {
        let mut name = "sessions by minute".to_owned();
        for (is_set, filter) in
            [(self.active_only, "active"), (self.include_shared, "shared"), (self.wanting, "wanting")]
        {
            if is_set {
                name.push_str(&format!(" {filter}"));
            }
        }
        if let Some(since) = self.changed_since {
            name.push_str(&format!(" since {}", since.micros()));
        }
        let Actor { user, machine } = &self.caller;
        match machine {
            Some(machine) => format!("{name} {user} {machine}"),
            None => format!("{name} {user}"),
        }
    }
}
