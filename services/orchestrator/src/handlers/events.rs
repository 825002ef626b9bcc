//! The changes of a run as Server-Sent Events. Each event shows the present state of everything that has changed, so a
//! reader that reconnects misses no final state. It may miss states that did not last.

use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::live::{Event, Outgoing, Sending, last_event_id, over, sse};
use ensemble_chassis::{Caller, HandlerResult, Path, Query, State};
use ensemble_store_kit::Subscription;
use ensemble_types::events::EndReason;
use ensemble_types::ids::RunId;
use ensemble_types::refs::IdOrRef;
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::runs::{CHANGED_TASKS, parse_version, pended};
use super::token_watch::TokenWatch;
use crate::Orchestrator;
use crate::error::Error;
use crate::operations::refs;
use crate::operations::runs;
use crate::operations::topics::run_changed;

/// Where the stream starts.
#[derive(Clone, Debug, Deserialize, IntoParams)]
pub(crate) struct EventQuery {
    /// The last version that the reader knows. `Last-Event-ID` takes precedence. The default is the beginning.
    after: Option<String>,
}

pub(crate) async fn stream(
    service: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    Path(id): Path<IdOrRef<RunId>>,
    Query(query): Query<EventQuery>,
) -> HandlerResult<HttpResponse> {
    let id = refs::run(&service.db, caller.user, id).await?;
    let last = last_event_id(&http).map(str::to_owned);
    let since = last.or(query.after).map(|text| parse_version(&text)).transpose()?.unwrap_or(0);
    let changes = service.db.notifier().subscribe(run_changed(id));
    let run = runs::read_summary(&service.db, caller.user, id).await?;
    if run.status.is_terminal() && since >= run.version {
        return Ok(over());
    }
    let drain = service.drain.clone();
    let token = TokenWatch::new(&service, caller.clone());
    let reader = Reader { service, caller, id, since, changes, token, stage: Stage::Reading, sending: None };
    Ok(sse(stream::unfold(reader, Reader::next), &drain))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reading,
    Waiting,
    /// The next event is the last one and has this reason.
    Ending(EndReason),
    Ended,
}

struct Reader {
    service: State<Orchestrator>,
    caller: Caller,
    id: RunId,
    since: i64,
    changes: Subscription,
    token: TokenWatch,
    stage: Stage,
    sending: Option<Sending<RunEvent>>,
}

/// What an event tells: the run, and the versions before and after.
pub(crate) type RunEvent = (RunId, i64, i64);

impl Reader {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(mut sending) = self.sending.take() {
                let piece = self.service.long_events.piece(&mut sending)?;
                self.sending = Some(sending).filter(|sending| !sending.is_sent());
                return Some((piece, self));
            }
            match self.stage {
                Stage::Ended => return None,
                Stage::Ending(reason) => {
                    self.stage = Stage::Ended;
                    return Some((Event::end(reason), self));
                }
                Stage::Waiting => {
                    let service = self.service.clone();
                    tokio::select! {
                        () = self.changes.changed() => {}
                        () = self.token.needs_check(&service) => {}
                    }
                    self.stage = Stage::Reading;
                }
                Stage::Reading => match self.read().await {
                    Ok(Some(Outgoing::Short(event))) => return Some((event, self)),
                    Ok(Some(Outgoing::Long(sending))) => self.sending = Some(sending),
                    Ok(None) => {}
                    Err(Error::Unauthenticated) => self.stage = Stage::Ending(EndReason::Unauthenticated),
                    Err(Error::NotFound) => self.stage = Stage::Ending(EndReason::Deleted),
                    // The reader reconnects and continues from its last event.
                    Err(_) => self.stage = Stage::Ending(EndReason::Unavailable),
                },
            }
        }
    }

    /// What has changed since the last event, if anything has.
    async fn read(&mut self) -> Result<Option<Outgoing<RunEvent>>, Error> {
        self.token.check(&self.service)?;
        let (db, owner) = (&self.service.db, self.caller.user);
        // When more tasks have changed, the event says so, and its reader reads the run.
        let changes = runs::changes(db, owner, self.id, self.since, CHANGED_TASKS).await?;
        let changed = changes.run.version != self.since;
        self.stage = match (changes.run.status.is_terminal(), changed) {
            (true, _) => Stage::Ending(EndReason::Terminal),
            (false, true) => Stage::Reading,
            (false, false) => Stage::Waiting,
        };
        if !changed {
            return Ok(None);
        }
        let (before, after) = (self.since, changes.run.version);
        self.since = after;
        let id = after.to_string();
        let data = serde_json::to_string(&pended(changes, true)).unwrap_or_default();
        let event = Event::new("change", Some(&id), &data);
        Ok(Some(self.service.long_events.outgoing(|| (self.id, before, after), event)))
    }
}
