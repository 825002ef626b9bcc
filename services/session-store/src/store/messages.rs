//! Messages: appended to a locked session, read in pages. A stored message never changes.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::sql_types::Text;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, MessageId, SessionId, UserId};
use ensemble_types::messages::Message;
use ensemble_types::time::Timestamp;

use super::schema::messages;
use crate::domain::access::Actor;
use crate::domain::history::{Extent, Window};

#[derive(Queryable, Selectable)]
#[diesel(table_name = messages)]
struct MessageRow {
    id: MessageId,
    seq: i64,
    local_id: String,
    content: String,
    sender_id: UserId,
    key_epoch: Option<i64>,
    created_at: Timestamp,
    sender_machine_id: String,
}

#[derive(Insertable)]
#[diesel(table_name = messages, treat_none_as_default_value = false)]
struct NewMessageRow<'a> {
    session_id: DbId,
    seq: i64,
    id: DbId,
    sender_id: DbId,
    local_id: &'a str,
    content: &'a str,
    key_epoch: Option<i64>,
    created_at: DbTime,
    sender_machine_id: &'a str,
}

#[diesel::declare_sql_function]
extern "SQL" {
    /// The length in bytes, which both databases know without reading the text.
    fn octet_length(text: Text) -> Integer;
}

impl From<MessageRow> for Message {
    fn from(row: MessageRow) -> Self {
        let MessageRow { id, seq, local_id, content, sender_id, key_epoch, created_at, sender_machine_id } = row;
        // Empty for people, which no machine's id is.
        let sender_machine_id = sender_machine_id.parse().ok();
        Self { id, seq, local_id, content, sender_id, sender_machine_id, key_epoch, created_at }
    }
}

/// Inserts messages whose sessions are locked. Fails with [`StoreError::Duplicate`] when a `localId` was used before.
pub(crate) fn insert(tx: &mut Conn, added: &[(SessionId, Arc<Message>)]) -> Result<(), StoreError> {
    let rows: Vec<NewMessageRow<'_>> = added
        .iter()
        .map(|(session, message)| NewMessageRow {
            session_id: session.db(),
            seq: message.seq,
            id: message.id.db(),
            sender_id: message.sender_id.db(),
            local_id: &message.local_id,
            content: &message.content,
            key_epoch: message.key_epoch,
            created_at: message.created_at.db(),
            sender_machine_id: machine_column(message.sender_machine_id.as_ref()),
        })
        .collect();
    on!(tx, |c| diesel::insert_into(messages::table).values(&rows).execute(c)).map(drop)
}

/// A page of a history.
pub(crate) fn page(c: &mut Conn, session: SessionId, window: Window) -> Result<Vec<Message>, StoreError> {
    let Some(extent) = extent(c, session, window)? else { return Ok(Vec::new()) };
    read(c, session, window, extent)
}

/// What a page holds. `None` when it holds nothing. Messages can hold a mebibyte each, so this does not read their contents.
pub(crate) fn extent(c: &mut Conn, session: SessionId, window: Window) -> Result<Option<Extent>, StoreError> {
    Ok(window.fit(&sizes(c, session, window)?))
}

/// The messages of a page, in the window's order.
pub(crate) fn read(
    c: &mut Conn,
    session: SessionId,
    window: Window,
    extent: Extent,
) -> Result<Vec<Message>, StoreError> {
    let rows: Vec<MessageRow> = on!(c, |c| messages::table
        .filter(messages::session_id.eq(session.db()).and(messages::seq.between(extent.lowest, extent.highest)))
        .order(messages::seq)
        .select(MessageRow::as_select())
        .load(c))?;
    let mut page: Vec<Message> = rows.into_iter().map(Message::from).collect();
    if !window.ascending() {
        page.reverse();
    }
    Ok(page)
}

/// What `sender_machine_id` holds: nothing for people.
fn machine_column(machine: Option<&MachineId>) -> &str {
    machine.map_or("", MachineId::as_str)
}

/// One message.
pub(crate) fn find(c: &mut Conn, session: SessionId, seq: i64) -> Result<Option<Message>, StoreError> {
    let row: Option<MessageRow> = on!(c, |c| messages::table
        .filter(messages::session_id.eq(session.db()).and(messages::seq.eq(seq)))
        .select(MessageRow::as_select())
        .first(c)
        .optional())?;
    Ok(row.map(Message::from))
}

/// `seq` and content length of the messages in a window, in the window's order.
fn sizes(c: &mut Conn, session: SessionId, window: Window) -> Result<Vec<(i64, i32)>, StoreError> {
    let (lowest, highest) = window.range();
    let query = messages::table
        .filter(messages::session_id.eq(session.db()).and(messages::seq.between(lowest, highest)))
        .select((messages::seq, octet_length(messages::content)))
        .limit(window.limit);
    if window.ascending() {
        on!(c, |c| query.order(messages::seq.asc()).load(c))
    } else {
        on!(c, |c| query.order(messages::seq.desc()).load(c))
    }
}

/// The messages for which a sender used these local ids.
pub(crate) fn find_by_local_ids(
    tx: &mut Conn,
    session: SessionId,
    sender: &Actor,
    local_ids: &[&str],
) -> Result<Vec<Message>, StoreError> {
    let rows: Vec<MessageRow> = on!(tx, |c| messages::table
        .filter(messages::session_id.eq(session.db()).and(messages::sender_id.eq(sender.user.db())))
        .filter(messages::sender_machine_id.eq(machine_column(sender.machine.as_ref())))
        .filter(messages::local_id.eq_any(local_ids))
        .select(MessageRow::as_select())
        .load(c))?;
    Ok(rows.into_iter().map(Message::from).collect())
}
