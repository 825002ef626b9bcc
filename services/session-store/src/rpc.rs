//! The internal listener: other services give hints here, for the readers of an account's events, and voice-gateway reads sessions for
//! their owner.

use std::cmp::Reverse;
use std::sync::Arc;

use ensemble_rpc::RpcError;
use ensemble_rpc::sessions::{
    AccountHint as WireHint, AccountHints, GiveHintsRequest, GiveHintsResponse, ListSessionsRequest,
    ListSessionsResponse, SessionBrief, SessionReader,
};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::attention::AttentionKind;
use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::sessions::{Session, SessionStatus};
use futures_util::future::BoxFuture;

use crate::SessionStore;
use crate::domain::access::Actor;
use crate::error::Error;
use crate::operations::hints;
use crate::operations::session_list::{self, ListRequest};

/// The most hints of one call.
const MOST: usize = 1_000;
/// The longest id of a machine, which is longer than any other id.
const LONGEST_ID: usize = 64;

pub(crate) struct Hints(pub(crate) Db);

impl AccountHints for Hints {
    fn give(&self, request: GiveHintsRequest) -> BoxFuture<'_, Result<GiveHintsResponse, RpcError>> {
        Box::pin(async move {
            if request.hints.len() > MOST {
                return Err(RpcError::Invalid(format!("more than {MOST} hints")));
            }
            let given: Vec<AccountHint> = request.hints.into_iter().map(read).collect::<Result<_, _>>()?;
            hints::publish(&self.0, &given);
            Ok(GiveHintsResponse {})
        })
    }
}

fn read(hint: WireHint) -> Result<AccountHint, RpcError> {
    let malformed = |what: &str| RpcError::Invalid(format!("the {what} of a hint is malformed"));
    let kind: HintKind = hint.kind.parse().map_err(|_| malformed("kind"))?;
    if !matches!(kind, HintKind::Run | HintKind::Machine | HintKind::Device | HintKind::Invite) {
        return Err(malformed("kind"));
    }
    if hint.id.is_empty() || hint.id.len() > LONGEST_ID || hint.id.contains(char::is_control) {
        return Err(malformed("id"));
    }
    let user = hint.user_id.parse().map_err(|_| malformed("account"))?;
    Ok(AccountHint { user, machine: None, kind, id: hint.id, revision: hint.revision })
}

/// The most sessions of one answer.
const MOST_SESSIONS: u32 = 20;

pub(crate) struct Briefs(pub(crate) Arc<SessionStore>);

impl SessionReader for Briefs {
    fn list(&self, request: ListSessionsRequest) -> BoxFuture<'_, Result<ListSessionsResponse, RpcError>> {
        Box::pin(async move {
            if !(1..=MOST_SESSIONS).contains(&request.limit) {
                return Err(RpcError::Invalid(format!("the limit must be 1 to {MOST_SESSIONS}")));
            }
            let malformed = |_| RpcError::Invalid("the id of the account is malformed".to_owned());
            let user = request.user_id.parse().map_err(malformed)?;
            let page = ListRequest {
                caller: Actor { user, machine: None },
                include_shared: false,
                active_only: request.active_only,
                wanting: false,
                changed_since: None,
                limit: usize::try_from(request.limit).unwrap_or(1),
                cursor: None,
            };
            let mut page = session_list::list(&self.0, page).await.map_err(failed)?;
            page.sessions.sort_by_key(|session| Reverse(session.updated_at));
            let more = page.next_cursor.is_some();
            Ok(ListSessionsResponse { sessions: page.sessions.into_iter().map(brief).collect(), more })
        })
    }
}

fn brief(session: Session) -> SessionBrief {
    SessionBrief {
        id: session.id.to_string(),
        r#ref: session.reference.to_string(),
        machine_id: session.machine_id.map(|id| id.to_string()).unwrap_or_default(),
        status: match session.status {
            SessionStatus::Active => "active",
            SessionStatus::Ended => "ended",
        }
        .to_owned(),
        archived: session.archived,
        online: session.online,
        thinking: session.thinking,
        attention: match session.attention.kind {
            AttentionKind::None => "none",
            AttentionKind::Permission => "permission",
            AttentionKind::Question => "question",
            AttentionKind::Finished => "finished",
            AttentionKind::Failed => "failed",
        }
        .to_owned(),
        open: session.attention.open.into(),
        updated_at: session.updated_at.micros(),
    }
}

fn failed(error: Error) -> RpcError {
    match error {
        Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) => {
            RpcError::Unavailable(error.to_string())
        }
        other => RpcError::Internal(other.to_string()),
    }
}
