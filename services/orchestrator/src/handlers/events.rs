//! A run's changes as Server-Sent Events. Each event tells the state as it is now of all that changed, so a reader that
//! comes back misses nothing, though it may not see what came and went in between.

use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::live::{Event, sse};
use ensemble_chassis::{Caller, HandlerResult, Path, Query, State};
use ensemble_store_kit::Subscription;
use ensemble_types::ids::RunId;
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::runs::{CHANGED_TASKS, pended, version};
use super::watch::Watch;
use crate::Orchestrator;
use crate::error::Error;
use crate::store;

/// Where to go on.
#[derive(Clone, Debug, Deserialize, IntoParams)]
pub(crate) struct EventQuery {
    /// The version that the reader knows; `Last-Event-ID` beats it. Without either, all tasks are told first.
    after: Option<String>,
}

pub(crate) async fn stream(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    Path(id): Path<RunId>,
    Query(query): Query<EventQuery>,
) -> HandlerResult<HttpResponse> {
    let last = http.headers().get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let since = last.or(query.after).map(|text| version(&text)).transpose()?.unwrap_or(0);
    let news = orchestrator.store.notifier().subscribe(store::changed(id));
    orchestrator.store.bare_run(caller.user, id).await?;
    let drain = orchestrator.drain.clone();
    let watch = Watch::new(&orchestrator, caller.clone());
    let reader = Reader { orchestrator, caller, id, since, news, watch, stage: Stage::Reading };
    Ok(sse(stream::unfold(reader, Reader::next), &drain))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reading,
    Waiting,
    /// Say why, then end.
    Ending(&'static str),
    Ended,
}

struct Reader {
    orchestrator: State<Orchestrator>,
    caller: Caller,
    id: RunId,
    since: i64,
    news: Subscription,
    watch: Watch,
    stage: Stage,
}

impl Reader {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            match self.stage {
                Stage::Ended => return None,
                Stage::Ending(reason) => {
                    self.stage = Stage::Ended;
                    return Some((Event::end(reason), self));
                }
                Stage::Waiting => {
                    let orchestrator = self.orchestrator.clone();
                    tokio::select! {
                        () = self.news.changed() => {}
                        () = self.watch.alarm(&orchestrator) => {}
                    }
                    self.stage = Stage::Reading;
                }
                Stage::Reading => match self.read().await {
                    Ok(Some(event)) => return Some((event, self)),
                    Ok(None) => {}
                    Err(Error::Unauthenticated) => self.stage = Stage::Ending("unauthenticated"),
                    Err(Error::NotFound) => self.stage = Stage::Ending("deleted"),
                    // The reader comes back and asks again.
                    Err(_) => self.stage = Stage::Ending("unavailable"),
                },
            }
        }
    }

    /// What changed since the last event, if anything did.
    async fn read(&mut self) -> Result<Option<Event>, Error> {
        self.watch.check(&self.orchestrator)?;
        let mut limit = CHANGED_TASKS;
        let mut seen = self.orchestrator.store.seen(self.caller.user, self.id, self.since, limit).await?;
        // Tasks that changed together have one version, so an event holds all of them or a reader would miss some.
        while seen.more {
            limit *= 8;
            seen = self.orchestrator.store.seen(self.caller.user, self.id, self.since, limit).await?;
        }
        let changed = seen.run.version != self.since;
        self.stage = match (seen.run.status.is_terminal(), changed) {
            (true, _) => Stage::Ending("terminal"),
            (false, true) => Stage::Reading,
            (false, false) => Stage::Waiting,
        };
        if !changed {
            return Ok(None);
        }
        self.since = seen.run.version;
        let id = self.since.to_string();
        let data = serde_json::to_string(&pended(seen, true)).unwrap_or_default();
        Ok(Some(Event::new("change", Some(&id), &data)))
    }
}
