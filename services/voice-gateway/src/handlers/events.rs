//! A voice session as Server-Sent Events: its status, what is said, and what its agent reads. A reader that reconnects continues after
//! the `Last-Event-ID`.

use std::collections::VecDeque;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::auth::caller_of;
use ensemble_chassis::live::{Event, last_event_id, over, sse};
use ensemble_chassis::{Caller, HandlerResult, KeySource, Path, State};
use ensemble_store_kit::Subscription;
use ensemble_types::events::EndReason;
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::VoiceStatus;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::watch;

use super::caller::VoicePerson;
use crate::VoiceGateway;
use crate::error::Error;
use crate::operations::history::{News, Read};

/// Clocks may differ by this much, so a token is accepted for a little longer.
const CLOCK_SKEW: Duration = Duration::from_secs(31);

pub(crate) async fn stream(
    service: State<VoiceGateway>,
    _: VoicePerson,
    http: HttpRequest,
    Path(id): Path<GatewaySessionId>,
) -> HandlerResult<HttpResponse> {
    let caller = caller_of(&http)?;
    let last = last_event_id(&http).unwrap_or_default();
    let (knows_end, read) = (last.ends_with(END), parse(last.trim_end_matches(END)).unwrap_or_default());
    let changes = service.changes_of(id);
    // Refuses before the stream begins.
    let news = service.news(caller.user, id, read).await?;
    if knows_end && news.is_over && news.utterances.is_empty() && news.tool_calls.is_empty() {
        return Ok(over());
    }
    let (drain, keys) = (service.drain.clone(), service.keys.changes());
    let stage = Stage::Reading;
    let reader = Reader { service, caller, id, read, status: None, ready: VecDeque::new(), changes, keys, stage };
    Ok(sse(stream::unfold(reader, Reader::next), &drain))
}

/// What follows the id of the last event of a session that is over. The numbers alone do not say that its last status is known.
const END: &str = ".end";

/// `<utterance>.<tool call>`, the newest that the reader knows.
fn parse(text: &str) -> Option<Read> {
    let (utterance, tool_call) = text.split_once('.')?;
    let number = |text: &str| text.parse::<u32>().ok().map(i64::from);
    Some(Read { utterance: number(utterance)?, tool_call: number(tool_call)? })
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
    service: State<VoiceGateway>,
    caller: Caller,
    id: GatewaySessionId,
    read: Read,
    /// The status that was sent last, without what changes by itself.
    status: Option<String>,
    ready: VecDeque<Event>,
    changes: Subscription,
    keys: watch::Receiver<()>,
    stage: Stage,
}

impl Reader {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((event, self));
            }
            match self.stage {
                Stage::Ended => return None,
                Stage::Ending(reason) => {
                    self.stage = Stage::Ended;
                    let end = if reason.is_final() {
                        Event::end_with_id(reason, &format!("{}{END}", self.position()))
                    } else {
                        Event::end(reason)
                    };
                    return Some((end, self));
                }
                Stage::Waiting => {
                    self.wait().await;
                    self.stage = Stage::Reading;
                }
                Stage::Reading => {
                    self.stage = match self.check_and_read().await {
                        Ok(stage) => stage,
                        Err(Error::Unauthenticated) => Stage::Ending(EndReason::Unauthenticated),
                        Err(Error::Unknown(_)) => Stage::Ending(EndReason::Deleted),
                        // The reader reconnects and continues from its last event.
                        Err(_) => Stage::Ending(EndReason::Unavailable),
                    }
                }
            }
        }
    }

    /// Until the session has changed, or the token has to be checked again.
    async fn wait(&mut self) {
        let left = self.caller.expires_at.since(self.service.clock.now()) + CLOCK_SKEW;
        tokio::select! {
            () = self.changes.changed() => {}
            changed = self.keys.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = tokio::time::sleep(left) => {}
        }
    }

    async fn check_and_read(&mut self) -> Result<Stage, Error> {
        if let Ok(keys) = self.service.keys.current() {
            self.caller.check(&keys, self.service.clock.now()).map_err(|_| Error::Unauthenticated)?;
        }
        let News { status, is_over, utterances, tool_calls, more } =
            self.service.news(self.caller.user, self.id, self.read).await?;
        for said in utterances {
            self.read.utterance = i64::try_from(said.seq).unwrap_or(i64::MAX);
            self.push("utterance", &said);
        }
        for call in tool_calls {
            self.read.tool_call = i64::try_from(call.seq).unwrap_or(i64::MAX);
            self.push("tool", &call);
        }
        let key = lasting(&status);
        if self.status.as_ref() != Some(&key) {
            self.status = Some(key);
            self.push("status", &status);
        }
        Ok(match (more, is_over) {
            (true, _) => Stage::Reading,
            (false, true) => Stage::Ending(EndReason::Terminal),
            (false, false) => Stage::Waiting,
        })
    }

    /// The id of an event that is sent now.
    fn position(&self) -> String {
        format!("{}.{}", self.read.utterance, self.read.tool_call)
    }

    fn push(&mut self, name: &str, data: &impl Serialize) {
        let id = self.position();
        self.ready.push_back(Event::new(name, Some(&id), &serde_json::to_string(data).unwrap_or_default()));
    }
}

/// A status without what changes although nothing happens.
fn lasting(status: &VoiceStatus) -> String {
    let lasting = VoiceStatus { duration_seconds: 0, live: false, ..status.clone() };
    serde_json::to_string(&lasting).unwrap_or_default()
}
