//! Lists over several pages, as streams: the next page is fetched when the current one is used up.

use std::collections::VecDeque;
use std::future::Future;

use futures_util::stream::{self, Stream};

use crate::error::Result;

/// Walks a keyset-paged list from its beginning. `fetch` receives a cursor (`None` for the first page) and returns the
/// items of the page and the next cursor.
pub(crate) fn walk<T, F, Fut>(fetch: F) -> impl Stream<Item = Result<T>> + Send
where
    T: Send,
    F: Fn(Option<String>) -> Fut + Send,
    Fut: Future<Output = Result<(Vec<T>, Option<String>)>> + Send,
{
    struct Walk<T, F> {
        fetch: F,
        ready: VecDeque<T>,
        next: Next,
    }
    enum Next {
        Page(Option<String>),
        End,
    }
    let start = Walk { fetch, ready: VecDeque::new(), next: Next::Page(None) };
    stream::try_unfold(start, |mut walk| async move {
        loop {
            if let Some(item) = walk.ready.pop_front() {
                return Ok(Some((item, walk)));
            }
            let Next::Page(cursor) = std::mem::replace(&mut walk.next, Next::End) else {
                return Ok(None);
            };
            let (items, after) = (walk.fetch)(cursor).await?;
            walk.ready = items.into();
            walk.next = match after {
                Some(after) => Next::Page(Some(after)),
                None => Next::End,
            };
        }
    })
}
