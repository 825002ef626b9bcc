//! Messages: append, read a page.

use ensemble_chassis::{Caller, HandlerResult, Json, LargeAnswer, Path, Query, State, Upserted};
use ensemble_store_kit::StoreError;
use ensemble_types::ids::SessionId;
use ensemble_types::messages::{AppendMessage, AppendMessages, AppendedMessages, Message, MessagePage};
use ensemble_types::page::Limit;
use ensemble_types::refs::IdOrRef;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::SessionStore;
use crate::domain::Invalid;
use crate::domain::history::{PAGE_BYTES, Window};
use crate::domain::message::Drafts;
use crate::error::Error;
use crate::handlers::actor;
use crate::operations;
use crate::operations::append::Appended;
use crate::operations::messages::ShortPage;

/// Which part of the history.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct WindowQuery {
    /// Only messages below this `seq`. Without `after`, newest first.
    before: Option<u64>,
    /// Only messages above this `seq`, in ascending order.
    after: Option<u64>,
    #[serde(default)]
    #[param(inline)]
    limit: Limit<50, 500>,
}

pub(crate) async fn append(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Json(body): Json<AppendMessage>,
) -> HandlerResult<Upserted<Message>> {
    let drafts = Drafts::one(body).map_err(Error::from)?;
    let Upserted { created, location, body } = store(&service, &caller, id, drafts).await?;
    let message = body.messages.into_iter().next();
    let message =
        message.ok_or_else(|| Error::Store(StoreError::bad_row("append messages", "a draft has no message")))?;
    Ok(Upserted { created, location, body: message })
}

pub(crate) async fn append_several(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Json(body): Json<AppendMessages>,
) -> HandlerResult<Upserted<AppendedMessages>> {
    store(&service, &caller, id, Drafts::several(body).map_err(Error::from)?).await
}

async fn store(
    service: &SessionStore,
    caller: &Caller,
    id: IdOrRef<SessionId>,
    drafts: Drafts,
) -> HandlerResult<Upserted<AppendedMessages>> {
    let id = operations::sessions::resolve(service, id).await?;
    let Appended { messages, created } = service.appender.append(id, actor(caller), drafts).await?;
    Ok(Upserted { created, location: location(id, &messages), body: AppendedMessages { messages } })
}

/// The page of the history that begins with the first of these.
fn location(session: SessionId, messages: &[Message]) -> String {
    let first = messages.iter().map(|message| message.seq).min().unwrap_or(1);
    let (after, count) = (first - 1, messages.len());
    format!("/v3/sessions/{session}/messages?after={after}&limit={count}")
}

pub(crate) async fn page(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Query(query): Query<WindowQuery>,
    large: LargeAnswer,
) -> HandlerResult<Json<MessagePage>> {
    let id = operations::sessions::resolve(&service, id).await?;
    let window = query.window()?;
    // Short pages do not wait for the caller's long ones.
    let bytes = match operations::messages::short_page(&service, id, actor(&caller), window).await? {
        ShortPage::Whole(page) => return Ok(Json(page)),
        ShortPage::Long { bytes } => usize::try_from(bytes).unwrap_or(usize::MAX),
    };
    let _turn = large.turn_for(bytes).await?;
    Ok(Json(operations::messages::page(&service, id, actor(&caller), window).await?))
}

impl WindowQuery {
    /// # Errors
    /// A bound is larger than any `seq` can be.
    pub(crate) fn window(&self) -> Result<Window, Error> {
        let number = |pointer, seq: Option<u64>| {
            let too_large = |_| Error::Invalid(Invalid::new(pointer, "must be at most 9223372036854775807"));
            seq.map(i64::try_from).transpose().map_err(too_large)
        };
        let (after, before) = (number("?after", self.after)?, number("?before", self.before)?);
        Ok(Window { after, before, limit: i64::from(self.limit.get()), bytes: PAGE_BYTES })
    }
}
