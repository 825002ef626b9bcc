//! Histories: read in pages.

use ensemble_store_kit::Conn;
use ensemble_types::ids::SessionId;
use ensemble_types::messages::{Message, MessagePage};

use super::read_session;
use crate::SessionStore;
use crate::domain::access::Actor;
use crate::domain::history::{PageBounds, Window};
use crate::error::Error;
use crate::store;

/// A page with no more content than this, in bytes, is short.
const SHORT: i64 = 64 << 10;

/// A page, unless it is long.
pub(crate) enum ShortPage {
    Whole(MessagePage),
    /// The length of its contents.
    Long {
        bytes: i64,
    },
}

/// A page of a session's history.
pub(crate) async fn page(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    window: Window,
) -> Result<MessagePage, Error> {
    let read = move |c: &mut Conn| {
        let messages = store::messages::page(c, id, window)?;
        with_bounds(c, id, &caller, window, messages)
    };
    service.db.read("read history", read).await
}

/// The same page when it is short, or else its size.
pub(crate) async fn short_page(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    window: Window,
) -> Result<ShortPage, Error> {
    let read = move |c: &mut Conn| {
        let extent = store::messages::extent(c, id, window)?;
        if let Some(long) = extent.filter(|extent| extent.bytes > SHORT) {
            // Strangers do not learn how much there is.
            read_session(c, id, &caller)?;
            return Ok(ShortPage::Long { bytes: long.bytes });
        }
        let messages = extent.map(|extent| store::messages::read(c, id, window, extent)).transpose()?;
        with_bounds(c, id, &caller, window, messages.unwrap_or_default()).map(ShortPage::Whole)
    };
    service.db.read("read a short page", read).await
}

/// Messages, and where they lie in the history. The access is checked here, after they were read: a message that was stored
/// after the access ended is not sent.
fn with_bounds(
    c: &mut Conn,
    id: SessionId,
    caller: &Actor,
    window: Window,
    messages: Vec<Message>,
) -> Result<MessagePage, Error> {
    let (session, _) = read_session(c, id, caller)?;
    let PageBounds { has_more, next_before, next_after } = bounds(window, &messages, session.last_seq);
    Ok(MessagePage { messages, has_more, next_before, next_after, last_seq: session.last_seq })
}

/// The bounds of a page. `last_seq` must have been read after the page.
pub(super) fn bounds(window: Window, page: &[Message], last_seq: i64) -> PageBounds {
    let ends = page.first().zip(page.last());
    window.bounds(ends.map(|(first, last)| (first.seq.min(last.seq), first.seq.max(last.seq))), last_seq)
}
