//! Messages: appended once, read in pages.

use std::sync::Arc;

use actix_web::HttpResponse;
use ensemble_chassis::{Caller, HandlerResult, Json, Path, Query, State, Upserted};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::{AppendRequest, AppendedMessages, Message};
use ensemble_types::page::Limit;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::json;
use crate::SessionStore;
use crate::domain::Invalid;
use crate::domain::draft::{Draft, Drafts};
use crate::domain::history::Window;
use crate::error::Error;
use crate::store::{Appended, Stored};

/// Which part of the history.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct WindowQuery {
    /// Only messages below this `seq`. Alone, or with nothing: newest first.
    before: Option<u64>,
    /// Only messages above this `seq`, in ascending order.
    after: Option<u64>,
    #[serde(default)]
    #[param(inline)]
    limit: Limit<50, 500>,
}

/// One message or several, as they were asked for.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum AppendAnswer {
    One(Box<Message>),
    Several(AppendedMessages),
}

pub(crate) async fn append(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Json(body): Json<AppendRequest>,
) -> HandlerResult<Upserted<AppendAnswer>> {
    let drafts = Arc::new(Drafts::new(body).map_err(Error::from)?);
    let Appended { messages } = state.appender.append(id, caller.user, Arc::clone(&drafts)).await?;
    let created = messages.iter().any(|stored| matches!(stored, Stored::New { .. }));
    let mut messages: Vec<Message> =
        messages.into_iter().zip(&drafts.messages).map(|(stored, draft)| message(stored, draft, caller.user)).collect();
    let body = match messages.pop() {
        Some(message) if !drafts.batch => AppendAnswer::One(Box::new(message)),
        last => {
            messages.extend(last);
            AppendAnswer::Several(AppendedMessages { messages })
        }
    };
    Ok(Upserted { created, body })
}

pub(crate) async fn page(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Query(query): Query<WindowQuery>,
) -> HandlerResult<HttpResponse> {
    let page = state.store.history(id, caller.user, query.window()?).await?;
    Ok(json(page.json))
}

impl WindowQuery {
    /// # Errors
    /// No message can have such a number.
    pub(crate) fn window(&self) -> Result<Window, Error> {
        let number = |pointer, seq: Option<u64>| {
            let too_large = |_| Error::Invalid(Invalid::new(pointer, "must be at most 9223372036854775807"));
            seq.map(i64::try_from).transpose().map_err(too_large)
        };
        let (after, before) = (number("?after", self.after)?, number("?before", self.before)?);
        Ok(Window { after, before, limit: i64::from(self.limit.get()) })
    }
}

fn message(stored: Stored, draft: &Draft, sender: UserId) -> Message {
    match stored {
        Stored::Before(message) => *message,
        Stored::New { id, seq, created_at } => Message {
            id,
            seq,
            local_id: draft.local_id.clone(),
            content: draft.content.clone(),
            sender_id: sender,
            key_epoch: draft.key_epoch,
            created_at,
        },
    }
}
