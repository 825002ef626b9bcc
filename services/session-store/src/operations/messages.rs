//! Histories: read in pages.

use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::{Message, MessagePage};

use super::read_session;
use crate::SessionStore;
use crate::domain::history::{PageBounds, Window};
use crate::error::Error;
use crate::store;

/// A page of a session's history.
pub(crate) async fn page(
    service: &SessionStore,
    id: SessionId,
    caller: UserId,
    window: Window,
) -> Result<MessagePage, Error> {
    service
        .db
        .read("read history", move |c| {
            // The messages first and the access after them: a message that was stored after the access ended is not sent.
            let messages = store::messages::page(c, id, window)?;
            let (session, _) = read_session(c, id, caller)?;
            let PageBounds { has_more, next_before, next_after } = bounds(window, &messages, session.last_seq);
            Ok(MessagePage { messages, has_more, next_before, next_after, last_seq: session.last_seq })
        })
        .await
}

/// The bounds of a page. `last_seq` must have been read after the page.
pub(super) fn bounds(window: Window, page: &[Message], last_seq: i64) -> PageBounds {
    let ends = page.first().zip(page.last());
    window.bounds(ends.map(|(first, last)| (first.seq.min(last.seq), first.seq.max(last.seq))), last_seq)
}
