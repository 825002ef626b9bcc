//! Hints of the caller's account, and looks for the machine that calls, as Server-Sent Events.

use actix_web::HttpResponse;
use ensemble_chassis::live::{self, Event};
use ensemble_chassis::{Caller, HandlerResult, State};
use futures_util::stream;

use super::stream::{Credentials, json_event};
use crate::SessionStore;
use crate::handlers::actor;
use crate::operations::hints::HintReader;

pub(crate) async fn open(service: State<SessionStore>, caller: Caller) -> HandlerResult<HttpResponse> {
    let reader = service.hint_readers.open(actor(&caller));
    let feed = Feed { reader, credentials: Credentials::of(&service, caller), has_ended: false };
    let events = stream::unfold(feed, |mut feed| async { feed.next().await.map(|event| (event, feed)) });
    Ok(live::sse(events, &service.drain))
}

struct Feed {
    reader: HintReader,
    credentials: Credentials,
    has_ended: bool,
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        while !self.has_ended {
            if let Err(reason) = self.credentials.check() {
                self.has_ended = true;
                return Some(Event::end(reason));
            }
            if let Some(look) = self.reader.take_look() {
                return Some(json_event("look", None, &look));
            }
            if let Some(hint) = self.reader.take() {
                return Some(json_event("hint", None, &hint));
            }
            tokio::select! {
                () = self.reader.added() => {}
                () = self.credentials.changed() => {}
            }
        }
        None
    }
}
