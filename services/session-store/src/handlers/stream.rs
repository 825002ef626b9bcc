//! Sessions live: Server-Sent Events of messages and of changes of the session.
//!
//! A stream sleeps until its session's topic wakes it, its token ends or the keys change. Each time it reads its reader's
//! standing again together with what is new; nothing is sent that was not read so.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::live::{self, Event};
use ensemble_chassis::{Caller, Clock, HandlerResult, KeySource, Path, Query, State};
use ensemble_store_kit::Subscription;
use ensemble_types::ids::SessionId;
use ensemble_types::time::Timestamp;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep};
use utoipa::IntoParams;

use crate::SessionStore;
use crate::domain::Invalid;
use crate::error::Error;
use crate::store::{Place, Step, Store, Tail, Watcher};

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct StreamQuery {
    /// Begins after this `seq`; `Last-Event-ID` beats it. With neither: with what comes next.
    pub(crate) after: Option<u64>,
}

pub(crate) async fn open(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Query(query): Query<StreamQuery>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    let after = after(&request, &query)?;
    let guard = Guard::Caller {
        changes: state.keys.changes(),
        keys: Arc::clone(&state.keys) as Arc<dyn KeySource>,
        clock: state.clock.clone(),
        caller: caller.clone(),
    };
    Ok(follow(&state, id, Watcher::Member(caller.user), after, guard).await?)
}

/// Where a stream begins (WHATWG HTML, section 9.2.4 for the header).
pub(crate) fn after(request: &HttpRequest, query: &StreamQuery) -> Result<Option<i64>, Error> {
    let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
    match request.headers().get("last-event-id") {
        None => Ok(query.after.map(number)),
        Some(value) => match value.to_str().ok().and_then(|text| text.parse().ok()) {
            Some(seq) => Ok(Some(number(seq))),
            None => Err(Invalid::new("Last-Event-ID", "must be the id of an event of this stream").into()),
        },
    }
}

/// Answers with the stream of a session.
pub(crate) async fn follow(
    state: &SessionStore,
    session: SessionId,
    watcher: Watcher,
    after: Option<i64>,
    guard: Guard,
) -> Result<HttpResponse, Error> {
    // Watching begins before reading, so that nothing falls between.
    let news = state.store.watch(session);
    let place = state.store.stream_start(session, watcher.clone(), after).await?;
    let tail = state.store.tail(session);
    let feed = Feed { store: state.store.clone(), session, watcher, place, news, tail, guard, next: Next::Read };
    Ok(live::sse(feed.into_stream(), &state.drain))
}

/// What a stream's credentials hang on, besides what is in the database.
pub(crate) enum Guard {
    Caller {
        caller: Caller,
        keys: Arc<dyn KeySource>,
        changes: watch::Receiver<()>,
        clock: Clock,
    },
    /// A view token and its end.
    Until(Timestamp, Clock),
}

struct Feed {
    store: Store,
    session: SessionId,
    watcher: Watcher,
    place: Place,
    news: Subscription,
    tail: Arc<Tail>,
    guard: Guard,
    next: Next,
}

enum Next {
    Read,
    Wait,
    Nothing,
}

impl Feed {
    fn into_stream(self) -> impl Stream<Item = Event> {
        stream::unfold(self, |mut feed| async { feed.event().await.map(|event| (event, feed)) })
    }

    async fn event(&mut self) -> Option<Event> {
        loop {
            let waited = match self.next {
                Next::Nothing => return None,
                Next::Read => false,
                Next::Wait => {
                    tokio::select! {
                        () = self.news.changed() => {}
                        () = self.guard.stirs() => {}
                    }
                    true
                }
            };
            if let Err(reason) = self.guard.check() {
                return Some(self.end(reason));
            }
            let (session, watcher, place) = (self.session, self.watcher.clone(), self.place);
            let step = if waited {
                self.store.stream_woken(&self.tail, session, watcher, place, Instant::now()).await
            } else {
                self.store.stream_step(session, watcher, place).await
            };
            match step {
                Ok(Step::Go { frames, place, more }) => {
                    self.place = place;
                    self.next = if more { Next::Read } else { Next::Wait };
                    if !frames.is_empty() {
                        return Some(Event::from_bytes(frames));
                    }
                }
                Ok(Step::End(reason)) => return Some(self.end(reason.as_str())),
                Err(error) => {
                    tracing::warn!(?error, "A stream could not be fed");
                    return Some(self.end("unavailable"));
                }
            }
        }
    }

    fn end(&mut self, reason: &str) -> Event {
        self.next = Next::Nothing;
        Event::end(reason)
    }
}

impl Guard {
    /// Completes when [`Guard::check`] may have another answer.
    async fn stirs(&mut self) {
        match self {
            Self::Until(end, clock) => sleep(end.since(clock.now())).await,
            Self::Caller { caller, changes, clock, .. } => {
                // A second beyond what clocks may differ by, so that the check finds it over.
                let end = caller.expires_at.plus(Duration::from_secs(31));
                tokio::select! {
                    () = sleep(end.since(clock.now())) => {}
                    changed = changes.changed() => {
                        if changed.is_err() {
                            sleep(Duration::from_secs(1)).await;
                        }
                    }
                }
            }
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Until(end, clock) if clock.now() >= *end => Err("token_expired"),
            Self::Until(..) => Ok(()),
            Self::Caller { caller, keys, clock, .. } => {
                let keys = keys.current().map_err(|_| "unavailable")?;
                caller
                    .check(&keys, clock.now())
                    .map_err(|_| if keys.is_revoked(caller.token) { "token_revoked" } else { "token_expired" })
            }
        }
    }
}
